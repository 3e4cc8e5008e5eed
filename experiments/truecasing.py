"""A probe that needs no annotation: truecasing, the capitals inside the sentences of held-out documents.

    python -m experiments.truecasing --data_dir=DATA --input='wikiextractor:wiki/*/*' --input='book:novels/*.txt' \\
        --output_dir=PROBE
    python run_finetuning.py --task=tagging --train_file=PROBE/train.jsonl --validation_file=PROBE/dev.jsonl \\
        --init_from=RUN --output_dir=ft/truecasing --set data.max_seq_length=64

DATA is the data set that the encoders were trained on, --input what it was built from. The documents are read, cleaned,
split into sentences and divided as its manifest says, so the probe has its held-out documents and no other. That the
files are the same is checked by their formats, names and sizes, and by the numbers of documents.

Words are those of the encoder's own tokenizer, in lower case and without accents, so no capital can be read off the
files. A word that began with a capital letter has the tag B-CAPITAL, any other O, so the F1 of spans is that of
capitalised words. The first word of a sentence always has O, also behind an opening quotation mark: its capital says
nothing. Left out are sentences of fewer than 5 or more than 40 words (punctuation marks count), and headings: at least
half of their words with letters have a capital, the first word not counted.

A fifth of the documents are the dev split. Of each document at most 400 sentences are used, and at most 12,000 to train
and 3,000 for dev. All choices are draws from the seed of the data set and the text of each document; the same data set
and files give the same bytes. PROBE/truecasing.json says what was counted.
"""

import contextlib
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from random import Random
from typing import Any, NamedTuple

import numpy as np

from data_prep import storage
from data_prep.examples import document_hash, is_held_out, random_source
from data_prep.readers.documents import ReadCounts, clean_document
from data_prep.sentences import SentenceSplitter
from data_prep.source_files import SourceFile, find_files
from data_prep.work_units import plan_units, read_unit
from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError
from electra_tf.text.manifest import HELD_OUT_SPLIT, InputFile, Manifest

CAPITAL, NO_CAPITAL = "B-CAPITAL", "O"
MIN_WORDS, MAX_WORDS = 5, 40
HEADING_FRACTION = 0.5  # so many of the words with letters have a capital
MAX_DOCUMENT_SENTENCES = 400  # else a novel would outweigh a hundred articles
MAX_SENTENCES = {"train": 12_000, "dev": 3_000}
DOCUMENTS_PER_DEV_DOCUMENT = 5

NOTE_FILE = "truecasing.json"
_UNIT_BYTES = 4 * 2**20


class Word(NamedTuple):
    """A word as the tokenizer normalizes it, in lower case, and whether it began with a capital letter."""

    text: str
    is_capitalised: bool


@dataclass(frozen=True)
class HeldOutDocument:
    """A held-out document.

    Attributes:
        format: of its file, as --input names it.        source: of all random draws for it.
        sentences: all of them, none without a word.
    """

    format: str
    source: Random
    sentences: list[list[Word]]


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--data_dir", required=True, metavar="DATA", help="data set that the encoders were trained on")
    parser.add_argument(
        "--input",
        required=True,
        action="append",
        dest="inputs",
        metavar="FORMAT:GLOB",
        help="text that the data set was built from; repeatable",
    )
    parser.add_argument("--output_dir", required=True, metavar="PROBE", help="new directory for the probe's files")
    flags = parser.parse_args(argv)
    return run_command(lambda: write_probe(flags.data_dir, flags.inputs, flags.output_dir))


def write_probe(data_dir: str, inputs: Sequence[str], output_dir: str) -> None:
    """Writes `train.jsonl`, `dev.jsonl` and, last of all, `truecasing.json`.

    Raises: UserError: `output_dir` is not empty; the data set keeps capitals or holds no document out; the inputs are
        not the data set's; a split has no capital.
    """
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # it takes half the time to import
    manifest = Manifest.load(data_dir)
    if not manifest.lower_case:
        raise UserError(f"{data_dir} keeps capitals, which the probe asks for; give a data set built with --lower_case")
    if HELD_OUT_SPLIT not in manifest.splits:
        raise UserError(f"{data_dir} holds no document out; build it with a higher --held_out_fraction")
    with _writing(output_dir):
        if storage.names_in(output_dir):
            raise UserError(f"--output_dir={output_dir} is not empty; give a new directory")
    documents = divided(held_out_documents(manifest, matching_files(manifest, data_dir, inputs)))
    sentences = {split: chosen(documents[split], MAX_SENTENCES[split]) for split in documents}
    note = {split: counted(documents[split], sentences[split]) for split in documents}
    for split, counts in note.items():
        if not counts["capital_fraction"]:
            raise UserError(
                f"{counts['num_sentences']} sentences of {len(documents[split])} held-out documents are left for "
                f"{split}, and no word in them has a capital; build the data set with a higher --held_out_fraction, of "
                "text that has capitals"
            )
    with _writing(output_dir):
        storage.make_directory(output_dir)
        for split, of_split in sentences.items():
            rows = ({"words": [word.text for word in words], "tags": tags_of(words)} for words in of_split)
            content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            storage.write_bytes(os.path.join(output_dir, f"{split}.jsonl"), content.encode())
        settings = {"seed": manifest.seed, "held_out_fraction": manifest.held_out_fraction}
        text = json.dumps({**settings, **note}, indent=1) + "\n"
        storage.write_bytes(os.path.join(output_dir, NOTE_FILE), text.encode())
    print(text, end="")


@contextlib.contextmanager
def _writing(output_dir: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"--output_dir={output_dir} is no usable directory: {error.strerror or error}") from None


