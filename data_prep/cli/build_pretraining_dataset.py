"""Builds pre-training data: raw text in, shuffled TFRecord shards and a manifest out.

    electra-tf build-data --input='wikipedia:dumps/*.bz2' --input='book:novels/*.txt' \\
        --vocab_file=vocab.txt --output_dir=data --num_processes=8

Formats (--input=FORMAT:GLOB; FORMAT may be omitted if the content or .csv, .tsv shows it):
  text           one sentence or paragraph per line, a blank line ends a document
  sentences      one sentence per line, a document every --lines_per_document lines (BooksCorpus)
  documents      one document per line
  book           one document per file, hard-wrapped lines are joined
  wikipedia      MediaWiki's XML dump
  cirrus         Wikimedia's export of CirrusSearch: articles with their templates, in every language
  wikiextractor  WikiExtractor's output, <doc> or JSON, many articles per file
  jsonl          one JSON object per line, the text in --text_field
  csv, tsv       one document per row, a header, the text in the column --text_field
  openwebtext    one document per file, in archives of archives
  parquet, arrow one document per row, the text in the column --text_field
Compression (gzip, bzip2, xz, zstd) and tar archives are detected from the content, not from the name.

The same documents, settings and seed give the same bytes with any number of processes. After an interruption or a kill,
the same command continues the build, also if input files were repaired. Records and files that are faulty are left out,
counted and named; more than --max_skipped of them is an error at the end, which keeps the work on the others.
"""

import logging
import sys
from argparse import Namespace

from data_prep.settings import BuildSettings, add_setting_flags, settings_of
from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError


def parse_flags(arguments: list[str] | None = None) -> Namespace:
    """Parses the command line. Unknown flags are for Apache Beam: they go to `beam_arguments`."""
    parser = flag_parser(__doc__)
    is_build = not any(text.startswith("--verify") for text in (sys.argv[1:] if arguments is None else arguments))
    add_setting_flags(parser, BuildSettings, {"is_segmented"}, are_required=is_build)
    parser.add_argument("--verify", metavar="DIR", help="only compare the data set in DIR with its manifest")
    parser.add_argument(
        "--runner",
        help="run on Apache Beam: DirectRunner, DataflowRunner, FlinkRunner, SparkRunner, ...; flags that are unknown"
        " here are then passed to Beam",
    )
    flags, unknown = parser.parse_known_args(arguments)
    if unknown and flags.runner is None:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    flags.beam_arguments = unknown
    return flags


def run(flags: Namespace) -> None:
    """Builds or checks a data set. Raises: UserError: see `build.build`, `beam.run` and `manifest.verify`."""
    if flags.verify is not None:
        from data_prep.manifest import verify

        verify(flags.verify)
    elif flags.runner is None:
        from data_prep import processes

        processes.preload(flags.num_processes)
        from data_prep.build import build

        build(settings_of(flags, BuildSettings))
    else:
        logging.disable(logging.WARNING)  # about every part of Google Cloud that is not installed
        try:
            from data_prep import beam
        except ImportError as error:
            raise UserError(f'--runner needs Apache Beam ({error}); pip install "electra-tf[beam]"') from None
        finally:
            logging.disable(logging.NOTSET)
        beam.run(settings_of(flags, BuildSettings), [f"--runner={flags.runner}", *flags.beam_arguments])


def main(argv: list[str] | None = None) -> int:
    flags = parse_flags(argv)
    return run_command(lambda: run(flags))
