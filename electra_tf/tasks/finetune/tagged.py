"""Sentences whose words have tags, from CoNLL columns or JSON lines, and the schemes in which tags write spans."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from electra_tf.config.errors import UserError
from electra_tf.data.table_files import json_objects, listed, read_text
from electra_tf.tasks.finetune.text_examples import ID_COLUMNS

# How tags say where a span of words begins and ends. "plain" tags are no spans, parts of speech say.
Scheme = Literal["iob1", "iob2", "bioes", "bilou", "plain"]
Span = tuple[str, int, int]  # its type, and its first and last word

_SPAN_TAG = re.compile(r"[BIESLU](-.+)?")
_NEW_DOCUMENT = "-DOCSTART-"
_PREFIXES = {"iob1": "BI", "iob2": "BI", "bioes": "BIES", "bilou": "BILU"}


@dataclass(frozen=True)
class TaggedExamples:
    """The sentences of a split, as they were read.

    Attributes:
        words: of each sentence, one or more.
        tags: one a word; None if not read.
        ids: what a sentence is called by: the file's own id, else its number from 0.
        source, lines: the file and, for each word, its line from 1.
    """

    words: list[list[str]]
    tags: list[list[str]] | None
    ids: list[str]
    source: str
    lines: list[list[int]]

    def __len__(self) -> int:
        return len(self.words)

    def where(self, sentence: int, word: int) -> str:
        """`file:line` of a word, for messages."""
        return f"{self.source}:{self.lines[sentence][word]}"


def read_tagged(path: str | os.PathLike) -> TaggedExamples:
    """Reads sentences with their tags.

    Args:
        path: `.jsonl` or `.json`: one object a line, with `words` or `tokens` and `tags` or `labels`. Any other ending:
            CoNLL columns, one word a line, the word first and its tag last, and an empty line after each sentence.
    Raises: UserError: unreadable or empty file, a line with too few columns, broken JSON, as many tags as there are no
        words, a word with a tab or a line break; each names the line. A file of another format.
    """
    path = os.fspath(path)
    return _read_json_lines(path, ("tags", "labels")) if _is_json(path) else _read_columns(path, has_tags=True)


def read_words(path: str | os.PathLike) -> TaggedExamples:
    """Reads sentences without tags, for prediction: files as of `read_tagged`, whose tags may be missing."""
    path = os.fspath(path)
    return _read_json_lines(path, ()) if _is_json(path) else _read_columns(path, has_tags=False)


def _is_json(path: str) -> bool:
    ending = os.path.splitext(path)[1].lower()
    if ending in (".csv", ".parquet"):
        raise UserError(
            f"{path} ends in {ending!r}; tagging reads .jsonl with words and tags, or CoNLL columns under any other "
            "ending: convert it"
        )
    return ending in (".jsonl", ".json")


def _read_columns(path: str, has_tags: bool) -> TaggedExamples:
    words, tags, lines = [], [], []
    width, first_line = 2 if has_tags else 1, 0
    at_beginning = True  # of a sentence
    for line, text in enumerate(read_text(path).split("\n"), start=1):
        # Other white space, such as a no-break space, may stand in a word.
        fields = re.split("\t" if "\t" in text else " +", text.strip(" \t\r"))
        if fields == [""] or fields[0] == _NEW_DOCUMENT:
            at_beginning = True
            continue
        if has_tags and not first_line and len(fields) >= 2:
            width, first_line = len(fields), line
        if has_tags and len(fields) != width:
            expected = f"{width} as on line {first_line}" if first_line else "a word and its tag"
            raise UserError(f"{path}:{line} has {len(fields)} columns, expected {expected}; correct the line")
        if at_beginning:
            for column in (words, tags, lines):
                column.append([])
            at_beginning = False
        _refuse_breaks(fields, f"{path}:{line}")
        words[-1].append(fields[0])
        tags[-1].append(fields[-1])
        lines[-1].append(line)
    if not words:
        raise UserError(f"{path} has no sentences; expected one word a line")
    return TaggedExamples(words, tags if has_tags else None, list(map(str, range(len(words)))), path, lines)


def _read_json_lines(path: str, tag_names: Sequence[str]) -> TaggedExamples:
    words, tags, ids, lines = [], [], [], []
    for number, (line, value) in enumerate(json_objects(path)):
        sentence = _texts(value, ("words", "tokens"), f"{path}:{line}")
        if not sentence:
            raise UserError(f"{path}:{line} has no words; remove the line")
        if tag_names:
            tags.append(_texts(value, tag_names, f"{path}:{line}"))
            if len(tags[-1]) != len(sentence):
                raise UserError(f"{path}:{line} has {len(sentence)} words but {len(tags[-1])} tags; give each word one")
        words.append(sentence)
        ids.append(str(next((value[name] for name in ID_COLUMNS if name in value), number)))
        lines.append([line] * len(sentence))
    if not words:
        raise UserError(f"{path} has no sentences; expected one JSON object a line")
    return TaggedExamples(words, tags if tag_names else None, ids, path, lines)


def _texts(value: dict[str, Any], names: Sequence[str], where: str) -> list[str]:
    name = next((name for name in names if name in value), None)
    if name is None:
        raise UserError(f"{where} lacks {names[0]!r} or {names[1]!r}, it has {', '.join(value) or 'nothing'}; add it")
    texts = value[name]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UserError(f"{where} has {name!r} that are no list of texts; expected one text a word")
    _refuse_breaks(texts, where)
    return texts


def _refuse_breaks(texts: Sequence[str], where: str) -> None:
    """Predictions are written in columns."""
    for text in texts:
        if re.search("[\t\r\n]", text):
            raise UserError(f"{where} has {text!r}, expected a word or tag without tabs and line breaks; remove them")


def scheme_of(examples: TaggedExamples) -> Scheme:
    """The scheme that the tags of a file are written in.

    Raises: UserError: some tags are of spans and others are not.
    """
    tags = {tag for sentence in examples.tags for tag in sentence} - {"O"}
    others = {tag for tag in tags if not _SPAN_TAG.fullmatch(tag)}
    spans = {tag for tag in tags - others if "-" in tag}
    if others and spans:
        _require_tags_of_spans(examples, f"as {min(spans)!r} is one of a span")
    if others or not tags:
        return "plain"
    prefixes = {tag[0] for tag in tags}
    if prefixes & {"L", "U"}:
        return "bilou"
    if prefixes & {"E", "S"}:
        return "bioes"
    begins_a_span = any(
        tag[0] == "I" and before[1:] != tag[1:]
        for sentence in examples.tags
        for before, tag in zip(["O", *sentence], sentence, strict=False)
    )
    return "iob1" if begins_a_span else "iob2"


def _require_tags_of_spans(examples: TaggedExamples, reason: str) -> None:
    for sentence, tags in enumerate(examples.tags):
        for word, tag in enumerate(tags):
            if tag != "O" and not _SPAN_TAG.fullmatch(tag):
                raise UserError(
                    f"{examples.where(sentence, word)} has the tag {tag!r}, expected O, or one of B, I, E, S, L, U "
                    f"alone or before -TYPE, {reason}; correct it"
                )


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The spans that tags of any scheme but "plain" write, by the rules of conlleval.

    A span begins at B, S or U, and at any tag after O, after another type, or after E, S, L or U; so IOB1 and IOB2 need
    not be told apart, and each sequence that a model may predict has its spans.
    """
    from seqeval.metrics.sequence_labeling import get_entities  # scikit-learn comes with it, which takes a second

    return get_entities([{"L": "E", "U": "S"}.get(tag[0], tag[0]) + tag[1:] for tag in tags])


