"""Draws metrics of pre-training over FLOPs, as in figures 1, 3 and 4 of the paper."""

import io
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from electra_tf.flops.budget import Convention
from electra_tf.reports.runs import Point, RunGroup
from electra_tf.reports.tables import heading

_PANELS_PER_ROW = 3
_MARKERS = "osDv^<>Pp*X"
# By metric, what a predictor without any knowledge of the context has: a dashed line in the metric's panel.
_BASELINES = {"mask_token_loss": "unigram_loss", "replaced_token_loss": "constant_predictor_loss"}
_AXIS = {"paper": "pre-training FLOPs, as the paper counts", "hardware": "pre-training FLOPs that devices computed"}


def metric_curves(groups: Sequence[RunGroup], metrics: Sequence[str], convention: Convention) -> bytes:
    """Draws a PNG with a panel for each metric. A baseline of another metric is a dashed line in that metric's panel.

    Each group of runs is a line through the medians over its seeds. A band shows the range; for fine-tuning scores,
    error bars show it instead. A dotted vertical line marks the beginning of an input stage, with its sequence length.
    A group alone has its steps at the top of each panel; several groups have different ones at the same FLOPs.

    Raises: ValueError: there is nothing to draw.
    """
    metrics = [name for name in metrics if not any(_BASELINES.get(judged) == name for judged in metrics)]
    num_rows, num_columns = -(-len(metrics) // _PANELS_PER_ROW), min(len(metrics), _PANELS_PER_ROW)
    figure = Figure(figsize=(4.6 * num_columns, 3.6 * num_rows + 0.6), layout="constrained")
    panels = figure.subplots(num_rows, num_columns, squeeze=False).flatten()
    for axes in panels[len(metrics) :]:
        axes.set_visible(False)
    for axes, metric in zip(panels, metrics, strict=False):
        _draw_panel(axes, metric, groups, convention)

    labelled: dict[str, Any] = {}  # each label once, below all panels
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            labelled.setdefault(label, handle)
    figure.legend(labelled.values(), labelled.keys(), loc="outside lower center", ncols=min(5, len(labelled)))
    png = io.BytesIO()
    # Without the date and version that matplotlib writes: equal runs give equal bytes.
    figure.savefig(png, format="png", dpi=100, metadata={"Software": None})
    return png.getvalue()


def _draw_panel(axes: Axes, metric: str, groups: Sequence[RunGroup], convention: Convention) -> None:
    for index, group in enumerate(groups):
        if not (points := _points(group, metric)):
            continue
        steps, *values = zip(*points, strict=True)
        places, (medians, lowest, highest) = _flops(group, steps, convention), np.array(values)
        colour = f"C{index % 10}"
        style: dict[str, Any] = {"color": colour, "ms": 4, "label": group.label}
        style["marker"] = _MARKERS[index % len(_MARKERS)]
        if metric in group.runs[0].scores:
            axes.errorbar(places, medians, [medians - lowest, highest - medians], capsize=3, **style)
        else:
            axes.plot(places, medians, **style)
            axes.fill_between(places, lowest, highest, color=colour, alpha=0.15, linewidth=0)
        _draw_stages(axes, group, steps[-1], convention, colour)
        if baseline := _points(group, _BASELINES.get(metric, "")):
            steps, medians, *_ = zip(*baseline, strict=True)
            dashed: dict[str, Any] = {"linestyle": "--", "linewidth": 1}
            axes.plot(_flops(group, steps, convention), medians, **dashed, color=colour)
            axes.plot([], [], **dashed, color="grey", label=heading(_BASELINES[metric]))  # for the legend
    axes.set(title=heading(metric), xlabel=_AXIS[convention], xscale="log")
    axes.tick_params(axis="x", which="minor", labelsize=7)  # labelled if the panel spans less than a decade
    axes.grid(alpha=0.3, which="both")
    if len(groups) == 1:
        marked: list[int] = []  # the last step with a value, and each that is at most half of the next
        for point in reversed(_points(groups[0], metric)):
            if not marked or 2 * point.step <= marked[-1]:
                marked.append(point.step)
        top = axes.secondary_xaxis("top")
        top.set_xticks(_flops(groups[0], marked, convention), [f"{step:,}" for step in marked], fontsize=8)
        top.set_xticks([], minor=True)
        top.set_xlabel("step", fontsize=8)


def _flops(group: RunGroup, steps: Iterable[int], convention: Convention) -> list[float]:
    return [float(group.cost.spent(step).flops(convention)) for step in steps]


def _points(group: RunGroup, metric: str) -> list[Point]:
    return [point for point in group.points(metric) if point.step > 0]  # 0 is not on a logarithmic axis


def _draw_stages(axes: Axes, group: RunGroup, last_step: int, convention: Convention, colour: str) -> None:
    """Marks the beginning of each stage but the first, if the metric has a value after it."""
    stages = group.runs[0].config.stages
    begins = itertools.accumulate(stage.num_steps for stage in stages)
    for begin, stage in zip(begins, stages[1:], strict=False):
        if begin < last_step:
            (place,) = _flops(group, [begin], convention)
            axes.axvline(place, linestyle=":", linewidth=1, color=colour)
            where: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "top"}
            where["transform"] = axes.get_xaxis_transform()
            axes.text(place, 0.98, f"length {stage.max_seq_length}", color=colour, fontsize=7, **where)
