"""Truecasing, a probe that needs no annotation: which words inside held-out sentences begin with a capital.

    python -m experiments.truecasing --data_dir=DATA --input='wikiextractor:wiki/*/*' --input='book:novels/*.txt' \\
        --output_dir=PROBE
    electra-tf finetune --task=tagging --train_file=PROBE/train.jsonl --validation_file=PROBE/dev.jsonl \\
        --init_from=RUN --output_dir=ft/truecasing --set data.max_seq_length=64

DATA is the data set that the encoders were trained on, and --input the text that it was built from. The documents are
read, cleaned, split and divided by the settings in its manifest, so the probe has exactly its held-out documents. The
command checks the numbers of documents.

Words come from the encoder's tokenizer, in lower case and without accents, so the files do not show capitals. A word
that began with a capital has the tag B-CAPITAL, any other O, so the F1 of spans is the F1 of capitalised words. The
first word of a sentence always has O, also after an opening quotation mark. Sentences with fewer than 5 or more than 40
words (punctuation marks count) are left out, and so are headings, in which at least half of the words with letters,
except the first word, have a capital.

A fifth of the documents are the dev split. Of each document at most 400 sentences are used, and at most 12,000 for
training and 3,000 for dev. All choices are drawn from the seed of the data set and the text of each document, so the
same data set and files give the same bytes. PROBE/truecasing.json holds the numbers of documents and sentences.
"""

import json
import os
import sys
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np

from data_prep.examples import SentenceSegmenter, document_hash, is_held_out, random_source
from data_prep.sources import SourceFile, find_files
from data_prep.units import plan_units, read_batches
from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError
from electra_tf.data.manifest import HELD_OUT_SPLIT, Manifest
from electra_tf.files import make_directory, names_in, write_atomically

CAPITAL, NO_CAPITAL = "B-CAPITAL", "O"
MIN_WORDS, MAX_WORDS = 5, 40
HEADING_FRACTION = 0.5  # of the words with letters that have a capital
MAX_DOCUMENT_SENTENCES = 400  # without a limit one novel would outweigh a hundred articles
MAX_SENTENCES = {"train": 12_000, "dev": 3_000}
DOCUMENTS_PER_DEV_DOCUMENT = 5

NOTE_FILE = "truecasing.json"
_UNIT_BYTES = 4 * 2**20


class Word(NamedTuple):
    """A normalized word in lower case, and whether it began with a capital letter."""

    text: str
    is_capitalised: bool


class HeldOutDocument(NamedTuple):
    """A held-out document: its random numbers, and all sentences with a word."""

    source: Random
    sentences: list[list[Word]]


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    add, source = parser.add_argument, "text that the data set was built from; repeatable"
    add("--data_dir", required=True, metavar="DATA", help="data set that the encoders were trained on")
    add("--input", required=True, action="append", dest="inputs", metavar="FORMAT:GLOB", help=source)
    add("--output_dir", required=True, metavar="PROBE", help="new directory for the probe's files")
    flags = parser.parse_args(argv)
    return run_command(lambda: write_probe(flags.data_dir, flags.inputs, flags.output_dir))


def write_probe(data_dir: str, inputs: Sequence[str], output_dir: str) -> None:
    """Writes `train.jsonl`, `dev.jsonl` and at the end `truecasing.json`.

    Raises: UserError: if `output_dir` is not empty, the data set keeps capitals or has no held-out split, or the inputs
        differ from the data set's.
    """
    manifest = Manifest.load(data_dir)
    if not manifest.lower_case:
        raise UserError(f"{data_dir} keeps capitals; give a data set that was built with --lower_case")
    if HELD_OUT_SPLIT not in manifest.splits:
        raise UserError(f"{data_dir} has no held-out split; build it with a higher --held_out_fraction")
    if names_in(output_dir):
        raise UserError(f"--output_dir={output_dir} is not empty; give a new directory")
    documents = divided(held_out_documents(manifest, find_files(inputs)))
    sentences = {split: chosen(documents[split], MAX_SENTENCES[split]) for split in documents}
    counts = {
        split: {"num_documents": len(documents[split]), "num_sentences": len(sentences[split])} for split in documents
    }
    make_directory(output_dir)
    for split, of_split in sentences.items():
        rows = ({"words": [word.text for word in words], "tags": tags_of(words)} for words in of_split)
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_atomically(os.path.join(output_dir, f"{split}.jsonl"), content.encode())
    settings = {"seed": manifest.seed, "held_out_fraction": manifest.held_out_fraction}
    text = json.dumps({**settings, **counts}, indent=1) + "\n"
    write_atomically(os.path.join(output_dir, NOTE_FILE), text.encode())
    print(text, end="")


