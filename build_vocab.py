"""Builds a WordPiece vocabulary from text files.

    python build_vocab.py --input='corpus/*.txt' --vocab_size=30522 --output=vocab.txt

The text is normalised and split into words exactly as the tokenizer does it, so give the same --lower_case and
--strip_accents later on. The special tokens come first, [PAD] as id 0. Lines that are WikiExtractor's <doc ...> and
</doc> tags are left out. The same files give the same bytes, on any number of threads.
"""

import argparse
import contextlib
import glob
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from electra_tf.config.command_line import flag_parser, run_command
from electra_tf.config.errors import UserError


def parse_flags() -> argparse.Namespace:
    parser = flag_parser(__doc__)
    parser.add_argument(
        "--input", action="append", required=True, metavar="GLOB", help="text files in UTF-8; may be given repeatedly"
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="the vocabulary, one token a line")
    parser.add_argument("--vocab_size", type=int, default=30522, help="tokens, the 5 special ones included")
    parser.add_argument("--lower_case", action=argparse.BooleanOptionalAction, default=True, help="lower every letter")
    parser.add_argument(
        "--strip_accents",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="strip accents; as in BERT, only where letters are lowered too",
    )
    parser.add_argument(
        "--max_num_characters",
        type=int,
        default=1000,
        help="the most frequent characters, which pieces are made of; words with any other are left out",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing output file")
    return parser.parse_args()


def build_vocab(flags: argparse.Namespace) -> None:
    """Reads, trains, writes; raises UserError for what the user can mend."""
    output = Path(flags.output)
    if os.path.isdir(output):  # unlike Path.is_dir, no exception for a name too long
        raise UserError(f"--output={output} is a directory, expected a file; add a file name such as vocab.txt")
    if os.path.exists(output) and not flags.overwrite:
        raise UserError(f"{output} exists; give another --output or --overwrite")
    if not output.parent.is_dir():
        raise UserError(f"--output names the directory {output.parent}, which does not exist; create it first")
    # Sorted and without repetition: what a glob matches comes in no order, and two globs may match the same file.
    paths = sorted({path for pattern in flags.input for path in matching_files(pattern)})

    from electra_tf.text.vocabulary_trainer import count_words, read_lines, train_vocabulary

    word_counts = count_words(read_lines(paths), lower_case=flags.lower_case, strip_accents=flags.strip_accents)
    if not word_counts:
        raise UserError(f"--input: {len(paths)} file(s) without a word; give files with text in them")
    tokens = train_vocabulary(word_counts, vocab_size=flags.vocab_size, max_num_characters=flags.max_num_characters)
    write_tokens(output, tokens)
    print(f"{output}: {len(tokens)} tokens from {len(paths)} files, {word_counts.total()} words")


def write_tokens(output: Path, tokens: Sequence[str]) -> None:
    """Writes the file at once and whole. Raises: UserError: it cannot be written."""
    unfinished = output.with_name(f"{output.name}.{os.getpid()}.unfinished")
    try:
        unfinished.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8", newline="\n")
        os.replace(unfinished, output)
    except OSError as error:
        with contextlib.suppress(OSError):  # the first error is the one to report
            unfinished.unlink(missing_ok=True)
        raise UserError(f"cannot write --output={output}: {error.strerror}; give another file") from None


def matching_files(pattern: str) -> list[str]:
    """The files that a glob matches. Raises: UserError: none."""
    paths = [path for path in glob.glob(pattern, recursive=True) if Path(path).is_file()]
    if not paths:
        raise UserError(f"--input={pattern} matches no file; check the path and quote the pattern")
    return paths


def main() -> int:
    flags = parse_flags()
    return run_command(lambda: build_vocab(flags))


if __name__ == "__main__":
    sys.exit(main())
