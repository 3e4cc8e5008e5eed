"""Writes the results of the replication from its records: Markdown between two markers of a page, and a picture."""

import dataclasses
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from electra_tf.config.errors import UserError
from electra_tf.files import write_atomically
from electra_tf.reports.pictures import png_picture
from electra_tf.reports.runs import RunGroup, RunResults, group_runs, score_metric
from electra_tf.reports.tables import markdown_table
from experiments.replication.arms import (
    ARMS,
    PROBE,
    SCORE,
    SCORE_TASKS,
    SMALL_TASKS,
    SQUAD,
    UNTRAINED,
    Comparison,
)
from experiments.replication.outcome import (
    MIN_AUC,
    MIN_MARGIN,
    MIN_NATS,
    all_token_metrics,
    arm_of,
    arm_scores,
    compare,
    gate_of,
    grouped,
    mean_and_each,
    percent,
    task_score,
)
from experiments.replication.record import read_records

_WIDTH = 120
_CURVES = ("mask_token_loss", "mask_token_accuracy", "replaced_token_loss", "replaced_token_auc")
T = TypeVar("T")
_ACCURACIES = ("masked_lm_accuracy", "generator_accuracy", "candidates_accuracy")


def read_arms(file: Path) -> list[RunResults]:
    """The records of a file, by arm and seed.

    Raises: UserError: if there are none, or runs of one arm differ in more than the seed.
    """
    runs = read_records(file)
    for first, *others in grouped(runs, arm_of).values():
        for run in others:
            if len(group_runs([first, run])) > 1 or first.last_step != run.last_step:
                raise UserError(
                    f"{file} has {first.name} and {run.name}, which differ in more than the seed (steps, settings, "
                    "data or initial weights); keep only records of one experiment there"
                )
    return sorted(runs, key=lambda run: (ARMS.index(arm_of(run)), run.config.train.seed))


def remake(file: Path, page: Path, comparison: Comparison) -> None:
    """Writes the results between the two markers of a page, and the picture beside it, if it has one.

    Args:
        file: of records.
    Raises: UserError: as `read_arms`.
    """
    runs, picture = read_arms(file), page.with_suffix(".png")
    results = results_markdown(runs, picture.name, comparison)
    if comparison.milestone_arms:
        write_atomically(str(picture), picture_of(runs))
    begin, end = markers(comparison)
    before, rest = page.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end)
    write_atomically(str(page), f"{before}{begin}\n{results}{end}{after}".encode())


def markers(comparison: Comparison) -> tuple[str, str]:
    """The comments of a page between which the results of a comparison are."""
    return f"<!-- {comparison.marker} -->", f"<!-- end of {comparison.marker} -->"


def results_markdown(runs: Sequence[RunResults], picture: str, comparison: Comparison) -> str:
    """The part of the page between the markers.

    Args:
        runs: of `read_arms`.        picture: its file, relative to the page.
    """
    excluded = [run for run in runs if comparison.has_gate and gate_of(run).passed is False]
    compared = [run for run in runs if run not in excluded]
    parts = (
        [*_gate_part(runs, excluded)]
        if comparison.has_gate
        else ["Held out, at the end.", _gate_table(runs, has_gate=False)]
    )
    parts += [
        "Scores on the dev sets in %: the mean over pre-trainings and, in brackets, each, which is the median over the "
        "seeds of fine-tuning; without brackets: of one pre-training."
        + (f" The score is the mean of {', '.join(SCORE_TASKS)}." if SCORE in comparison.measures else ""),
        _score_table(runs, compared),
        "Differences in percentage points, 95 % intervals by Welch's t over pre-trainings. *Shown*: the interval is "
        "above 0; *reversed*: below 0; *not shown*: it contains 0; *no signal*: neither arm is ahead of an untrained "
        "encoder by as much as the column *either way*; *not run*: fewer than two pre-trainings a side.",
        _pair_table(compared, comparison),
        *_masked_lm_part(compared),
        *(_picture_part(runs, picture) if comparison.milestone_arms else ()),
    ]
    return "\n\n".join(part.rstrip("\n") if "\n" in part else textwrap.fill(part, _WIDTH) for part in parts) + "\n"


def _picture_part(runs: Sequence[RunResults], picture: str) -> list[str]:
    return [
        "Over the FLOPs that devices compute, the median over pre-trainings and the range. Scores before the end are "
        "of one seed of fine-tuning; a curve of scores is of the pre-trainings that have all its points. "
        + (
            "The discriminator of electra_15 is not shown: masked tokens alone count for it, which is another task. "
            * any(arm_of(run) == "electra_15" for run in runs)
        )
        + "Held-out text has the length of the stage at that step; on [MASK], ELECTRA's curves are its generator's.",
        f"![Scores, and what is learnt, over FLOPs]({picture})",
    ]


def picture_of(runs: Sequence[RunResults]) -> bytes:
    """Scores at the milestones and held-out metrics, over FLOPs, as PNG."""
    names = {SCORE: score_metric(f"mean of {', '.join(SCORE_TASKS)}"), PROBE: score_metric(PROBE)}
    groups = []
    for arm, members in grouped(runs, arm_of).items():
        # Every run gets the same scores, because a curve has only the steps that all its runs have.
        curves = {name: _curve_of(members, measure) for measure, name in names.items()}
        drawn = [dataclasses.replace(run, metrics=all_token_metrics(run), scores=curves) for run in members]
        groups.append(RunGroup(arm, tuple(drawn)))
    metrics = [name for name in (*names.values(), *_CURVES) if any(group.points(name) for group in groups)]
    return png_picture(groups, metrics, "hardware")


