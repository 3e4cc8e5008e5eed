"""What the replication's runs have come to: whether they learnt enough to be compared, scores, and comparisons."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from scipy import stats

from electra_tf.reports.runs import RunResults, score_metric
from electra_tf.tasks.finetune.summary import spread
from experiments.replication.arms import SCORE, SCORE_TASKS

MIN_MARGIN, MIN_AUC = 0.1, 0.75  # of ELECTRA's discriminator
MIN_NATS = 0.7  # of BERT
_CONFIDENCE = 0.95


class Gate(NamedTuple):
    """What a run has learnt by its end, on held-out text; None: does not apply.

    Attributes:
        margin: how far the discriminator's loss is below that of a constant, as a fraction of that.
        auc: of the discriminator.
        nats: how far the loss on [MASK] alone is below that of token frequencies.
        passed: whether that is enough to compare the run; None: there is no criterion for its objective.
    """

    margin: float | None
    auc: float | None
    nats: float | None
    passed: bool | None


def gate_of(run: RunResults) -> Gate:
    """What a run has learnt, and whether it is enough."""
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
    """The run's metrics by step, without those of a discriminator that only masked tokens count for.

    These are no measure beside a discriminator's of all tokens: which of the masked tokens were replaced, frequencies
    tell to a part, and the less, the better the generator.
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


def task_score(run: RunResults, task: str, step: int) -> float | None:
    """The median over the seeds of fine-tuning; of `SCORE` the mean of those of its tasks. None: not known."""
    if task == SCORE:
        scores = [task_score(run, each, step) for each in SCORE_TASKS]
        return None if None in scores else statistics.fmean(scores)
    values = run.scores.get(score_metric(task), {}).get(step)
    return spread(values)["median"] if values else None


def arm_scores(runs: Sequence[RunResults], task: str, step: int | None = None) -> list[float]:
    """The scores of runs that have one, at a step or at the end of each."""
    scores = (task_score(run, task, run.last_step if step is None else step) for run in runs)
    return [score for score in scores if score is not None]


class MeanDifference(NamedTuple):
    """The difference of the means of two arms, and its 95 % interval over the seeds of pre-training; NaN: not known."""

    difference: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """The smallest difference that would have been told from 0."""
        return (self.high - self.low) / 2.0

    @property
    def word(self) -> str:
        if math.isnan(self.difference):
            return "not run"
        return "shown" if self.low > 0.0 else "reversed" if self.high < 0.0 else "not shown"


def compare(upper: Sequence[float], lower: Sequence[float]) -> MeanDifference:
    """The mean of `upper` minus that of `lower`, with the interval of Welch's t; not run with one value on a side."""
    if min(len(upper), len(lower)) < 2:
        return MeanDifference(math.nan, math.nan, math.nan)
    interval = stats.ttest_ind(upper, lower, equal_var=False).confidence_interval(_CONFIDENCE)
    difference = statistics.fmean(upper) - statistics.fmean(lower)
    return MeanDifference(difference, float(interval.low), float(interval.high))
