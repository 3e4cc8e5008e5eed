"""Sentences with a tag for each word, from CoNLL columns or tables with lists, and the tag schemes of spans."""

import functools
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from electra_tf.config.errors import UserError
from electra_tf.data.tables import Table, is_index, read_table, read_text
from electra_tf.tasks.finetune.config import TagScheme
from electra_tf.tasks.finetune.text_examples import ids_of, label_ids

_WORD_NAMES, _TAG_NAMES = ("words", "tokens"), ("tags", "labels", "ner_tags")
_NEW_DOCUMENT = "-DOCSTART-"
_SEQEVAL_NAMES = {"bioes": "IOBES"}  # the other schemes have their own name there, in upper case


@dataclass(frozen=True)
class TaggedExamples:
    """The sentences of a split.

    Attributes:
        words: the words of each sentence, at least one.
        tags: a tag for each word; None for untagged text.
        ids: the names of the sentences: the file's own ids, or else numbers from 0.
        source, rows: the file, and the line (CoNLL) or row (tables) of each word in it, from 1.
    """

    words: list[list[str]]
    tags: list[list[str]] | None
    ids: list[str]
    source: str
    rows: list[list[int]]

    def __len__(self) -> int:
        return len(self.words)

    def where(self, sentence: int, word: int) -> str:
        """`file:line` of a word, for messages."""
        return f"{self.source}:{self.rows[sentence][word]}"


def read_tagged(path: str | os.PathLike) -> TaggedExamples:
    """Reads sentences with their tags.

    Args:
        path: `.jsonl`, `.json`, `.parquet` or `.arrow`: a sentence a row, with lists `words` or `tokens` and `tags`,
            `labels` or `ner_tags`. Any other ending: CoNLL columns, one word a line, the word first and its tag last,
            and an empty line after each sentence.
    Raises: UserError: the file cannot be read, is `.csv`, or has no sentences; lines differ in their number of columns,
        or the first column counts the words; the words and the tags of a sentence differ in number; a word or tag has
        a tab or a line break.
    """
    if _is_table(path):
        return _sentences_of(read_table(path), _TAG_NAMES)
    return _read_columns(os.fspath(path), has_tags=True)


def read_words(path: str | os.PathLike, labels: Sequence[str]) -> TaggedExamples:
    """Reads the sentences of a file for `read_tagged`, whose tags may be missing.

    Args:
        labels: the known tags. The last of several CoNLL columns holds the tags if it has any of these.
    Raises: UserError: see `read_tagged`.
    """
    if _is_table(path):
        table = read_table(path)
        tags = (tags for name in _TAG_NAMES if name in table.columns for tags in table.labels(name))
        has_tags = any(isinstance(tag, str) for each in tags if isinstance(each, list) for tag in each)  # no ids
        return _sentences_of(table, _TAG_NAMES if has_tags else ())
    has_tags = any(len(fields) > 1 and fields[-1] in labels for fields in _lines(path) if fields[0] != _NEW_DOCUMENT)
    return _read_columns(os.fspath(path), has_tags)


def _is_table(path: str | os.PathLike) -> bool:
    ending = os.path.splitext(path)[1].lower()
    if ending == ".csv" and not isinstance(path, Table):
        raise UserError(
            f"{path} has the extension {ending!r}, expected CoNLL columns (such as .conll: one word a line, its tag "
            "last), or .jsonl or .parquet with lists `words` and `tags`; convert it"
        )
    return isinstance(path, Table) or ending in (".jsonl", ".json", ".parquet", ".arrow")


def _read_columns(path: str, has_tags: bool) -> TaggedExamples:
    words, tags, rows = [], [], []
    width = 0  # the number of columns on the first line
    is_inside = False
    for line, fields in enumerate(_lines(path), start=1):
        if fields == [""] or fields[0] == _NEW_DOCUMENT:
            is_inside = False
            continue
        width = width or len(fields)
        least = 2 if has_tags else 1
        if len(fields) != width or width < least:
            raise UserError(
                f"{path}:{line} has {len(fields)} columns, expected {max(width, least)}: one word a line"
                + ", its tag last" * has_tags
            )
        if not is_inside:
            for column in (words, tags, rows):
                column.append([])
            is_inside = True
        _refuse_breaks(fields, f"{path}:{line}")
        words[-1].append(fields[0])
        tags[-1].append(fields[-1])
        rows[-1].append(line)
    if not words:
        raise UserError(f"{path} has no sentences; expected one word a line")
    if width > 2:
        _refuse_other_columns(words, path, rows[0][0], is_conll_u=width == 10)
    return TaggedExamples(words, tags if has_tags else None, list(map(str, range(len(words)))), path, rows)