def held_out_documents(manifest: Manifest, files: Sequence[SourceFile]) -> list[HeldOutDocument]:
    """The held-out documents of a data set, each text once.

    Raises: UserError: if the numbers of documents differ from the manifest's.
    """
    from data_prep.tensorflow_setup import restrain_tensorflow

    restrain_tensorflow()
    from electra_tf.text.normalization import BasicTokenizer

    tokenizer = BasicTokenizer(manifest.text_settings)
    segmenter = SentenceSegmenter(manifest.sentences, manifest.language)
    num_read, documents, num_copies = 0, {}, 0
    units = plan_units(files, _UNIT_BYTES, manifest)
    for read, counts in (batch for unit in units for batch in read_batches(unit, manifest)):
        num_read += counts.num_documents_read
        for document in read:
            digest = document_hash(manifest.seed, document.lines)
            if not is_held_out(digest, manifest.held_out_fraction):
                continue
            # The builder leaves out documents without a token.
            if sentences := words_of(segmenter.sentences(document), tokenizer):
                num_copies += digest in documents
                documents[digest] = HeldOutDocument(random_source(digest), sentences)
    num_held_out = len(documents) + (not manifest.drop_duplicates) * num_copies
    expected = (manifest.counts.num_documents_read, manifest.splits[HELD_OUT_SPLIT].num_documents)
    if (num_read, num_held_out) != expected:
        raise UserError(
            f"--input holds {num_read} documents, {num_held_out} of them held out; the data set's manifest has "
            f"{expected[0]} and {expected[1]}: the files or the code that reads them have changed; build it again"
        )
    return list(documents.values())


def words_of(lines: Sequence[str], tokenizer) -> list[list[Word]]:
    """The words of each line that has a word; `tokenizer` is a `BasicTokenizer` for lower case."""
    import tensorflow as tf

    words = tokenizer.words(tf.constant(lines))
    texts, lengths, rows, characters, _ = (values.numpy() for values in words)
    sentences: list[list[Word]] = [[] for _ in lines]
    begins = characters[np.cumsum(lengths) - lengths]  # of each word in its line
    for text, row, begin in zip(texts, rows, begins, strict=True):
        sentences[row].append(Word(text.decode(), lines[row][begin].isupper()))
    return [sentence for sentence in sentences if sentence]


def tags_of(sentence: Sequence[Word]) -> list[str]:
    """B-CAPITAL or O for each word. Words up to the first one with a letter or digit always have O."""
    first = next((i for i, word in enumerate(sentence) if word.text[0].isalnum()), 0)
    return [CAPITAL if word.is_capitalised and i > first else NO_CAPITAL for i, word in enumerate(sentence)]


def is_usable(sentence: Sequence[Word]) -> bool:
    """Whether a sentence has an accepted length and is no heading."""
    num_words = sum(word.text[0].isalpha() for word in sentence) - 1  # without the first word, whose tag is O
    num_capitalised = tags_of(sentence).count(CAPITAL)
    return MIN_WORDS <= len(sentence) <= MAX_WORDS and num_capitalised < HEADING_FRACTION * num_words


def divided(documents: Sequence[HeldOutDocument]) -> dict[str, list[HeldOutDocument]]:
    """The documents by split. Dev has those with the lowest random numbers."""
    drawn = sorted((document.source.random(), i) for i, document in enumerate(documents))
    ranked = [documents[i] for _, i in drawn]
    num_dev = -(-len(ranked) // DOCUMENTS_PER_DEV_DOCUMENT)
    return {"train": ranked[num_dev:], "dev": ranked[:num_dev]}


def chosen(documents: Sequence[HeldOutDocument], max_sentences: int) -> list[list[Word]]:
    """At most `max_sentences` usable sentences, chosen and ordered independently of the order of the documents."""
    drawn: list[tuple[float, list[Word]]] = []
    for document in documents:
        usable = [(document.source.random(), sentence) for sentence in document.sentences if is_usable(sentence)]
        drawn += sorted(usable)[:MAX_DOCUMENT_SENTENCES]
    return [sentence for _, sentence in sorted(drawn)[:max_sentences]]


if __name__ == "__main__":
    sys.exit(main())
