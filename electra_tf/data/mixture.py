"""Mixtures: an input stage that reads several data sets, each with its share of the examples.

Which data set an example is from depends on its number and the weights alone, and each data set is read in the order
in which it would be read alone. So the first n examples have a known number from each, and reading can start anywhere.
"""

import functools
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from electra_tf.config.errors import UserError
from electra_tf.data.batch import PretrainingSettings
from electra_tf.data.corpus import Corpus, PretrainingData, open_data

# A directory, `DIR:WEIGHT,DIR:WEIGHT` or the weights by directory.
DataDir = str | os.PathLike[str] | Mapping[str | os.PathLike[str], float]

PERIOD = 10_000  # examples after which the order of the sources repeats; shares are rounded to 1 / PERIOD
_ENTRY = re.compile(r"(.+?):(\d+\.?\d*|\.\d+)(?:,|$)")


def open_mixture(data_dir: DataDir, config: PretrainingSettings) -> PretrainingData:
    """Opens a data set, or several as one.

    Raises: UserError: as `electra_tf.data.corpus.open_data`; or the data sets or their weights do not fit together.
    """
    weights = weights_of(data_dir)
    opened = [open_data(directory, config) for directory, _ in weights]
    if len(opened) == 1:
        return opened[0]
    require_same_tokenizer(opened)
    named = zip(opened, source_names([each.directory for each in opened]), rounded_shares(weights), strict=True)
    sources = tuple(replace(each, name=name, share=share) for each, name, share in named)
    held_outs = [source.held_out for source in sources if source.held_out]
    described = "\n".join(f"{source.share:.4f} {source.data_hash}" for source in sources)
    hold_outs = [source.hold_out or {} for source in sources]
    settings = [item for hold_out in hold_outs for item in hold_out.items()]
    common = {name: value for name, value in settings if all(each.get(name, value) == value for each in hold_outs)}
    return replace(
        opened[0],
        directory=", ".join(source.directory for source in sources),
        data_hash=hashlib.sha256(described.encode()).hexdigest(),
        train=_joined([source.train for source in sources]),
        held_out=_joined(held_outs) if held_outs else None,
        token_counts=_token_counts(sources),
        hold_out=common or None,
        parts=sources,
    )


def require_same_tokenizer(data: Sequence[PretrainingData]) -> None:
    """Raises: UserError: data sets of one run have different vocabularies or text settings."""
    if len({each.tokenizer for each in data}) > 1:
        raise UserError(
            f"data_dir: {', '.join(each.directory for each in data)} have different vocabularies or text settings; "
            "build them with the same vocab_file and flags"
        )


def weights_of(data_dir: DataDir) -> list[tuple[str, float]]:
    """The directories of a mixture with their weights; of a directory, whose path may have a colon, one pair."""
    if isinstance(data_dir, Mapping):
        return [(os.fspath(directory), weight) for directory, weight in data_dir.items()]
    text = os.fspath(data_dir)
    entries = list(_ENTRY.finditer(text))
    if len(entries) < 2 or entries[-1].end() < len(text):
        return [(text, 1.0)]
    return [(entry[1], float(entry[2])) for entry in entries]


def rounded_shares(weights: Sequence[tuple[str, float]]) -> list[float]:
    """The weights as multiples of 1 / PERIOD with the sum 1. Raises: UserError: one is 0 or less."""
    ends = np.cumsum([weight for _, weight in weights])
    counts = np.diff(np.rint(ends / ends[-1] * PERIOD), prepend=0.0)
    for (directory, weight), count in zip(weights, counts, strict=True):
        if not count > 0:
            raise UserError(f"data_dir: {directory} has weight {weight}, expected 1 / {PERIOD} of the sum or more")
    return [float(count) / PERIOD for count in counts]


def source_names(directories: Sequence[str]) -> list[str]:
    """The last parts of the paths, as many as make them differ. Raises: UserError: two paths are the same."""
    paths = [directory.rstrip("/").split("/") for directory in directories]
    for length in range(1, max(map(len, paths)) + 1):
        names = ["/".join(parts[-length:]) for parts in paths]
        if len(set(names)) == len(names):
            return names
    raise UserError(f"data_dir: {', '.join(directories)} has a data set twice; give it once, with the sum of weights")


def source_order(shares: Sequence[float]) -> npt.NDArray[np.int64]:
    """The index of the source of each of PERIOD consecutive examples, [PERIOD] int64: each source evenly spread.

    Example i of a source's c examples is due after (i + 0.5) / c of the period. So the number of its examples among any
    first n differs from its share of n by at most half of (1 + the number of sources).
    """
    counts = np.rint(np.multiply(shares, PERIOD)).astype(np.int64)
    due = np.concatenate([(np.arange(count) + 0.5) / count for count in counts])
    return np.repeat(np.arange(len(counts)), counts)[np.argsort(due, kind="stable")]


def _joined(corpora: Sequence[Corpus]) -> Corpus:
    def join(a: Corpus, b: Corpus) -> Corpus:
        layouts = {a.layout, b.layout}
        if len(layouts) > 1 and "fixed_length" in layouts:
            raise UserError(f"data_dir: {b.files[0]} has another layout than {a.files[0]}; build both with one builder")
        layout = "packed" if "packed" in layouts else a.layout  # a compact record is a pack of one sequence
        return replace(a, files=a.files + b.files, num_examples=a.num_examples + b.num_examples, layout=layout)

    return functools.reduce(join, corpora)


def _token_counts(sources: Sequence[PretrainingData]) -> npt.NDArray[np.int64] | None:
    """How often each token occurs in as many examples as all sources have, at their shares."""
    total, counts = sum(source.train.total_examples for source in sources), []
    for source in sources:
        if source.token_counts is None:
            return None
        counts.append(total * source.share / source.train.total_examples * source.token_counts)
    return np.rint(sum(counts)).astype(np.int64)
