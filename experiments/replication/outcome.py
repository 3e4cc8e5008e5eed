"""The results of the replication's runs: the gate for comparisons, scores, and differences between arms."""

import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from scipy import stats

from electra_tf.reports.runs import RunResults, score_metric
from electra_tf.tasks.finetune.summary import is_in_percent, spread
from experiments.replication.arms import SCORE, SCORE_TASKS

MIN_MARGIN, MIN_AUC = 0.1, 0.75  # for ELECTRA's discriminator
MIN_NATS = 0.7  # for BERT
CONFIDENCE = 0.95
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Average = Callable[[Sequence[float]], float]


class Gate(NamedTuple):
    """The learning success of a run at its end, on held-out text; None for values that do not apply.

    Attributes:
        margin: 1 - (the discriminator's loss / the loss of a constant predictor).
        auc: the discriminator's AUC.
        nats: the loss of token frequencies on [MASK] less the run's.
        passed: whether the run learnt enough to be compared; None: its objective has no criterion.
    """

    margin: float | None
    auc: float | None
    nats: float | None
    passed: bool | None


def gate_of(run: RunResults) -> Gate:
    """The learning success of a run."""
    end, margin, nats = all_token_metrics(run)[run.last_step], None, None
    if "replaced_token_loss" in end and end.get("constant_predictor_loss", 0.0) > 0.0:
        margin = 1.0 - end["replaced_token_loss"] / end["constant_predictor_loss"]
    if {"mask_token_loss", "unigram_loss"} <= end.keys():
        nats = end["unigram_loss"] - end["mask_token_loss"]
    auc, passed, objective = end.get("replaced_token_auc"), None, run.config.objective.name
    if objective == "electra":
        passed = margin is not None and auc is not None and margin >= MIN_MARGIN and auc >= MIN_AUC
    elif objective == "bert_mlm":
        passed = nats is not None and nats >= MIN_NATS
    return Gate(margin, auc, nats, passed)


def all_token_metrics(run: RunResults) -> dict[int, dict[str, float]]:
    """The run's metrics by step, without those of a discriminator that is trained on masked tokens only.

    Its task differs from that of a discriminator of all tokens, so their metrics cannot be compared.
    """
    if run.config.objective.name != "electra_15":
        return run.metrics
    of_discriminator = ("replaced_token", "constant_predictor")
    return {
        step: {name: value for name, value in metrics.items() if not name.startswith(of_discriminator)}
        for step, metrics in run.metrics.items()
    }


def arm_of(run: RunResults) -> str:
    """The arm of a run by its name, ARM-seedN."""
    return run.name.rpartition("-seed")[0]


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items by key, in the order of their first items."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def task_score(run: RunResults, task: str, step: int) -> float | None:
    """The median score over the seeds of fine-tuning, up to 1; for `SCORE`, the mean over its tasks. None: unknown."""
    if task == SCORE:
        scores = [task_score(run, each, step) for each in SCORE_TASKS]
        return None if None in scores else statistics.fmean(scores)
    values = run.scores.get(score_metric(task), {}).get(step)
    median = spread(values)["median"] if values else None
    return median / 100.0 if median is not None and is_in_percent(task) else median


def arm_scores(runs: Sequence[RunResults], task: str, step: int | None = None) -> list[float]:
    """The known scores of runs at a step; None: at each run's last step."""
    scores = (task_score(run, task, run.last_step if step is None else step) for run in runs)
    return [score for score in scores if score is not None]


class MeanDifference(NamedTuple):
    """The difference of the means of two arms with its 95 % interval over the seeds of pre-training; NaN: unknown.

    Attributes:
        gain: by how much the better arm is ahead of an untrained encoder; infinite if that was not measured.
    """

    difference: float
    low: float
    high: float
    gain: float = math.inf

    @property
    def half_width(self) -> float:
        """The smallest difference whose interval would not contain 0."""
        return (self.high - self.low) / 2.0

    @property
    def word(self) -> str:
        if math.isnan(self.difference):
            return "not run"
        if self.gain < self.half_width:
            return "no signal"
        return "shown" if self.low > 0.0 else "reversed" if self.high < 0.0 else "not shown"


def compare(upper: Sequence[float], lower: Sequence[float], untrained: Sequence[float] = ()) -> MeanDifference:
    """The mean of `upper` minus that of `lower`, with the interval of Welch's t; NaN if one has fewer than 2 values.

    Args:
        untrained: the scores of encoders that learnt nothing, if known.
    """
    if min(len(upper), len(lower)) < 2:
        return MeanDifference(math.nan, math.nan, math.nan)
    interval = stats.ttest_ind(upper, lower, equal_var=False).confidence_interval(CONFIDENCE)
    means = statistics.fmean(upper), statistics.fmean(lower)
    gain = max(means) - statistics.fmean(untrained) if untrained else math.inf
    return MeanDifference(means[0] - means[1], float(interval.low), float(interval.high), gain)


def mean_and_each(values: Sequence[float], digits: int, unit: str = "", average: Average = statistics.fmean) -> str:
    """The mean, or another average, and in brackets each value; without brackets if there is one, empty if none."""
    if not values:
        return ""
    each = f" ({', '.join(f'{value:,.{digits}f}' for value in values)})" if len(values) > 1 else ""
    return f"{average(values):,.{digits}f}{unit}{each}"


def percent(scores: Sequence[float], average: Average = statistics.fmean) -> str:
    """`mean_and_each` in %."""
    return mean_and_each([100.0 * score for score in scores], 1, average=average)
