"""Sentences with a tag for each word from files: CoNLL columns as they are published, and tables."""

import functools
import itertools
import logging
import os
import re
import statistics
from collections.abc import Sequence

from electra_tf.config.errors import UserError
from electra_tf.data.tables import Table, read_table, read_text
from electra_tf.tasks.finetune.examples import DataFile, Examples, ids_of

logger = logging.getLogger(__name__)

_WORD_NAMES, _TAG_NAMES = ("words", "tokens"), ("tags", "labels", "ner_tags")
_NEW_DOCUMENT, _HEADER = "-DOCSTART-", ("word", "words", "token", "tokens", "form")
_NUMBER = re.compile(r"\d+([-.]\d+)?")  # of a word in CoNLL-U
_SPAN_TAG = re.compile("O|[BIESLU]-.+")
_BREAK = re.compile("[\t\r\n]")  # refused, because predictions are written in columns
_LANGUAGE = re.compile("^[a-z]{2,3}(-[a-z]+)*:")


def read_tagged(path: DataFile, known: Sequence[str] | None = None) -> Examples:
    """Reads sentences with their tags.

    Args:
        path: `.jsonl`, `.json`, `.parquet` or `.arrow`: a sentence a row, with lists `words` or `tokens` and `tags`,
            `labels` or `ner_tags`. Any other ending: CoNLL columns, one word a line, the word first and its tag last,
            and an empty line after each sentence.
        known: the tags of a model, for sentences to predict, whose tags may be missing: the last of several CoNLL
            columns holds tags if it has any of these. None: each word must have a tag.
    Raises: UserError: the file cannot be read, has other columns or lists of different lengths, or numbers the words.
    """
    if isinstance(path, Table) or os.fspath(path).lower().endswith((".jsonl", ".json", ".parquet", ".arrow")):
        table = read_table(path)
        values = (value for name in _TAG_NAMES if name in table.columns for value in table.labels(name))
        are_names = (isinstance(tag, str) for each in values if isinstance(each, list) for tag in each)  # no ids
        words = _lists_of_texts(table, _WORD_NAMES)
        tags = _lists_of_texts(table, _TAG_NAMES, words) if known is None or any(are_names) else None
        rows = [[number] * len(sentence) for number, sentence in zip(table.rows, words, strict=True)]
        return Examples((_without_language(words, table.source),), tags, ids_of(table), table.source, rows)
    return _read_columns(os.fspath(path), known)


def _read_columns(path: str, known: Sequence[str] | None) -> Examples:
    table, width = _rows_of(path, known or ())
    found, word, tag = list(filter(None, table)), 0, -1
    if not found:
        raise UserError(f"{path} has no examples; expected a word and its tag in each line")
    is_numbered = all(_NUMBER.fullmatch(fields[0]) for fields in found)
    if width > 2 and is_numbered:
        if width != 4 or not all(_SPAN_TAG.fullmatch(value) for fields in found for value in fields[2:]):
            raise UserError(f"{path}: the first column numbers the words; expected the word first and its tag last")
        word, tag = 1, 2
        logger.info("%s: the words are in column 2, their tags in 3 (outer spans); 1 and 4 are left out", path)
    has_tags = known is None or any(len(fields) == width > 1 and fields[tag] in known for fields in found)
    word = 1 if is_numbered and width == 2 and not has_tags else word  # GermEval's without tags
    least = 2 if has_tags else 1
    for line, fields in enumerate(table, start=1):
        if fields and (len(fields) != width or width < least or any(map(_BREAK.search, fields))):
            columns_expected = f"{max(width, least)}: one word a line{', its tag last' * has_tags}, without line breaks"
            raise UserError(f"{path}:{line} has {len(fields)} columns, expected {columns_expected}")
    groups = itertools.groupby(enumerate(table, start=1), key=lambda line: bool(line[1]))
    sentences = [list(lines) for are_words, lines in groups if are_words]
    words = [[fields[word] or " " for _, fields in lines] for lines in sentences]
    tags = [[fields[tag] for _, fields in lines] for lines in sentences] if has_tags else None
    rows = [[line for line, _ in lines] for lines in sentences]
    return Examples((_without_language(words, path),), tags, list(map(str, range(len(words)))), path, rows)


