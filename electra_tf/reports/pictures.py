"""Draws results of runs: metrics over the FLOPs of pre-training, as in figures 1, 3 and 4 of the paper."""

import io
import itertools
from collections.abc import Sequence

from electra_tf.config.errors import UserError
from electra_tf.flops.budget import Convention
from electra_tf.reports.runs import Point, RunGroup, finetuned_task
from electra_tf.reports.tables import heading

_PANELS_PER_ROW = 3
_MARKERS = "osDv^<>Pp*X"
# By metric, what a predictor without any knowledge of the context has: a dashed line in the metric's panel.
_BASELINES = {"mask_token_loss": "unigram_loss", "replaced_token_loss": "constant_predictor_loss"}
_AXIS = {"paper": "pre-training FLOPs, as the paper counts", "hardware": "pre-training FLOPs that devices computed"}


def png_picture(groups: Sequence[RunGroup], metrics: Sequence[str], convention: Convention) -> bytes:
    """Draws a PNG with a panel for each metric. A baseline of another metric is a dashed line in that metric's panel.

    Each group of runs is a line through the medians over its seeds. A band shows the range; for fine-tuning scores,
    error bars show it instead. A dotted vertical line marks the beginning of an input stage, with its sequence length.
    A group alone has its steps at the top of each panel; several groups have different ones at the same FLOPs.

    Raises: UserError: matplotlib is not installed, or there is nothing to draw.
    """
    if not metrics:
        raise UserError("--picture: no run has any of the usual metrics; choose one with --metric")
    metrics = [name for name in metrics if not any(_BASELINES.get(judged) == name for judged in metrics)]
    figure, panels = panels_for(len(metrics))
    for axes, metric in zip(panels, metrics, strict=True):
        for index, group in enumerate(groups):
            colour = f"C{index % 10}"
            _draw_group(axes, group, metric, convention, colour, _MARKERS[index % len(_MARKERS)])
            _draw_stages(axes, group, metric, convention, colour)
        _draw_baselines(axes, groups, metric, convention)
        axes.set(title=heading(metric), xlabel=_AXIS[convention], xscale="log")
        axes.tick_params(axis="x", which="minor", labelsize=7)  # labelled if the panel spans less than a decade
        axes.grid(alpha=0.3, which="both")
        if len(groups) == 1:
            _mark_steps(axes, groups[0], metric, convention)
    return with_legend(figure)


def figure_class() -> type:
    """Returns matplotlib's class of figures, which need no display. Raises: UserError: matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError('--picture requires matplotlib: pip install "electra-tf[report]"') from None
    return Figure


def panels_for(count: int):
    """Returns a new figure and its panels, at most three in a row. Raises: UserError: see `figure_class`."""
    num_rows, num_columns = -(-count // _PANELS_PER_ROW), min(count, _PANELS_PER_ROW)
    figure = figure_class()(figsize=(4.6 * num_columns, 3.6 * num_rows + 0.6), layout="constrained")
    panels = figure.subplots(num_rows, num_columns, squeeze=False).flatten()
    for axes in panels[count:]:
        axes.set_visible(False)
    return figure, panels[:count]


def with_legend(figure) -> bytes:
    """Adds a legend below all panels, with each label once. Returns: the PNG."""
    handles = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(5, len(handles)))
    return as_png(figure)


def as_png(figure) -> bytes:
    """Returns the PNG of a figure."""
    png = io.BytesIO()
    # Without the date and version that matplotlib writes: equal runs give equal bytes.
    figure.savefig(png, format="png", dpi=100, metadata={"Software": None})
    return png.getvalue()


def _drawn_points(group: RunGroup, metric: str) -> list[Point]:
    return [point for point in group.points(metric) if point.step > 0]  # 0 is not on a logarithmic axis


def _flops(group: RunGroup, step: int, convention: Convention) -> float:
    return float(group.cost.spent(step).flops(convention))


def _draw_group(axes, group: RunGroup, metric: str, convention: Convention, colour: str, marker: str) -> None:
    points = _drawn_points(group, metric)
    if not points:
        return
    _, medians, lowest, highest = zip(*points, strict=True)
    flops = [_flops(group, point.step, convention) for point in points]
    if finetuned_task(metric) is not None:
        below = [median - low for median, low in zip(medians, lowest, strict=True)]
        above = [high - median for median, high in zip(medians, highest, strict=True)]
        axes.errorbar(flops, medians, [below, above], marker=marker, ms=4, capsize=3, color=colour, label=group.label)
        return
    axes.plot(flops, medians, marker=marker, ms=4, color=colour, label=group.label)
    axes.fill_between(flops, lowest, highest, color=colour, alpha=0.15, linewidth=0)


def _draw_baselines(axes, groups: Sequence[RunGroup], metric: str, convention: Convention) -> None:
    baseline = _BASELINES.get(metric, "")
    for index, group in enumerate(groups):
        if points := _drawn_points(group, baseline):
            flops = [_flops(group, point.step, convention) for point in points]
            axes.plot(flops, [point.median for point in points], linestyle="--", linewidth=1, color=f"C{index % 10}")
    if any(_drawn_points(group, baseline) for group in groups):
        axes.plot([], [], linestyle="--", linewidth=1, color="grey", label=heading(baseline))  # for the legend


def _draw_stages(axes, group: RunGroup, metric: str, convention: Convention, colour: str) -> None:
    """Marks the beginning of each stage but the first, if the metric has a value after it."""
    last_step = max((point.step for point in _drawn_points(group, metric)), default=0)
    stages = group.runs[0].config.stages
    begins = itertools.accumulate(stage.num_steps for stage in stages)
    for begin, stage in zip(begins, stages[1:], strict=False):
        if begin < last_step:
            flops = _flops(group, begin, convention)
            axes.axvline(flops, linestyle=":", linewidth=1, color=colour)
            place = {"transform": axes.get_xaxis_transform(), "rotation": 90, "ha": "right", "va": "top"}
            axes.text(flops, 0.98, f"length {stage.max_seq_length}", color=colour, fontsize=7, **place)


def _mark_steps(axes, group: RunGroup, metric: str, convention: Convention) -> None:
    """Writes steps at the top of a panel: the last one with a value, and each that is at most half of the next."""
    marked: list[int] = []
    for point in reversed(_drawn_points(group, metric)):
        if not marked or 2 * point.step <= marked[-1]:
            marked.append(point.step)
    top = axes.secondary_xaxis("top")
    top.set_xticks([_flops(group, step, convention) for step in marked], [f"{step:,}" for step in marked], fontsize=8)
    top.set_xticks([], minor=True)
    top.set_xlabel("step", fontsize=8)
