"""Questions with several choices: SWAG, RACE, COPA or a user's own, recognised by the columns of the file."""

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from electra_tf.config.errors import UserError, list_briefly
from electra_tf.data.tables import Table, read_table
from electra_tf.tasks.finetune.text_examples import has_labels, ids_of

# The columns by which a data set is recognised.
_LAYOUTS = {
    "SWAG": ("sent1", "sent2", "ending0"),
    "COPA": ("premise", "question", "choice1", "choice2"),
    "RACE": ("article", "options"),
    "your own": ("context", "choices"),
}
# COPA states only which of the two it asks for.
_COPA_QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
_BLANK = re.compile(r"(?<!\w)_{1,2}(?!\w)|_{3,}")  # not part of a name


@dataclass(frozen=True)
class ChoiceExamples:
    """The N examples of a split.

    Attributes:
        contexts: N texts.
        choices: for each example one text or more: each choice, with the question before it or around it.
        labels: the index of the right choice of each example; None for unlabelled examples.
        ids: the names of the examples: the file's own ids, or else numbers from 0.
        source, rows: the file, and the row of each example in it, see `electra_tf.data.tables.Table`.
    """

    contexts: list[str]
    choices: list[list[str]]
    labels: list[int] | None
    ids: list[str]
    source: str
    rows: Sequence[int]

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, index: int) -> str:
        """`file:row` of an example, for messages."""
        return f"{self.source}:{self.rows[index]}"


def read_choices(path: str | os.PathLike, may_lack_labels: bool = False) -> ChoiceExamples:
    """Reads examples of multiple choice from a file of `electra_tf.data.tables.read_table`.

    The context and the choices of each data set are:
        SWAG (sent1, sent2, ending0, ending1, ..., label): sent1 | sent2 ending
        RACE (article, question, options, answer A to D; or questions, options and answers, lists of an article's):
            article | question option; an option replaces the blank `_` of its question
        COPA (premise, question, choice1, choice2, label): premise | the question, cause or effect, in words, choice
        your own (context, choices, label, and optionally question): as RACE; label is the index of a choice

    Args:
        may_lack_labels: True to read no labels if the column is missing or empty, or has -1 everywhere.
    Raises: UserError: the file cannot be read or has other columns; a text is missing or of another type; a label is
        not the index of a choice.
    Source: run_swag.py of transformers; its reader of RACE in version 2.
    """
    table = read_table(path)
    layout = next((name for name, columns in _LAYOUTS.items() if table.columns.keys() >= set(columns)), None)
    if layout is None:
        expected = "; ".join(f"{name}: {', '.join(columns)}" for name, columns in _LAYOUTS.items())
        raise UserError(f"{table.source} has the columns {list_briefly(table.columns)}, expected those of {expected}")
    if layout == "RACE" and "questions" in table.columns:
        table = _one_question_a_row(table)
    label_column = "answer" if layout == "RACE" else "label"
    is_labelled = not may_lack_labels or has_labels(table, label_column)
    given = table.column(label_column) if is_labelled else itertools.repeat(None)
    contexts, choices, labels = [], [], []
    for row, (cells, label) in enumerate(zip(_rows(table), given, strict=False)):
        context, texts = _context_and_choices(layout, cells, table.where(row))
        contexts.append(context)
        choices.append(texts)
        if is_labelled:
            labels.append(_index(label, len(texts), table.where(row)))
    if not contexts:
        raise UserError(f"{table.source} has no questions; expected at least one")
    if is_labelled and all(len(texts) == 1 for texts in choices):
        raise UserError(f"{table.source} has one choice for each question; expected two or more")
    return ChoiceExamples(contexts, choices, labels if is_labelled else None, ids_of(table), table.source, table.rows)


def _rows(table: Table) -> Iterator[dict[str, Any]]:
    for values in zip(*table.columns.values(), strict=True):
        yield dict(zip(table.columns, values, strict=True))


def _one_question_a_row(table: Table) -> Table:
    """The table of RACE's own files, which have an article in a row, with a row for each question."""
    columns: dict[str, list] = {name: [] for name in ("article", "question", "options", "answer", "id")}
    if "answers" not in table.columns:
        del columns["answer"]
    rows, ids = [], ids_of(table)
    for row, cells in enumerate(_rows(table)):
        lists = [cells[name] for name in ("questions", "options", "answers") if name in cells]
        if not all(isinstance(each, list) and len(each) == len(lists[0]) for each in lists):
            raise UserError(f"{table.where(row)}: questions, options and answers are not lists of one length")
        for number, values in enumerate(zip(*lists, strict=True)):
            for name, value in zip(columns, (cells["article"], *values, f"{ids[row]}-{number}"), strict=True):
                columns[name].append(value)
            rows.append(table.rows[row])
    return Table(table.source, columns, rows)


def _context_and_choices(layout: str, cells: Mapping[str, Any], where: str) -> tuple[str, list[str]]:
    if layout == "SWAG":
        names = itertools.takewhile(cells.__contains__, (f"ending{number}" for number in itertools.count()))
        context, question, choices = cells["sent1"], cells["sent2"], [cells[name] for name in names]
    elif layout == "COPA":
        context, question, choices = cells["premise"], cells["question"], [cells["choice1"], cells["choice2"]]
        if str(question) not in _COPA_QUESTIONS:
            raise UserError(f"{where} has the question {question!r:.80}, expected cause or effect")
        question = _COPA_QUESTIONS[question]
    else:
        names = ("article", "options") if layout == "RACE" else ("context", "choices")
        context, choices, question = cells[names[0]], cells[names[1]], cells.get("question")
    for name, value in (("context", context), ("question", "" if question is None else question)):
        if not isinstance(value, str):
            raise UserError(f"{where} has {value!r:.80} as its {name}, expected a text")
    if not isinstance(choices, list) or not choices:
        raise UserError(f"{where} has {choices!r:.80} as its choices, expected a list of texts")
    for number, choice in enumerate(choices):
        if not isinstance(choice, str) or not choice.strip():
            raise UserError(f"{where} has {choice!r:.80} as choice {number}, expected a text; choices count from 0")
    if question and layout != "SWAG" and _BLANK.search(question):
        return context, [_BLANK.sub(lambda _, choice=choice: choice, question) for choice in choices]
    return context, [f"{question} {choice}" if question else choice for choice in choices]


def _index(label: Any, num_choices: int, where: str) -> int:
    """The index of the right choice, from a number or a letter."""
    is_letter = isinstance(label, str) and len(label) == 1 and label.isalpha()
    try:
        index = ord(label) - ord("A") if is_letter else float(label)
    except (TypeError, ValueError):
        index = -1
    if index not in range(num_choices):
        last = num_choices - 1
        raise UserError(
            f"{where} has the label {label!r:.80}, expected the index of a choice, 0 to {last}, or a letter to "
            f"{chr(ord('A') + last)}"
        )
    return int(index)