def _curve_of(runs: Sequence[RunResults], measure: str) -> dict[int, tuple[float, ...]]:
    """A measure by step. Only the runs with the largest number of fine-tuned milestones are included."""
    curves = []
    for run in runs:
        steps = sorted({step for by_step in run.scores.values() for step in by_step if step})
        scores = {step: task_score(run, measure, step) for step in steps}
        curves.append({step: score for step, score in scores.items() if score is not None})
    longest = max(curves, key=len)
    return {step: tuple(curve[step] for curve in curves if curve.keys() == longest.keys()) for step in longest}


def _gate_part(runs: Sequence[RunResults], excluded: Sequence[RunResults]) -> list[str]:
    """The gate, what each run has learnt, and the runs that the gate excludes."""
    return [
        f"Held out, at the end. To be compared ELECTRA must be {100 * MIN_MARGIN:.0f} % below the constant answer with "
        f"an AUC of {MIN_AUC}, BERT {MIN_NATS} nat below token frequencies on [MASK].",
        _gate_table(runs),
        f"Not compared, as they have not learnt enough: {', '.join(run.name for run in excluded) or 'none'}.",
    ]


def _gate_table(runs: Sequence[RunResults], has_gate: bool = True) -> str:
    headings = ["arm", "steps", "tokens", "FLOPs, paper", "hardware", "discriminator below a constant, %", "AUC, %"]
    headings += ["below token frequencies on [MASK], nat", *(["learnt enough", "seconds"] if has_gate else [])]
    rows = []
    for (arm, last), members in grouped(runs, lambda run: (arm_of(run), run.last_step)).items():
        gates = [gate_of(run) for run in members]
        spent = members[0].cost.spent(last)
        cells = [arm, f"{last:,}", f"{spent.token_slots / 1e6:.3g} M", f"{float(spent.paper):.4g}"]
        cells += [f"{spent.hardware.total:.4g}", percent(_known(gate.margin for gate in gates))]
        cells += [percent(_known(gate.auc for gate in gates))]
        cells += [mean_and_each(_known(gate.nats for gate in gates), 2)]
        if has_gate:
            passed = _known(gate.passed for gate in gates)
            cells.append(f"{sum(passed)} of {len(passed)}" if passed else "")
            seconds = _known(run.notes.get("training_seconds") for run in members)
            cells.append(f"{statistics.fmean(seconds):,.0f}" if seconds else "")
        rows.append(cells)
    return markdown_table(headings, rows)


def _score_table(runs: Sequence[RunResults], compared: Sequence[RunResults]) -> str:
    by_arm, columns = grouped(compared, arm_of), {}
    for task in (SCORE, PROBE, *SCORE_TASKS, *SMALL_TASKS, SQUAD):
        scores = [*(arm_scores(members, task) for members in by_arm.values()), arm_scores(runs, task, step=0)]
        if any(scores):
            columns[task] = [percent(each) for each in scores]
    names = [*by_arm, UNTRAINED]
    rows = [[name, *(cells[index] for cells in columns.values())] for index, name in enumerate(names)]
    rows = [row for row in rows if row[0] != UNTRAINED or any(row[1:])]
    return markdown_table(["arm", *columns], rows) if columns else "No encoder has been fine-tuned yet."


def _pair_table(compared: Sequence[RunResults], comparison: Comparison) -> str:
    headings = ["difference", "of", "pre-trainings", "mean", "95 % interval", "either way", "outcome"]
    by_arm, rows = grouped(compared, arm_of), []
    for pair in comparison.pairs:
        for measure in comparison.measures:
            scores = [arm_scores(by_arm.get(arm, ()), measure) for arm in pair]
            difference = compare(*scores, untrained=arm_scores(compared, measure, step=0))
            cells = [" - ".join(pair), measure, " and ".join(str(len(values)) for values in scores)]
            if difference.word == "not run":
                cells += ["", "", ""]
            else:
                interval = f"{100 * difference.low:+.2f} to {100 * difference.high:+.2f}"
                cells += [f"{100 * difference.difference:+.2f}", interval, f"{100 * difference.half_width:.2f}"]
            rows.append([*cells, difference.word])
    return markdown_table(headings, rows)


def _masked_lm_part(compared: Sequence[RunResults]) -> list[str]:
    """The accuracies of appendix G, if any were measured."""
    rows = []
    for arm, members in grouped(compared, arm_of).items():
        measured = [run.notes["as_masked_lm"] for run in members if "as_masked_lm" in run.notes]
        columns = [[metrics[name] for metrics in measured if name in metrics] for name in _ACCURACIES]
        if measured:
            rows.append([arm, *map(percent, columns)])
    headings = ["arm", "as a masked language model", "its generator", "[MASK]'s token among the candidates"]
    text = "Accuracy in % at single masked tokens (paper, appendix G): the mean over pre-trainings, and each."
    return [text, markdown_table(headings, rows)] if rows else []


def _known(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]
