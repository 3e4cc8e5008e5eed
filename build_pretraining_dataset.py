"""Builds pre-training data: raw text in, shuffled TFRecord shards and a manifest out.

    python build_pretraining_dataset.py --input='wikiextractor:wiki/*/*' --input='book:novels/*.txt' \\
        --vocab_file=vocab.txt --output_dir=data --num_processes=8

Formats: text (a sentence or paragraph a line, a blank line ends a document), book (a file is a document, hard-wrapped
lines are joined), wikiextractor (many <doc> or JSON articles a file). The same inputs, settings and seed give the same
bytes for any number of processes.
"""

import sys
from argparse import BooleanOptionalAction, Namespace
from pathlib import Path

from electra_tf.config.command_line import flag_parser, run_command


def parse_flags(arguments: list[str] | None = None) -> Namespace:
    """Reads the command line; needs no TensorFlow."""
    parser = flag_parser(__doc__)
    parser.add_argument(
        "--input",
        action="append",
        required=True,
        metavar="FORMAT:GLOB",
        help="text to read, format text, book or wikiextractor; may be given several times; quote the glob",
    )
    parser.add_argument("--vocab_file", required=True, help="WordPiece vocabulary, a token a line")
    parser.add_argument("--output_dir", required=True, type=Path, help="directory for shards, vocabulary and manifest")
    parser.add_argument("--max_seq_length", type=int, default=128, help="tokens of the longest example, at least 8")
    parser.add_argument(
        "--num_processes", type=int, default=1, help="processes to use; any number gives the same bytes"
    )
    parser.add_argument("--seed", type=int, default=0, help="keys the shuffle, the segments and the held-out part")
    parser.add_argument("--held_out_fraction", type=float, default=0.005, help="part of the documents to hold out")
    parser.add_argument("--num_shards", type=int, default=0, help="training shards; 0: one for every 16 MiB of text")
    parser.add_argument("--lower_case", action=BooleanOptionalAction, default=True, help="lower all letters")
    parser.add_argument(
        "--strip_accents", action=BooleanOptionalAction, default=True, help="strip accents, if letters are lowered"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a data set in output_dir; spares other files")
    return parser.parse_args(arguments)


def build(flags: Namespace) -> None:
    """Runs the build that the flags describe."""
    from data_prep import pipeline

    settings = pipeline.BuildSettings(
        inputs=tuple(flags.input),
        vocab_file=flags.vocab_file,
        output_dir=flags.output_dir,
        max_seq_length=flags.max_seq_length,
        seed=flags.seed,
        held_out_fraction=flags.held_out_fraction,
        lower_case=flags.lower_case,
        strip_accents=flags.strip_accents,
        num_shards=flags.num_shards,
        num_processes=flags.num_processes,
        overwrite=flags.overwrite,
    )
    pipeline.build(settings)


def main() -> None:
    flags = parse_flags()
    sys.exit(run_command(lambda: build(flags)))


if __name__ == "__main__":
    main()
