"""Draws results of fine-tuning: the confusion matrix of a seed, and the learning curves of all seeds."""

from collections.abc import Sequence

import numpy as np

from electra_tf.reports.finetuning import DEV_LOSS, TRAINING_LOSS, FinetuningResults
from electra_tf.reports.pictures import as_png, figure_class, panels_for, with_legend
from electra_tf.tasks.finetune.scores import Report

_MOST_NUMBERS = 40  # larger matrices are drawn without numbers
_CELL = 0.36  # inches
_LONGEST_LABEL = 24
_KEPT = {"marker": "o", "ms": 8, "fillstyle": "none"}  # of the checkpoint that was kept and scored


def confusion_picture(report: Report, title: str) -> bytes:
    """Draws a confusion matrix as PNG: a row for each true class, darker where more of its examples are.

    Raises: UserError: matplotlib is not installed.
    """
    matrix = report["confusion_matrix"]
    names = list(matrix)
    columns = [*names, *([""] if any("" in row for row in matrix.values()) else [])]
    counts = np.array([[row.get(column, 0) for column in columns] for row in matrix.values()])
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    labels = {name: name if len(name) <= _LONGEST_LABEL else name[: _LONGEST_LABEL - 1] + "…" for name in names}
    has_numbers = len(names) <= _MOST_NUMBERS
    cell = _CELL + 0.06 * max(0, len(str(counts.max())) - 3) if has_numbers else _CELL / 2
    cell, margin = max(cell, 2.4 / len(names)), 0.8 + 0.07 * max(map(len, labels.values()))
    size = cell * len(columns) + margin + 0.8, cell * len(names) + margin
    figure = figure_class()(figsize=size, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(columns)), [labels.get(name, "(truncated)") for name in columns], rotation=90)
    axes.set_yticks(range(len(names)), labels.values())
    axes.tick_params(labelsize=8)
    axes.set(xlabel="predicted class", ylabel="true class")
    axes.set_title(title, fontsize=10)
    if has_numbers:
        for row, column in zip(*np.nonzero(counts), strict=True):
            colour = "white" if shares[row, column] > 0.5 else "black"
            place = {"ha": "center", "va": "center", "fontsize": 8, "color": colour}
            axes.text(column, row, str(counts[row, column]), **place)
    figure.colorbar(image, label="share of the true class", shrink=0.8, fraction=0.04, aspect=30)
    return as_png(figure)


def learning_curves(finetunings: Sequence[FinetuningResults], metrics: Sequence[str]) -> bytes:
    """Draws a PNG with a panel for the loss, dashed in training and solid on the dev set, and one for each metric.

    Each seed is a line. The seeds of one fine-tuning have different colours; those of several have the colour of their
    fine-tuning. A circle marks the kept checkpoint of a finished seed.

    Raises: UserError: matplotlib is not installed.
    """
    figure, panels = panels_for(1 + len(metrics))
    for axes, title, curves in zip(
        panels, ("loss", *metrics), ((TRAINING_LOSS, DEV_LOSS), *((name,) for name in metrics)), strict=True
    ):
        for number, finetuning in enumerate(finetunings):
            for index, seed in enumerate(finetuning.seeds):
                colour = f"C{(index if len(finetunings) == 1 else number) % 10}"
                label = f"seed {seed.number}" if len(finetunings) == 1 else finetuning.name
                for name in curves:
                    _draw_curve(axes, seed.curves.get(name, {}), seed.kept_step, name, colour, label)
        axes.set(title=title if title == "loss" else f"{title}, dev set", xlabel="step")
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
    for name, style in (("training", "--"), ("dev set", "-")):  # for the legend
        panels[0].plot([], [], linestyle=style, linewidth=1, color="grey", label=name)
    panels[0].plot([], [], **_KEPT, linestyle="", color="grey", label="scored checkpoint")
    return with_legend(figure)


def _draw_curve(axes, curve: dict[int, float], kept_step: int | None, name: str, colour: str, label: str) -> None:
    if not curve:
        return
    steps, values = zip(*sorted(curve.items()), strict=True)
    if name == TRAINING_LOSS:
        axes.plot(steps, values, linestyle="--", linewidth=1, alpha=0.6, color=colour)
        return
    axes.plot(steps, values, marker=".", color=colour, label=label)
    if kept_step in curve:
        axes.plot([kept_step], [curve[kept_step]], **_KEPT, color=colour)
