"""Scores a pre-trained model on minimal pairs such as BLiMP's, without fine-tuning.

    electra-tf score-minimal-pairs --from=RUN --pairs=blimp/data
    electra-tf score-minimal-pairs --from=RUN --generator --pairs mine.jsonl --output=accuracy.json
    electra-tf score-minimal-pairs --from=FOLDER --pairs=blimp/data --pair_scores=scores.jsonl

--pairs takes tables (JSON lines, CSV, TSV, Parquet) with columns sentence_good and sentence_bad, or folders of .jsonl
files. The command prints in how many pairs the good sentence scores higher: of all pairs, and by `field`,
`linguistics_term` and `UID` (or file), where the pairs have these. A tie counts half.

A masked language model scores a sentence by its pseudo-log-likelihood (Salazar et al. 2020), a discriminator by minus
the sum of its replaced-token logits, Electric by minus the sum of its energies. --from takes what electra-tf convert
takes. See docs/evaluation.md.
"""

import dataclasses
import json
import logging
import os

from electra_tf.cli.configuration import load_module, require_free
from electra_tf.cli.flags import add_objective_module_flag, add_segment_flag, flag_parser, positive_int
from electra_tf.cli.process import errors_reported, import_tensorflow
from electra_tf.config.errors import UserError


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--from", required=True, dest="source", metavar="PATH", help="the model to score")
    parser.add_argument("--pairs", required=True, nargs="+", metavar="PATH", help="files or folders of pairs")
    parser.add_argument("--generator", action="store_true", help="score with the generator of an ELECTRA")
    parser.add_argument(
        "--within_word_l2r",
        action="store_true",
        help="masked LMs: with a token, also mask the later pieces of its word (Kauf and Ivanova 2023)",
    )
    parser.add_argument("--output", metavar="FILE", help="JSON file to write: the accuracies")
    parser.add_argument("--pair_scores", metavar="FILE", help="JSON lines file to write: both scores of each pair")
    parser.add_argument("--batch_size", type=positive_int, default=64, metavar="N", help="sequences in one pass")
    parser.add_argument("--vocab_file", metavar="FILE", help="vocabulary, for sources without one")
    parser.add_argument("--cased", action="store_true", help="the vocabulary is cased: text is not lower-cased")
    add_segment_flag(parser)
    add_objective_module_flag(parser)
    arguments = parser.parse_args(argv)
    with errors_reported() as status:
        import_tensorflow()

        from electra_tf.files import make_directory, store_errors, write_atomically
        from electra_tf.reports.minimal_pairs import pair_lines, read_pairs, results_of, score_pairs
        from electra_tf.reports.sentence_scores import scorer_of
        from electra_tf.weights.source import load_trained, source_overrides

        if arguments.output and arguments.output == arguments.pair_scores:
            raise UserError(f"--output and --pair_scores are both {arguments.output}; give two names")
        require_free(arguments, "output", "pair_scores")
        for flag in ("output", "pair_scores"):
            if file := getattr(arguments, flag):
                with store_errors(f"--{flag}={file}", "cannot be written"):  # now, and not after an hour
                    make_directory(os.path.dirname(file) or ".")
        load_module(arguments.objective_module)
        overrides = source_overrides(arguments.vocab_file, arguments.cased)
        pairs = read_pairs(arguments.pairs)
        model = dataclasses.replace(load_trained(arguments.source, overrides), segment=arguments.segment)
        for note in model.notes:
            logging.warning(note)
        scorer = scorer_of(model, arguments.generator, arguments.within_word_l2r)
        scores = score_pairs(scorer, pairs, arguments.batch_size)
        results = results_of(pairs, scores)
        if arguments.pair_scores:
            write_atomically(arguments.pair_scores, pair_lines(pairs, scores).encode())
        if arguments.output:
            values = {"model": scorer.source, "score": scorer.name, **results.to_json()}
            write_atomically(arguments.output, (json.dumps(values, indent=1) + "\n").encode())
        print(f"{scorer.source}, by {scorer.name}\n\n{results.table()}")
    return status.code