def matching_files(manifest: Manifest, data_dir: str, inputs: Sequence[str]) -> list[SourceFile]:
    """The files of the inputs. Raises: UserError: they are not those that the data set was built from."""
    files = find_files(inputs)
    given = Counter(InputFile(**{name: getattr(file, name) for name in InputFile.model_fields}) for file in files)
    expected = Counter(manifest.inputs)
    if given != expected:
        first = next(((given - expected) or (expected - given)).elements())
        raise UserError(
            f"--input gives {len(files)} files, {data_dir} was built from {len(manifest.inputs)}, and {first.format} "
            f"{first.name} of {first.num_bytes} bytes is one of {'--input' if given - expected else 'the data set'} "
            "alone; give the inputs of the build"
        )
    return files


def held_out_documents(manifest: Manifest, files: Sequence[SourceFile]) -> list[HeldOutDocument]:
    """The held-out documents of a data set, one of each text.

    Raises: UserError: the numbers of documents differ from the manifest's; see also `read_unit`.
    """
    from data_prep.tensorflow_setup import restrained_tensorflow

    restrained_tensorflow()
    from electra_tf.text.normalization import BasicTokenizer

    tokenizer = BasicTokenizer(manifest.lower_case, manifest.strip_accents)
    splitter = SentenceSplitter(manifest.sentences, manifest.language)
    counts, documents, num_copies = ReadCounts(), {}, 0
    for name, group in itertools.groupby(files, key=attrgetter("format")):
        for unit in plan_units(group, _UNIT_BYTES, manifest):
            for text in read_unit(unit, manifest, counts):
                if (document := clean_document(text, manifest, counts)) is None:
                    continue
                digest = document_hash(manifest.seed, document.lines)
                if is_held_out(digest, manifest.held_out_fraction):
                    sentences = words_of(splitter.sentences(document), tokenizer)
                    if sentences:  # the builder leaves out documents without a token
                        num_copies += digest in documents
                        documents[digest] = HeldOutDocument(name, random_source(digest), sentences)
    found = (counts.num_documents_read, len(documents) + (0 if manifest.drop_duplicates else num_copies))
    expected = (manifest.counts.num_documents_read, manifest.splits[HELD_OUT_SPLIT].num_documents)
    if found != expected:
        raise UserError(
            f"--input holds {found[0]} documents, of which {found[1]} are held out; the data set's manifest has "
            f"{expected[0]} and {expected[1]}: the files have changed, or the code that reads them; build the data set "
            "again"
        )
    return list(documents.values())


def words_of(lines: Sequence[str], tokenizer) -> list[list[Word]]:
    """The words of each line that has any; `tokenizer` is a `BasicTokenizer` that lowers letters."""
    import tensorflow as tf

    words = tokenizer.words_with_offsets(tf.constant(lines))
    texts, lengths, rows, characters, _ = (values.numpy() for values in words)
    sentences: list[list[Word]] = [[] for _ in lines]
    begins = characters[np.cumsum(lengths) - lengths]  # of each word in its line
    for text, row, begin in zip(texts, rows, begins, strict=True):
        sentences[row].append(Word(text.decode(), lines[row][begin].isupper()))
    return [sentence for sentence in sentences if sentence]


def tags_of(sentence: Sequence[Word]) -> list[str]:
    """B-CAPITAL or O for each word. What stands before the first letter or digit is an opening quotation mark, say."""
    first = next((i for i, word in enumerate(sentence) if word.text[0].isalnum()), 0)
    return [CAPITAL if word.is_capitalised and i > first else NO_CAPITAL for i, word in enumerate(sentence)]


def is_usable(sentence: Sequence[Word]) -> bool:
    """Whether a sentence has a usual length and is no heading."""
    num_words = sum(word.text[0].isalpha() for word in sentence) - 1  # without the first word, whose tag is O
    num_capitalised = tags_of(sentence).count(CAPITAL)
    return MIN_WORDS <= len(sentence) <= MAX_WORDS and num_capitalised < HEADING_FRACTION * num_words


def divided(documents: Sequence[HeldOutDocument]) -> dict[str, list[HeldOutDocument]]:
    """The documents of both splits: those with the lowest draws are dev's."""
    drawn = sorted((document.source.random(), i) for i, document in enumerate(documents))
    ranked = [documents[i] for _, i in drawn]
    num_dev = -(-len(ranked) // DOCUMENTS_PER_DEV_DOCUMENT)
    return {"train": ranked[num_dev:], "dev": ranked[:num_dev]}


def chosen(documents: Sequence[HeldOutDocument], max_sentences: int) -> list[list[Word]]:
    """At most so many usable sentences of a split, in an order that does not depend on the documents' order."""
    drawn: list[tuple[float, list[Word]]] = []
    for document in documents:
        usable = [(document.source.random(), sentence) for sentence in document.sentences if is_usable(sentence)]
        drawn += sorted(usable)[:MAX_DOCUMENT_SENTENCES]
    return [sentence for _, sentence in sorted(drawn)[:max_sentences]]


def counted(documents: Sequence[HeldOutDocument], sentences: Sequence[Sequence[Word]]) -> dict[str, Any]:
    """What the note says of a split; `capital_fraction` is the share of words with the tag B-CAPITAL."""
    tags = Counter(tag for sentence in sentences for tag in tags_of(sentence))
    return {
        "num_documents": dict(Counter(document.format for document in documents)),
        "num_sentences_read": sum(len(document.sentences) for document in documents),
        "num_sentences_usable": sum(is_usable(sentence) for document in documents for sentence in document.sentences),
        "num_sentences": len(sentences),
        "num_words": tags.total(),
        "capital_fraction": round(tags[CAPITAL] / max(1, tags.total()), 4),
    }


if __name__ == "__main__":
    sys.exit(main())
