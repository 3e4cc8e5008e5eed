"""The ladder: whether the gap between two arms changes with the length of training, after an equal search for both.

The runs of a rung have equal FLOPs; those of all rungs give the slope of the gap over the logarithm of FLOPs.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from electra_tf.config.errors import UserError
from electra_tf.reports.runs import RunResults, score_metric
from electra_tf.reports.tables import markdown_table
from experiments.replication.arms import PROBE, Comparison, settings_of
from experiments.replication.outcome import (
    CONFIDENCE,
    arm_of,
    arm_scores,
    compare,
    gate_of,
    grouped,
    percent,
    task_score,
)

Rungs = Mapping[int, Sequence[RunResults]]  # by the steps of `electra` that set the budget
_LEVELS = 4  # coefficients of the model: a level and a slope for each arm


class Slope(NamedTuple):
    """By how much the gap grows when FLOPs are multiplied by e, with its 95 % interval.

    Attributes:
        gap: at the mean of the logarithms.        mean_log_flops: that mean.
    """

    value: float
    low: float
    high: float
    gap: float
    mean_log_flops: float

    @property
    def crossing(self) -> float | None:
        """The FLOPs at which the gap is 0; None unless the interval excludes a slope of 0."""
        if self.low <= 0.0 <= self.high:
            return None
        return math.exp(self.mean_log_flops - self.gap / self.value)


def slope_of(upper: Sequence[tuple[float, float]], lower: Sequence[tuple[float, float]]) -> Slope | None:
    """The slope of the gap between two arms, by least squares with a level and a slope for each.

    Args:
        upper, lower: FLOPs and score of each run.
    Returns: None if there are not more runs than coefficients, or only one rung.
    """
    points = np.array([*upper, *lower], np.float64).reshape(-1, 2)
    if len(points) <= _LEVELS or len(np.unique(points[:, 0])) < 2:
        return None
    logs = np.log(points[:, 0]) - np.log(points[:, 0]).mean()
    is_upper = np.arange(len(points)) < len(upper)
    design = np.stack([np.ones_like(logs), logs, is_upper, is_upper * logs], axis=1)
    coefficients, *_ = np.linalg.lstsq(design, points[:, 1], rcond=None)
    left = points[:, 1] - design @ coefficients
    freedom = len(points) - _LEVELS
    variances = np.linalg.inv(design.T @ design).diagonal() * (left @ left) / freedom
    half = stats.t.ppf(0.5 + CONFIDENCE / 2.0, freedom) * math.sqrt(variances[3])
    value, gap = float(coefficients[3]), float(coefficients[2])
    return Slope(value, value - half, value + half, gap, float(np.log(points[:, 0]).mean()))


def ladder_markdown(rungs: Rungs, comparison: Comparison) -> str:
    """A table of the gap on each rung, and a line about its slope, for each pair and measure."""
    parts = []
    for pair in comparison.pairs:
        for measure in comparison.measures:
            points: dict[str, list[tuple[float, float]]] = {arm: [] for arm in pair}
            rows = []
            for steps, runs in sorted(rungs.items()):
                by_arm = grouped(runs, arm_of)
                scores = {arm: arm_scores(by_arm.get(arm, ()), measure) for arm in pair}
                difference = compare(*scores.values())
                if difference.word == "not run":
                    continue
                first = by_arm[pair[0]][0]
                flops = float(first.cost.spent(first.last_step).hardware.total)
                for arm in pair:
                    points[arm] += [(flops, score) for score in scores[arm]]
                cells = [f"{steps:,}", f"{flops:.3g}", *(percent(scores[arm]) for arm in pair)]
                rows.append([*cells, f"{100 * difference.difference:+.2f}", f"{100 * difference.half_width:.2f}"])
            headings = ["steps of `electra`", "hardware FLOPs", *pair, "gap", "either way (95 %)"]
            parts += [f"{' - '.join(pair)}, {measure}:", markdown_table(headings, rows).rstrip("\n")]
            parts.append(slope_sentence(slope_of(*points.values()), [flops for flops, _ in points[pair[0]]]))
    return "\n\n".join(parts) + "\n"


def search_markdown(runs: Sequence[RunResults], comparison: Comparison) -> str:
    """A table of a search's runs. Once all arms of a configuration have a score, the best in truecasing is chosen."""
    scores = {arm_of(run): task_score(run, PROBE, run.last_step) for run in runs}
    if len(scores) < len(runs):
        raise UserError("a search has one seed of an arm, but its records have several; remove those of other seeds")
    rows = []
    for run in runs:
        rivals = [arm for arm in comparison.arms if settings_of(arm) == settings_of(arm_of(run))]
        is_decided = all(scores.get(arm) is not None for arm in rivals)
        is_chosen = is_decided and arm_of(run) == max(rivals, key=scores.__getitem__)  # of equal scores the first
        each, gate = run.scores.get(score_metric(PROBE), {}).get(run.last_step, ()), gate_of(run)
        cells = [arm_of(run), f"{run.last_step:,}", percent(each, statistics.median)]
        cells += ["" if gate.margin is None else f"{100 * gate.margin:.1f}"]
        cells += ["" if gate.nats is None else f"{gate.nats:.2f}"]
        rows.append([*cells, "**yes**" if is_chosen else "no" if is_decided else "not decided"])
    headings = ["settings", "steps", "truecasing, F1", "discriminator below a constant, %"]
    return markdown_table([*headings, "below token frequencies on [MASK], nat", "chosen"], rows)


def slope_sentence(slope: Slope | None, measured: Sequence[float]) -> str:
    """The sentence about a slope.

    Args:
        measured: the FLOPs of the runs.
    """
    if slope is None:
        return "The slope of the gap needs runs on two rungs."
    tenfold = [100 * math.log(10) * value for value in (slope.value, slope.low, slope.high)]
    line = (
        f"With ten times the FLOPs the gap changes by {tenfold[0]:+.2f} points ({tenfold[1]:+.2f} to {tenfold[2]:+.2f})"
    )
    if slope.crossing is None:
        return f"{line}."
    where = "" if min(measured) <= slope.crossing <= max(measured) else ", outside the rungs"
    return f"{line}; it is 0 at {slope.crossing:.2g} FLOPs{where}."
