"""Compares the ids of a SentencePiece model in four implementations, line by line.

    python -m benchmarks.tokenizer_ids --vocab_file=spm.model --input=ja.txt --input=th.txt --num_odd_lines=3000 \\
        --peers_python=PEERS/bin/python

The implementations are the library `sentencepiece` after Python's NFKC; the dataset builder; a SavedModel with our
tokenizer, loaded again; and transformers with the files of a converted folder, in this environment and in those of
--peers_python. Left out are lines with a special token, which transformers finds in any text; for the builder, the
characters that it drops; and for transformers, lines with a character that is younger than its tables (Unicode 9) and
that NFKC changes or reorders.

BPE's ids must be equal. A unigram model may cut a line in two ways with the same score, in another order of summing:
such ties are counted, and other differences fail.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from sentencepiece import SentencePieceProcessor
from tokenizers import normalizers

from benchmarks.harness import Verdict, conclude, print_table
from data_prep.examples import unit_examples
from data_prep.settings import BuildSettings
from data_prep.sources import find_files
from data_prep.tensorflow_setup import restrain_tensorflow
from data_prep.units import plan_units
from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command
from electra_tf.text.hugging_face import SPACES
from electra_tf.text.sentencepiece import SentencePieceTokenizer
from electra_tf.text.vocabulary import SPECIAL_TOKENS, SentencePieceVocabulary, Vocabulary
from electra_tf.weights.hugging_face.tokenizer import tokenizer_files

Ids = list[list[int]]

TIE = 1e-3  # difference of two sums of log probabilities that rounding may decide
_LINES_PER_CALL = 1000
_MAX_TOKENS = 4096  # of an example of the builder; a line may have several
_MARKS = "\u0334\u0316\u0301\u0345"  # of different classes, which determine the order of marks
_SHOWN = 5  # differing lines of an implementation
_TRANSFORMERS = """
import json, sys, transformers
tokenizer, lines = transformers.AutoTokenizer.from_pretrained(sys.argv[1]), json.load(open(sys.argv[2]))
ids = tokenizer(lines, add_special_tokens=False)["input_ids"] if lines else []
json.dump({"version": transformers.__version__, "ids": ids}, sys.stdout)
"""
_DROPPED_BY_BUILDER = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]")


def odd_lines(number: int, seed: int = 1) -> list[str]:
    """Lines of 3 to 40 random characters: all blocks of Unicode, marks, compatibility forms, Hangul's parts, spaces.

    They are the same for a version of Python, which brings its version of Unicode.
    """
    assigned = [
        chr(code) for code in range(0x20, 0x30000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co", "Cc")
    ]
    hangul = (range(0x1100, 0x1113), range(0x1161, 0x1176), range(0x11A8, 0x11C3))
    pools = {
        3: assigned,
        2: [each for each in assigned if unicodedata.category(each) == "Mn"],
        2.5: [each for each in assigned if unicodedata.decomposition(each).startswith("<")],
        1.5: list("\t\x0b\x0c\x85\xa0\u2581\u200b\u2028\u2029\u3000\u2003 "),
        4: list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        2.2: [chr(code) for code in range(0x3041, 0x3097)],
        1: [chr(code) for codes in hangul for code in codes],
    }  # by how often a character is of the pool
    source, lines = random.Random(seed), []
    while len(lines) < number:
        pools_of_line = source.choices(list(pools.values()), list(pools), k=source.randint(3, 40))
        line = "".join(map(source.choice, pools_of_line))
        lines += [line] if line.strip() else []
    return lines


def normalized(line: str) -> str:
    return unicodedata.normalize("NFKC", re.sub(f"[{SPACES}]", " ", line))


def young_characters(characters: Iterable[str]) -> set[str]:
    """Those that `tokenizers`, with the tables of Unicode 9, decomposes or orders among other marks otherwise."""
    of_tokenizers = normalizers.Sequence([normalizers.Replace("\u32ff", "令和"), normalizers.NFKC()])
    return {
        each
        for each in characters
        for text in (each, *(f"b{each}{mark}" for mark in _MARKS), *(f"b{mark}{each}" for mark in _MARKS))
        if of_tokenizers.normalize_str(text) != unicodedata.normalize("NFKC", text)
    }


def builder_ids(lines: Sequence[str], vocab_file: str, directory: Path) -> Ids:
    """The ids that the dataset builder writes for lines, each of them a document with at least one token."""
    (directory / "lines.txt").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    settings = BuildSettings(
        inputs=(f"text:{directory}/lines.txt",),
        vocab_file=vocab_file,
        output_dir=str(directory / "data"),
        max_seq_length=_MAX_TOKENS,
        min_document_characters=0,
        sentences="line",
        held_out_fraction=0.0,  # the lines of a split stay in order
        **SentencePieceVocabulary.text_settings._asdict(),
    )
    vocabulary = Vocabulary.load(vocab_file)
    special = {vocabulary.cls_id, vocabulary.sep_id}
    ids: Ids = []
    for unit in plan_units(find_files(settings.inputs), 2**22, settings):
        portions = unit_examples(unit, settings, vocabulary)
        for batch in (batch for portion in portions for batch in portion.batches.values()):
            for entry, (token_ids, _) in zip(batch.entries, batch.rows(), strict=True):
                if entry["is_first"]:
                    ids.append([])
                ids[-1].extend(token_id for token_id in token_ids.tolist() if token_id not in special)
    return ids


def saved_ids(tokenizer: SentencePieceTokenizer, lines: Sequence[str], directory: Path) -> Ids:
    """The ids of `tokenize` of a SavedModel, loaded again."""
    import tensorflow as tf

    module = tf.Module()
    module.tokenizer = tokenizer
    module.tokenize = tf.function(tokenizer.tokenize, [tf.TensorSpec([None], tf.string)], autograph=False)
    tf.saved_model.save(module, str(directory / "saved"))
    loaded = tf.saved_model.load(str(directory / "saved"))
    return [
        ids
        for begin in range(0, len(lines), _LINES_PER_CALL)
        for ids in loaded.tokenize(tf.constant(lines[begin : begin + _LINES_PER_CALL])).to_list()
    ]


def transformers_ids(python: str, folder: Path, lines: Sequence[str]) -> tuple[str, Ids]:
    """The version of transformers in an environment, and its ids."""
    lines_file = folder / "lines.json"
    lines_file.write_text(json.dumps(lines), encoding="utf-8")
    command = [python, "-c", _TRANSFORMERS, folder, lines_file]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    answer = json.loads(output)
    return answer["version"], answer["ids"]


def row_of(name: str, lines: Sequence[str], expected: Ids, ids: Ids, scores: Sequence[float]) -> list[str]:
    """The row of the table: the numbers of lines, of those whose ids differ, and of the ties among these.

    Prints some lines that differ and are no tie.
    """
    different = [rows for rows in zip(lines, expected, ids, strict=True) if rows[1] != rows[2]]
    other = [rows for rows in different if not _is_tie(rows[1], rows[2], scores)]
    for line, library_ids, other_ids in other[:_SHOWN]:
        print(f"{name}: {line!r}: {library_ids} and {other_ids}")
    return [name, str(len(lines)), str(len(different)), str(len(different) - len(other))]


def _is_tie(ids: list[int], other_ids: list[int], scores: Sequence[float]) -> bool:
    if all(score.is_integer() for score in scores):  # BPE's are ranks
        return False
    score, other_score = (sum(scores[index] for index in each) for each in (ids, other_ids))
    return abs(score - other_score) <= TIE


def compare(flags: argparse.Namespace) -> bool:
    """Prints the table. Returns: whether all implementations give the same ids, but for ties."""
    restrain_tensorflow()
    vocabulary = Vocabulary.load(flags.vocab_file)
    model = SentencePieceProcessor(model_proto=vocabulary.content)
    texts = [Path(path).read_text(encoding="utf-8").split("\n") for path in flags.input]
    texts.append(odd_lines(flags.num_odd_lines))
    lines = [line for text in texts for line in text if line and not any(token in line for token in SPECIAL_TOKENS)]
    tokenizer = SentencePieceTokenizer(vocabulary)
    scores = [model.get_score(index) for index in range(model.get_piece_size())]
    rows = []

    def add(name: str, given: Sequence[str], ids: Ids) -> None:
        rows.append(row_of(name, given, model.encode(list(map(normalized, given))), ids, scores))

    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        add("SavedModel", lines, saved_ids(tokenizer, lines, scratch))
        cleaned = [_DROPPED_BY_BUILDER.sub("", line).strip() for line in lines]
        with_tokens = [line for line in cleaned if model.encode(normalized(line))]
        add("builder", with_tokens, builder_ids(with_tokens, flags.vocab_file, scratch))
        for name, content in tokenizer_files(tokenizer, 512).items():
            (scratch / name).write_bytes(content)
        young = young_characters(set("".join(lines)))
        known = [line for line in lines if not young.intersection(line)]
        for python in (sys.executable, *flags.peers_python):
            version, ids = transformers_ids(python, scratch, known)
            add(f"transformers {version}", known, ids)
    print_table("ids, compared with sentencepiece", ("implementation", "lines", "different", "ties"), rows)
    differing = {name: int(num_different) - int(num_ties) for name, _, num_different, num_ties in rows}
    return conclude([Verdict(f"{name}: differing lines", count, 0, True) for name, count in differing.items()])


def main(arguments: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--vocab_file", required=True, help="a SentencePiece model of electra-tf build-vocab")
    parser.add_argument("--input", action="append", required=True, help="a text file, a text per line; repeatable")
    parser.add_argument("--num_odd_lines", type=int, default=0, help="lines of random Unicode to add (default: 0)")
    parser.add_argument("--peers_python", action="append", default=[], help="an interpreter with another transformers")
    flags = parser.parse_args(arguments)
    return run_command(lambda: compare(flags))


if __name__ == "__main__":
    sys.exit(main())