def _rows_of(path: str, known: Sequence[str]) -> tuple[list[list[str]], int]:
    """The columns of each line, none for an empty line or a comment; and the number of columns in most lines.

    A line that begins with # is a comment if it has another number of columns, as in CoNLL-U, GermEval and MultiCoNER;
    or, as in KLUE, if it stands before a sentence with # or ## and its last column is no tag. The latter holds if there
    are comments of the first kind, or before most sentences.

    Args: known: tags of the model.
    Raises: UserError: the first line names the columns.
    """
    lines = [line.rstrip(" \t\r") for line in read_text(path).split("\n")]
    plain = [line for line in lines if line and not line.startswith(("#", _NEW_DOCUMENT))] or list(filter(None, lines))
    has_tabs = 2 * sum("\t" in line for line in plain) > len(plain)

    @functools.cache  # each line is looked at several times
    def columns(line: str) -> list[str]:
        # A no-break space, for example, may be part of a word.
        return [each.strip(" ") for each in line.split("\t")] if has_tabs else re.split(" +", line.strip(" "))

    if not plain:
        return [], 0
    width = statistics.mode(len(columns(line)) for line in plain)
    within = [line for before, line in itertools.pairwise(lines) if before[:1] not in ("", "#") and line[:1] == "#"]
    first, *tags = (columns(line)[-1] for line in [*plain, *within])
    are_names = columns(plain[0])[0].lower() in _HEADER and first not in (*tags, *known)
    if width > 1 and are_names and not _SPAN_TAG.fullmatch(first):
        raise UserError(f"{path} begins with {plain[0]!r:.80}, names of columns; remove this line, or give .jsonl")
    tags_seen = {first, *tags, *known, "#"}  # the last is the Penn Treebank's tag of the word #
    begins = [line for before, line in itertools.pairwise(["", *lines]) if line and not before]
    num_marked = sum(columns(line)[0] == "#" or line.startswith("##") for line in begins)
    num_sentences = sum(not line.startswith(_NEW_DOCUMENT) for line in begins)
    has_comments = any(line.startswith("#") and len(columns(line)) != width for line in lines)
    are_marked = width > 1 and (has_comments or 2 * num_marked > num_sentences)
    rows: list[list[str]] = []
    for line in lines:
        fields = columns(line)
        if not has_tabs and line.startswith(" ") and len(fields) == width - 1:
            fields = ["", *fields]  # the word is a space
        is_mark = are_marked and (fields[0] == "#" or line.startswith("##")) and not (rows and rows[-1])
        is_tag = fields[-1] in tags_seen or _SPAN_TAG.fullmatch(fields[-1])
        is_comment = line.startswith("#") and (len(fields) != width or (is_mark and not is_tag))
        rows.append([] if not line or is_comment or fields[0] == _NEW_DOCUMENT else fields)
    return rows, width


def _without_language(sentences: list[list[str]], source: str) -> list[list[str]]:
    """The words without the code of the language that PAN-X has before each: `tr:Ankara`."""
    if not all(map(_LANGUAGE.match, itertools.chain(*sentences))):
        return sentences
    logger.info("%s: the code of a language before every word, such as %.20s, is left out", source, sentences[0][0])
    return [[_LANGUAGE.sub("", word, count=1) or " " for word in words] for words in sentences]


def _lists_of_texts(table: Table, names: Sequence[str], beside: list[list[str]] | None = None) -> list[list[str]]:
    """A column of lists of words or tags. Args: beside: lists of the same lengths."""
    name = next((name for name in names if name in table.columns), names[0])
    values = table.labels(name)
    for row, value in enumerate(values):
        texts = value if isinstance(value, list) else []
        are_texts = all(isinstance(text, str) and text and not _BREAK.search(text) for text in texts)
        if not (texts and are_texts and (beside is None or len(texts) == len(beside[row]))):
            raise UserError(
                f"{table.where(row)} has {value!r:.80} as {name!r}, expected a list of texts, one for each word; none "
                "is empty or has a tab or line break"
            )
    return values
