"""Draws results: metrics of pre-training over FLOPs, as in figures 1, 3 and 4 of the paper, and confusion matrices."""

import io
import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from electra_tf.config.errors import UserError
from electra_tf.flops.budget import Convention
from electra_tf.reports.runs import Point, RunGroup, finetuned_task
from electra_tf.reports.tables import heading

_PANELS_PER_ROW = 3
_MARKERS = "osDv^<>Pp*X"
# By metric, what a predictor without any knowledge of the context has: a dashed line in the metric's panel.
_BASELINES = {"mask_token_loss": "unigram_loss", "replaced_token_loss": "constant_predictor_loss"}
_AXIS = {"paper": "pre-training FLOPs, as the paper counts", "hardware": "pre-training FLOPs that devices computed"}
_DASHED = {"linestyle": "--", "linewidth": 1}
_MOST_NUMBERS = 40  # larger confusion matrices are drawn without numbers
_LONGEST_LABEL = 24


def metric_curves(groups: Sequence[RunGroup], metrics: Sequence[str], convention: Convention) -> bytes:
    """Draws a PNG with a panel for each metric. A baseline of another metric is a dashed line in that metric's panel.

    Each group of runs is a line through the medians over its seeds. A band shows the range; for fine-tuning scores,
    error bars show it instead. A dotted vertical line marks the beginning of an input stage, with its sequence length.
    A group alone has its steps at the top of each panel; several groups have different ones at the same FLOPs.

    Raises: UserError: matplotlib is not installed, or there is nothing to draw.
    """
    if not metrics:
        raise UserError("--picture: no run has any of the usual metrics; choose one with --metric")
    metrics = [name for name in metrics if not any(_BASELINES.get(judged) == name for judged in metrics)]
    figure, panels = _panels(len(metrics))

    def flops(group: RunGroup, steps: Iterable[int]) -> list[float]:
        return [float(group.cost.spent(step).flops(convention)) for step in steps]

    for axes, metric in zip(panels, metrics, strict=True):
        for index, group in enumerate(groups):
            style = {"color": f"C{index % 10}", "marker": _MARKERS[index % len(_MARKERS)], "label": group.label}
            if not (points := _points(group, metric)):
                continue
            steps, *values = zip(*points, strict=True)
            _draw_points(axes, flops(group, steps), np.array(values), finetuned_task(metric) is not None, style)
            _draw_stages(axes, group, steps[-1], flops, style["color"])
            if baseline := _points(group, _BASELINES.get(metric, "")):
                steps, medians, *_ = zip(*baseline, strict=True)
                axes.plot(flops(group, steps), medians, **_DASHED, color=style["color"])
                axes.plot([], [], **_DASHED, color="grey", label=heading(_BASELINES[metric]))  # for the legend
        axes.set(title=heading(metric), xlabel=_AXIS[convention], xscale="log")
        axes.tick_params(axis="x", which="minor", labelsize=7)  # labelled if the panel spans less than a decade
        axes.grid(alpha=0.3, which="both")
        if len(groups) == 1:
            marked = _marked_steps(groups[0], metric)
            top = axes.secondary_xaxis("top")
            top.set_xticks(flops(groups[0], marked), [f"{step:,}" for step in marked], fontsize=8)
            top.set_xticks([], minor=True)
            top.set_xlabel("step", fontsize=8)
    return _png_with_legend(figure)


def _points(group: RunGroup, metric: str) -> list[Point]:
    return [point for point in group.points(metric) if point.step > 0]  # 0 is not on a logarithmic axis


def _draw_points(axes, flops: list[float], values: np.ndarray, has_bars: bool, style: dict) -> None:
    """Draws medians with their ranges. `values` is [3, N]: medians, lowest and highest values."""
    medians, lowest, highest = values
    if has_bars:
        axes.errorbar(flops, medians, [medians - lowest, highest - medians], ms=4, capsize=3, **style)
        return
    axes.plot(flops, medians, ms=4, **style)
    axes.fill_between(flops, lowest, highest, color=style["color"], alpha=0.15, linewidth=0)