def _lines(path: str | os.PathLike) -> Iterator[list[str]]:
    """The columns of each line, [""] for an empty one and for a comment of CoNLL-U."""
    lines = read_text(path).split("\n")
    may_have_comments = all("\t" in line for line in lines if line.strip() and not line.startswith("#"))
    for line in lines:
        is_comment = may_have_comments and line.startswith("#") and "\t" not in line
        # A no-break space, for example, may be part of a word.
        yield [""] if is_comment else re.split("\t" if "\t" in line else " +", line.strip(" \t\r"))


def _refuse_other_columns(sentences: Sequence[Sequence[str]], path: str, line: int, is_conll_u: bool) -> None:
    """Refuses numbers of words, as in CoNLL-U, where 1-2 and 1.1 are no words of their own, and of sentences."""
    numbers = [[word for word in words if not re.fullmatch(r"\d+[-.]\d+", word)] for words in sentences]
    everything = [*itertools.chain(*numbers)]
    counts = is_index(everything) or (len(everything) > 2 and all(is_index(each, 0) for each in numbers))
    if counts or (len(everything) > len(sentences) + 2 and all(len(set(words)) == 1 for words in sentences)):
        advice = f"grep -Ev '^#|^[0-9]+[-.]' {path} | cut -f2,4 > words_and_tags.conll"
        raise UserError(
            f"{path}:{line}: the first column has no words; expected the word first and its tag last; choose columns"
            + (f", for CoNLL-U with: {advice}" if is_conll_u else "")
        )


def _sentences_of(table: Table, tag_names: Sequence[str]) -> TaggedExamples:
    words = _lists_of_texts(table, _WORD_NAMES)
    tags = _lists_of_texts(table, tag_names) if tag_names else None
    for row, sentence in enumerate(words):
        if not sentence:
            raise UserError(f"{table.where(row)} has no words")
        if tags is not None and len(tags[row]) != len(sentence):
            raise UserError(
                f"{table.where(row)} has {len(sentence)} words and {len(tags[row])} tags; give one for each"
            )
    rows = [[number] * len(sentence) for number, sentence in zip(table.rows, words, strict=True)]
    return TaggedExamples(words, tags, ids_of(table), table.source, rows)


def _lists_of_texts(table: Table, names: Sequence[str]) -> list[list[str]]:
    name = next((name for name in names if name in table.columns), names[0])
    values = table.labels(name)
    for row, value in enumerate(values):
        if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
            raise UserError(
                f"{table.where(row)} has {value!r:.80} as {name!r}, expected a list of texts, none of them empty"
            )
        _refuse_breaks(value, table.where(row))
    return values


def _refuse_breaks(texts: Sequence[Any], where: str) -> None:
    """Refuses tabs and line breaks, because predictions are written in columns."""
    for text in texts:
        if re.search("[\t\r\n]", text):
            raise UserError(f"{where} has {text!r}, expected a word or tag without tabs and line breaks")


def tag_labels(examples: TaggedExamples, scheme: TagScheme) -> tuple[str, ...]:
    """Returns the tags to learn, sorted. In a scheme of spans, each type in the training split has all prefixes.

    For example, B-PER in training gives B-PER and I-PER, so I-PER is known in the dev set.

    Raises: UserError: all words have the same tag, or a tag does not belong to the scheme.
    """
    tags = {tag for sentence in examples.tags for tag in sentence}
    if len(tags) < 2:
        raise UserError(f"{examples.source} has only the tag {min(tags)!r}; training needs two or more")
    if scheme == "plain":
        return tuple(sorted(tags))
    for sentence, words in enumerate(examples.tags):
        for word, tag in enumerate(words):
            if not fits_scheme(tag, scheme):
                raise UserError(
                    f"{examples.where(sentence, word)} has the tag {tag!r}, which is not in task.scheme {scheme}; give"
                    " the file's scheme, such as --set task.scheme=bioes, or plain for tags without spans"
                )
    endings = {tag[1:] for tag in tags - {"O"}}
    return tuple(sorted({"O", *(prefix + ending for prefix in _prefixes(scheme) for ending in endings)}))


def fits_scheme(tag: str, scheme: TagScheme) -> bool:
    """Returns True if a tag belongs to a scheme. All tags belong to `plain`."""
    return scheme == "plain" or re.fullmatch(f"O|[{_prefixes(scheme)}](-.+)?", tag) is not None


@functools.cache
def _prefixes(scheme: TagScheme) -> str:
    """The prefixes of a scheme's tags, such as "BI" for B-PER and I-PER."""
    from seqeval import scheme as schemes

    allowed = getattr(schemes, _SEQEVAL_NAMES.get(scheme, scheme.upper())).allowed_prefix
    return "".join(letter for letter in "BIESLU" if schemes.Prefix[letter] in allowed)


def tag_targets(examples: TaggedExamples, labels: Sequence[str]) -> list[list[int]]:
    """Returns the label id of each word's tag. Raises: UserError: a tag is not in `labels`."""
    return [
        label_ids(enumerate(tags), labels, functools.partial(examples.where, sentence), "tag")
        for sentence, tags in enumerate(examples.tags)
    ]
