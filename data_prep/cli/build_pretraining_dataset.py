"""Builds pre-training data: raw text in, shuffled TFRecord shards and a manifest out.

    python build_pretraining_dataset.py --input='wikipedia:dumps/*.bz2' --input='book:novels/*.txt' \\
        --vocab_file=vocab.txt --output_dir=data --num_processes=8

Formats (--input=FORMAT:GLOB; without FORMAT it is told from the content where that is safe):
  text           a sentence or paragraph a line, a blank line ends a document
  sentences      a sentence a line, no document ends: a document every --lines_per_document lines (BooksCorpus)
  book           a file is a document, hard-wrapped lines are joined
  wikipedia      MediaWiki's XML dump
  wikiextractor  WikiExtractor's output, <doc> or JSON, many articles a file
  jsonl          a JSON object a line, the text in --text_field
  openwebtext    a text a document, in archives of archives
  parquet, arrow a document a row, the text in the column --text_field
All of them may be compressed (gzip, bzip2, xz, zstd) and in tar archives: the content tells, not the name.

The same documents, settings and seed give the same bytes for any number of processes. A build that was interrupted, or
killed, goes on with the same command.
"""

import os
import sys
from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction, Namespace
from typing import TYPE_CHECKING

from electra_tf.cli.flags import flag_parser, run_command

if TYPE_CHECKING:
    from data_prep.settings import BuildSettings

_REQUIRED = ("input", "vocab_file", "output_dir")


def parse_flags(arguments: list[str] | None = None) -> Namespace:
    """Reads the command line; needs no TensorFlow. `beam_arguments` are those that Apache Beam is to read."""
    parser = flag_parser(__doc__)
    _add_place_flags(parser)
    _add_text_flags(parser)
    _add_example_flags(parser)
    flags, unknown = parser.parse_known_args(arguments)
    if unknown and flags.runner is None:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    missing = [f"--{name}" for name in _REQUIRED if getattr(flags, name) is None]
    if missing and flags.verify is None:
        parser.error(f"the following arguments are required: {', '.join(missing)}")
    flags.beam_arguments = unknown
    return flags


def _add_place_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        action="append",
        default=SUPPRESS,
        metavar="FORMAT:GLOB",
        help="text to read; may be given several times; quote the glob (required)",
    )
    parser.set_defaults(input=None)
    parser.add_argument("--vocab_file", help="WordPiece vocabulary, a token a line (required)")
    parser.add_argument("--output_dir", help="directory for shards, vocabulary and manifest, local or a URL (required)")
    parser.add_argument(
        "--work_dir", default="", help="local directory for intermediate files; the default is inside output_dir"
    )
    parser.add_argument(
        "--num_processes", type=int, default=1, help="processes to use; any number gives the same bytes"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a data set in output_dir; spares other files")
    parser.add_argument("--verify", metavar="DIR", help="build nothing: compare the data set in DIR with its manifest")
    parser.add_argument(
        "--runner",
        help="run on Apache Beam: DirectRunner, DataflowRunner, FlinkRunner, SparkRunner, ...; flags that are not"
        " listed here are Beam's then",
    )


def _add_text_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--text_field", default="text", help="field or column with the text, of jsonl, parquet, arrow")
    parser.add_argument(
        "--lines_per_document", type=int, default=1000, help="of the format sentences: how many lines make a document"
    )
    parser.add_argument(
        "--keep_disambiguation_pages",
        action=BooleanOptionalAction,
        default=False,
        help="keep the disambiguation pages of a Wikipedia dump",
    )
    parser.add_argument(
        "--sentences",
        choices=("auto", "line", "split"),
        default="auto",
        help="what examples are made of: line: lines as they are, as the authors do; split: sentences split from lines;"
        " auto: split where the format has paragraphs",
    )
    parser.add_argument("--language", default="en", help="of the text whose sentences are split, as in ISO 639-1")
    parser.add_argument(
        "--unicode_normalization",
        choices=("NFC", "none"),
        default="NFC",
        help="Unicode normal form that all text is brought into",
    )
    parser.add_argument(
        "--drop_control_characters", action=BooleanOptionalAction, default=True, help="drop them from the text"
    )
    parser.add_argument(
        "--min_document_characters", type=int, default=50, help="shorter documents are left out; 0 keeps all"
    )
    parser.add_argument(
        "--drop_duplicates", action=BooleanOptionalAction, default=True, help="of documents of equal text, keep one"
    )
    parser.add_argument(
        "--allow_truncated", action="store_true", help="files that are cut off are no error; they are read as far"
    )


def _add_example_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--max_seq_length", type=int, default=128, help="tokens of the longest example, at least 8")
    parser.add_argument("--lower_case", action=BooleanOptionalAction, default=True, help="lower all letters")
    parser.add_argument(
        "--strip_accents", action=BooleanOptionalAction, default=True, help="strip accents, if letters are lowered"
    )
    parser.add_argument("--seed", type=int, default=0, help="keys the shuffle, the segments and the held-out part")
    parser.add_argument("--held_out_fraction", type=float, default=0.005, help="part of the documents to hold out")
    parser.add_argument("--num_shards", type=int, default=0, help="training shards; 0: one for every 8 MiB of records")


def build(flags: Namespace) -> None:
    """Runs the build, or the check, that the flags describe."""
    # Which Keras TensorFlow brings along does not matter here; tf_keras takes half the time and memory of Keras 3.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    from data_prep import processes

    if flags.verify is None and flags.runner is None:
        processes.preload(flags.num_processes)
    if flags.verify is not None:
        from data_prep.verify import verify

        verify(flags.verify)
    elif flags.runner is None:
        from data_prep import pipeline

        pipeline.build(settings_of(flags))
    else:
        from data_prep import beam

        beam.run(settings_of(flags), [f"--runner={flags.runner}", *flags.beam_arguments])


def settings_of(flags: Namespace) -> "BuildSettings":
    """The flags that describe a build, checked."""
    from data_prep.hygiene import HygieneOptions
    from data_prep.readers.documents import ReaderOptions
    from data_prep.settings import BuildSettings

    return BuildSettings(
        inputs=tuple(flags.input),
        vocab_file=flags.vocab_file,
        output_dir=flags.output_dir,
        work_dir=flags.work_dir,
        max_seq_length=flags.max_seq_length,
        seed=flags.seed,
        held_out_fraction=flags.held_out_fraction,
        lower_case=flags.lower_case,
        strip_accents=flags.strip_accents,
        sentences=flags.sentences,
        language=flags.language,
        reader=ReaderOptions(
            text_field=flags.text_field,
            lines_per_document=flags.lines_per_document,
            keep_disambiguation_pages=flags.keep_disambiguation_pages,
        ),
        hygiene=HygieneOptions(
            unicode_normalization=flags.unicode_normalization,
            drop_control_characters=flags.drop_control_characters,
            min_document_characters=flags.min_document_characters,
        ),
        drop_duplicates=flags.drop_duplicates,
        num_shards=flags.num_shards,
        num_processes=flags.num_processes,
        allow_truncated=flags.allow_truncated,
        overwrite=flags.overwrite,
    )


def main() -> None:
    flags = parse_flags()
    sys.exit(run_command(lambda: build(flags)))


if __name__ == "__main__":
    main()