def _draw_stages(axes, group: RunGroup, last_step: int, flops, colour: str) -> None:
    """Marks the beginning of each stage but the first, if the metric has a value after it."""
    stages = group.runs[0].config.stages
    begins = itertools.accumulate(stage.num_steps for stage in stages)
    for begin, stage in zip(begins, stages[1:], strict=False):
        if begin < last_step:
            (place,) = flops(group, [begin])
            axes.axvline(place, linestyle=":", linewidth=1, color=colour)
            where = {"transform": axes.get_xaxis_transform(), "rotation": 90, "ha": "right", "va": "top"}
            axes.text(place, 0.98, f"length {stage.max_seq_length}", color=colour, fontsize=7, **where)


def _marked_steps(group: RunGroup, metric: str) -> list[int]:
    """The last step with a value, and each that is at most half of the next."""
    marked: list[int] = []
    for point in reversed(_points(group, metric)):
        if not marked or 2 * point.step <= marked[-1]:
            marked.append(point.step)
    return marked


def confusion_picture(report: dict, title: str) -> bytes:
    """Draws a confusion matrix as PNG: a row for each true class, darker where more of its examples are.

    Args:
        report: of `electra_tf.tasks.finetune.scores`.
    Raises: UserError: matplotlib is not installed.
    """
    from sklearn.metrics import ConfusionMatrixDisplay

    matrix = report["confusion_matrix"]
    names = [*matrix, *([""] if any("" in row for row in matrix.values()) else [])]  # "": truncated words
    counts = np.array([[matrix.get(row, {}).get(column, 0) for column in names] for row in names])
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    labels = [name if len(name) <= _LONGEST_LABEL else f"{name[: _LONGEST_LABEL - 1]}…" for name in names]
    labels = [label or "(truncated)" for label in labels]
    has_numbers = len(names) <= _MOST_NUMBERS
    size = max(2.4, (0.4 if has_numbers else 0.2) * len(names)) + 1 + 0.07 * max(map(len, labels))
    figure = figure_class()(figsize=(size + 0.8, size), layout="constrained")
    display = ConfusionMatrixDisplay(shares, display_labels=labels)
    axes = figure.subplots()
    display.plot(ax=axes, cmap="Blues", xticks_rotation="vertical", include_values=has_numbers, colorbar=False)
    for text, count in zip(display.text_.flat if has_numbers else (), counts.flat, strict=False):
        text.set(text=str(count or ""), fontsize=8)
    axes.set(xlabel="predicted class", ylabel="true class", title=title)
    axes.tick_params(labelsize=8)
    figure.colorbar(display.im_, label="share of the true class", shrink=0.8, fraction=0.04, aspect=30)
    return _png(figure)


def figure_class() -> type:
    """Returns matplotlib's class of figures, which need no display. Raises: UserError: matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError('--picture requires matplotlib: pip install "electra-tf[report]"') from None
    return Figure


def _panels(count: int):
    """A new figure and its panels, at most three in a row."""
    num_rows, num_columns = -(-count // _PANELS_PER_ROW), min(count, _PANELS_PER_ROW)
    figure = figure_class()(figsize=(4.6 * num_columns, 3.6 * num_rows + 0.6), layout="constrained")
    panels = figure.subplots(num_rows, num_columns, squeeze=False).flatten()
    for axes in panels[count:]:
        axes.set_visible(False)
    return figure, panels[:count]


def _png_with_legend(figure) -> bytes:
    """Adds a legend below all panels, with each label once."""
    handles = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(5, len(handles)))
    return _png(figure)


def _png(figure) -> bytes:
    png = io.BytesIO()
    # Without the date and version that matplotlib writes: equal runs give equal bytes.
    figure.savefig(png, format="png", dpi=100, metadata={"Software": None})
    return png.getvalue()
