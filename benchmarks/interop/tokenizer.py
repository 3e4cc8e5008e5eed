"""Ids of the tokenizer that transformers builds from our folder against ours, by cause of the difference.

    python -m benchmarks.interop.tokenizer LINES --uncased=bert-base-uncased-vocab.txt --cased=bert-base-cased-vocab.txt

LINES is a file of JSON lines with a `text` and, where it is known, a `kind`: `novel` are lines of real text, any other
were written to be hard; `.xz` is read as it is. Prints, for uncased with and without accents and for cased, how many
lines have other ids, and why. A line has the first cause that explains it: without that cause the ids are equal.
"""

import argparse
import json
import lzma
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.harness import run_check
from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import import_tensorflow
from electra_tf.text.vocabulary import SPECIAL_TOKENS

MODES = {  # lower_case, strip_accents, flag of the vocabulary
    "uncased": (True, True, "uncased"),
    "uncased, accents kept": (True, False, "uncased"),
    "cased": (False, False, "cased"),
}
_CAPITAL_SIGMA = "\u03a3"


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = flag_parser(__doc__)
    parser.add_argument("lines", type=Path, metavar="LINES", help="JSON lines with `text`, .jsonl or .jsonl.xz")
    parser.add_argument("--uncased", type=Path, required=True, metavar="FILE", help="an uncased vocab.txt")
    parser.add_argument("--cased", type=Path, required=True, metavar="FILE", help="a cased vocab.txt")
    return parser.parse_args(arguments)


def measure(flags: argparse.Namespace) -> bool:
    """Prints a line for each mode; returns whether the lines of real text all have our ids."""
    import_tensorflow()
    opened = lzma.open if flags.lines.suffix == ".xz" else open
    with opened(flags.lines, "rt", encoding="utf-8") as stream:
        lines = [json.loads(line) for line in stream]
    num_real = sum(line.get("kind") == "novel" for line in lines)
    print(f"{len(lines):,} lines, {num_real:,} of them real text\n")
    of_real = 0
    for name, (lower_case, strip_accents, vocabulary) in MODES.items():
        causes, real = differences(lines, getattr(flags, vocabulary), lower_case, strip_accents)
        shown = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
        print(f"{name:<22} {causes.total():>4} lines differ, {real} of real text: {shown}", flush=True)
        of_real += real
    return of_real == 0


def differences(lines: list[dict], vocab_file: Path, lower_case: bool, strip_accents: bool) -> tuple[Counter, int]:
    """How many lines have other ids, by cause; and how many of these are real text."""
    tokenizers = _Tokenizers(vocab_file, lower_case, strip_accents)
    differing = tokenizers.differing([line["text"] for line in lines])
    causes = Counter(cause_of(lines[index]["text"], tokenizers) for index in differing)
    return causes, sum(lines[index].get("kind") == "novel" for index in differing)


def cause_of(text: str, tokenizers: "_Tokenizers") -> str:
    """The first cause without which the ids of a text are equal."""
    without = text
    for token in SPECIAL_TOKENS:
        without = without.replace(token, " ")
    if not tokenizers.differing([without]):
        return "special token written out"
    # Characters that the two treat differently wherever they stand: in one version of Unicode they are letters, say.
    characters = sorted(set(without) - {_CAPITAL_SIGMA})
    unequal = {characters[index] for index in tokenizers.differing([f"a{each}b" for each in characters])}
    without = "".join(each for each in without if each not in unequal)
    if not tokenizers.differing([without]):
        return "version of Unicode"
    if not tokenizers.differing([without.replace(_CAPITAL_SIGMA, "")]):
        return "final sigma"
    if any(len(word) > 100 for word in without.split()):
        return "long word"
    return "other"


class _Tokenizers:
    """Ours, and transformers' from the files that we write."""

    def __init__(self, vocab_file: Path, lower_case: bool, strip_accents: bool):
        from transformers import AutoTokenizer

        from electra_tf.text.tokenizer import BertTokenizer
        from electra_tf.text.vocabulary import Vocabulary
        from electra_tf.weights.hugging_face.tokenizer import tokenizer_files

        vocabulary = Vocabulary.load(vocab_file)
        self._ours = BertTokenizer(vocabulary, lower_case, strip_accents)
        with tempfile.TemporaryDirectory() as directory:
            files = tokenizer_files(vocabulary, vocab_file.read_bytes(), lower_case, strip_accents, max_length=512)
            for name, content in files.items():
                (Path(directory) / name).write_bytes(content)
            (Path(directory) / "config.json").write_text('{"model_type": "electra"}')
            self._theirs = AutoTokenizer.from_pretrained(directory)

    def differing(self, texts: list[str]) -> list[int]:
        """The texts to which the two give other ids."""
        ours = self._ours.tokenize([text.encode() for text in texts]).to_list()
        theirs = self._theirs(texts, add_special_tokens=False, verbose=False)["input_ids"]
        return [index for index, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other]


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    return run_check(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