def in_scheme(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """The tags of a sentence in another scheme; in "plain" as they are."""
    if scheme == "plain":
        return list(tags)
    written = ["O"] * len(tags)
    for kind, first, last in spans_of(tags):
        ending = "" if kind == "_" else f"-{kind}"  # seqeval's name for the type of a bare B
        prefixes = _prefixes(last - first + 1, scheme)
        if scheme == "iob1" and (first == 0 or written[first - 1][1:] != ending):
            prefixes = "I" * len(prefixes)
        written[first : last + 1] = [prefix + ending for prefix in prefixes]
    return written


def _prefixes(length: int, scheme: Scheme) -> str:
    if scheme in ("iob1", "iob2"):
        return "B" + "I" * (length - 1)
    begin, inside, end, single = _PREFIXES[scheme]
    return single if length == 1 else begin + inside * (length - 2) + end


def tag_labels(examples: TaggedExamples, scheme: Scheme) -> tuple[str, ...]:
    """The tags to learn, sorted: all that the scheme has for the types of spans in a training split.

    So a type that only single words have in training may have long spans in another file.
    Raises: UserError: all words have the same tag.
    """
    tags = {tag for sentence in examples.tags for tag in sentence}
    if len(tags) < 2:
        raise UserError(f"{examples.source} has the tag {min(tags)!r} at each word; training needs two or more")
    if scheme == "plain":
        return tuple(sorted(tags))
    endings = {tag[1:] for tag in tags - {"O"}}
    return tuple(sorted({"O", *(prefix + ending for prefix in _PREFIXES[scheme] for ending in endings)}))


def tag_targets(examples: TaggedExamples, scheme: Scheme, labels: Sequence[str]) -> list[list[int]]:
    """The number of each word's tag, written in a scheme.

    Raises: UserError: a tag that is not among `labels`, or is no tag of a span in a scheme of spans.
    """
    if scheme != "plain":
        _require_tags_of_spans(examples, "as in the training file")
    number_of = {label: number for number, label in enumerate(labels)}
    targets = []
    for sentence, tags in enumerate(examples.tags):
        written = in_scheme(tags, scheme)
        for word, tag in enumerate(written):
            if tag not in number_of:
                raise UserError(
                    f"{examples.where(sentence, word)} has the tag {tags[word]!r}, {scheme} {tag!r}, expected one of "
                    f"the training file's: {listed(labels)}"
                )
        targets.append([number_of[tag] for tag in written])
    return targets
