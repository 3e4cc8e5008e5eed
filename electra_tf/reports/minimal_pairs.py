"""Minimal pairs: in how many pairs of sentences a model scores the acceptable one higher.

Source: Warstadt et al. 2020, "BLiMP: The Benchmark of Linguistic Minimal Pairs for English", whose columns are read.
"""

import json
import math
import os
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from electra_tf.config.errors import UserError
from electra_tf.data.tables import markdown_table, read_table
from electra_tf.files import is_directory, names_in
from electra_tf.reports.sentence_scores import SentenceScorer

_SENTENCES = ("sentence_good", "sentence_bad")
_GROUPINGS = ("field", "linguistics_term", "UID")  # columns, from coarse to fine
_QUANTILE = 1.96  # of the normal distribution, for two-sided intervals of 95 %


@dataclass(frozen=True)
class MinimalPairs:
    """N pairs of sentences.

    Attributes:
        sentences: each pair, the acceptable sentence first.
        places: FILE:ROW of each pair, for messages and records.
        groups: by column, the value of each pair, None without one. A pair without a UID has its file as UID.
    """

    sentences: list[tuple[str, str]]
    places: list[str]
    groups: dict[str, list[str | None]]


class Accuracy(NamedTuple):
    """The share of pairs whose acceptable sentence has the higher score; a tie counts half.

    Attributes:
        lowest, highest: Wilson's 95 % interval of a binomial share.
    """

    pairs: int
    ties: int
    accuracy: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, scores: npt.NDArray[np.float64]) -> "Accuracy":
        """The accuracy of N pairs, N at least 1. `scores` is [N, 2], the acceptable sentence's first."""
        count, ties = len(scores), int(np.sum(scores[:, 0] == scores[:, 1]))
        share = float(np.sum(scores[:, 0] > scores[:, 1]) + 0.5 * ties) / count
        weight = _QUANTILE**2 / count
        center = (share + weight / 2.0) / (1.0 + weight)
        reach = math.sqrt(weight * share * (1.0 - share) + weight**2 / 4.0) / (1.0 + weight)
        return cls(count, ties, share, center - reach, center + reach)


class PairResults(NamedTuple):
    """The accuracy of all pairs, and by column and value that of each group."""

    all_pairs: Accuracy
    groups: dict[str, dict[str, Accuracy]]

    @property
    def mean_over_uid(self) -> float:
        """The mean of the accuracies by UID, in which a small group counts as much as a large one."""
        return statistics.fmean(each.accuracy for each in self.groups["UID"].values())

    def to_json(self) -> dict[str, Any]:
        """The results as JSON values."""
        groups = {column: {name: each._asdict() for name, each in of.items()} for column, of in self.groups.items()}
        return {"all": self.all_pairs._asdict(), "mean_over_UID": self.mean_over_uid, **groups}

    def table(self) -> str:
        """A Markdown table with a row for all pairs, for the mean over the UIDs, and for each group."""

        def row(column: str, name: str, each: Accuracy) -> list[str]:
            return [column, name, str(each.pairs), f"{each.accuracy:.3f}", f"{each.lowest:.3f} to {each.highest:.3f}"]

        rows = [row("all pairs", "", self.all_pairs), ["mean over UID", "", "", f"{self.mean_over_uid:.3f}", ""]]
        rows += [row(column, name, each) for column, of in self.groups.items() for name, each in of.items()]
        return markdown_table(["", "", "pairs", "accuracy", "95 % interval"], rows)


def read_pairs(paths: Iterable[str]) -> MinimalPairs:
    """Reads minimal pairs in BLiMP's layout.

    Args:
        paths: files with the columns `sentence_good` and `sentence_bad`, and optionally `UID`, `linguistics_term` and
            `field`, in a format of `electra_tf.data.tables.read_table`; or directories, whose .jsonl files are read.
    Raises: UserError: a file cannot be read, or a sentence is missing.
    """
    files: list[str] = []
    for path in paths:
        names = sorted(names_in(path)) if is_directory(path) else []
        files += [os.path.join(path, name) for name in names if name.endswith(".jsonl")] or [path]
    pairs = MinimalPairs([], [], {column: [] for column in _GROUPINGS})
    for file in files:
        table = read_table(file)
        pairs.sentences.extend(zip(*map(table.texts, _SENTENCES), strict=True))
        pairs.places.extend(map(table.where, range(len(table.rows))))
        for column, values in pairs.groups.items():
            default = file if column == "UID" else None
            given = table.columns.get(column, [None] * len(table.rows))
            values += [default if value in (None, "") else str(value) for value in given]
    return pairs


def score_pairs(scorer: SentenceScorer, pairs: MinimalPairs, batch_size: int = 64) -> npt.NDArray[np.float64]:
    """The scores of N pairs, [N, 2] float64, the acceptable sentence's first.

    Args:
        batch_size: see `SentenceScorer.scores`.
    Raises: UserError: a sentence has no tokens, or more than the model has positions.
    """
    features = scorer.features([sentence for pair in pairs.sentences for sentence in pair])
    for index in np.flatnonzero((features.lengths <= 2) | (features.lengths > scorer.max_seq_length)):
        raise UserError(
            f"{pairs.places[index // 2]}: {_SENTENCES[index % 2]} has {features.lengths[index]} tokens, with [CLS] and "
            f"[SEP], expected 3 to {scorer.max_seq_length} (the model's positions); remove the pair"
        )
    return scorer.scores(features, batch_size).reshape(-1, 2)


def results_of(pairs: MinimalPairs, scores: npt.NDArray[np.float64]) -> PairResults:
    """The accuracies of scored pairs. `scores` is the result of `score_pairs`."""
    groups: dict[str, dict[str, Accuracy]] = {}
    for column, values in pairs.groups.items():
        if names := sorted(set(filter(None, values))):
            of_pair = np.array([value or "" for value in values])
            groups[column] = {name: Accuracy.of(scores[of_pair == name]) for name in names}
    return PairResults(Accuracy.of(scores), groups)


def pair_lines(pairs: MinimalPairs, scores: npt.NDArray[np.float64]) -> str:
    """A JSON object a line for each pair: its place, UID, sentences and scores."""
    rows = zip(pairs.places, pairs.groups["UID"], pairs.sentences, scores.tolist(), strict=True)
    lines = (
        {"place": place, "UID": uid, "sentence_good": good, "sentence_bad": bad, "score_good": first, "score_bad": last}
        for place, uid, (good, bad), (first, last) in rows
    )
    return "".join(json.dumps(line) + "\n" for line in lines)
