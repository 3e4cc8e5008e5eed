"""Builds a WordPiece vocabulary from text, and reports how well it fits.

    python build_vocab.py --input='wikipedia:dumps/*.bz2' --vocab_size=30522 --output=vocab.txt --num_processes=8

Input is what build_pretraining_dataset.py takes, in all its formats and compressions: FORMAT:GLOB, or GLOB alone where
the content tells. Plain text needs no format here, since it does not matter where a document ends.

Text is cleaned and cut into words exactly as the builder and the tokenizer do it, so give the same --lower_case and
--strip_accents later on. The special tokens come first, [PAD] as id 0; with --num_unused_tokens=99 or more, they have
the ids of BERT's own vocabulary: [PAD], [unused0] to [unused98], [UNK] (100), [CLS], [SEP], [MASK], [unused99] ...
The same text gives the same bytes, in any order of files and with any number of processes and threads.

Beside the vocabulary, FILE.coverage.json holds the settings and how well the vocabulary fits the text of
--coverage_input (give text that it was not learnt from) or, without one, the training text itself.
"""

import argparse
import os
import sys
from typing import Any

from electra_tf.cli.flags import flag_parser, run_command


def parse_flags() -> argparse.Namespace:
    parser = flag_parser(__doc__)
    required = {"required": True, "default": argparse.SUPPRESS}
    inputs = {"action": "append", "metavar": "FORMAT:GLOB"}
    parser.add_argument("--input", help="text to learn from; may be given repeatedly", **inputs, **required)
    parser.add_argument("--output", metavar="FILE", help="the vocabulary, one token a line; may be a URL", **required)
    parser.add_argument(
        "--coverage_input", default=[], help="text to measure the fit on; may be given repeatedly", **inputs
    )
    parser.add_argument("--vocab_size", type=int, default=30522, help="tokens, the special and unused ones included")
    boolean = argparse.BooleanOptionalAction
    parser.add_argument("--lower_case", action=boolean, default=True, help="lower every letter")
    parser.add_argument(
        "--strip_accents",
        action=boolean,
        default=True,
        help="strip accents; as in BERT, only where letters are lowered",
    )
    parser.add_argument("--num_unused_tokens", type=int, default=0, help="[unused...] slots for tokens of your own")
    parser.add_argument(
        "--max_num_characters",
        type=int,
        default=0,
        help="the most frequent characters, which pieces are made of; words with any other are left out. 0: 1,000, or"
        " as many as make up 99.99 %% of the text, but no more than a third of the vocabulary",
    )
    parser.add_argument("--text_field", default="text", help="field or column with the text, of jsonl, parquet, arrow")
    parser.add_argument("--unicode_normalization", choices=("NFC", "none"), default="NFC", help="of all text")
    parser.add_argument("--drop_control_characters", action=boolean, default=True, help="drop them from the text")
    parser.add_argument("--num_processes", type=int, default=1, help="processes that count words")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing output file")
    return parser.parse_args()


def build_vocab(flags: argparse.Namespace) -> None:
    """Reads, learns, measures, writes; raises UserError for what the user can mend."""
    # Which Keras TensorFlow brings along does not matter here; tf_keras takes half the time and memory of Keras 3.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    from data_prep.hygiene import HygieneOptions
    from data_prep.readers.documents import ReaderOptions
    from data_prep.vocabulary_builder import VocabularySettings, build_vocabulary

    settings = VocabularySettings(
        inputs=tuple(flags.input),
        output=flags.output,
        vocab_size=flags.vocab_size,
        lower_case=flags.lower_case,
        strip_accents=flags.strip_accents,
        num_unused_tokens=flags.num_unused_tokens,
        max_num_characters=flags.max_num_characters,
        coverage_inputs=tuple(flags.coverage_input),
        # Where documents end does not matter to a vocabulary, nor does how short they are.
        reader=ReaderOptions(flags.text_field, lines_per_document=1000, keep_disambiguation_pages=False),
        hygiene=HygieneOptions(flags.unicode_normalization, flags.drop_control_characters, min_document_characters=0),
        num_processes=flags.num_processes,
        overwrite=flags.overwrite,
    )
    print_report(settings.output, build_vocabulary(settings))


def print_report(output: str, report: dict[str, Any]) -> None:
    training, coverage, text = report["training_text"], report["coverage"], report["coverage_text"]
    print(f"{output}: {report['vocab_size']} tokens from {training['num_files']} files, {training['num_words']} words")
    measured_on = text if isinstance(text, str) else f"{text['num_files']} other files, {text['num_words']} words"
    print(
        f"on {measured_on}: {100 * coverage['unknown_fraction']:.3f} % of the tokens are [UNK],"
        f" {coverage['tokens_per_word']:.3f} tokens a word,"
        f" {100 * coverage['single_piece_fraction']:.1f} % of the words are one piece"
    )


def main() -> int:
    flags = parse_flags()
    return run_command(lambda: build_vocab(flags))


if __name__ == "__main__":
    sys.exit(main())
