"""How well the discriminators of a comparison with a judge tell replaced tokens, and when they reach ELECTRA's AUC.

`own`: on the samples of a discriminator's own generator. `judged`: on those of the judge, the same for all.
"""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from electra_tf.reports.runs import RunResults, score_metric
from electra_tf.reports.tables import markdown_table
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.input import plan_stages
from electra_tf.train.timeline import milestone_steps
from experiments.replication.arms import AUXILIARY_OF, MILESTONES, PROBE, settings_of
from experiments.replication.outcome import arm_of, grouped, mean_and_each, task_score

KINDS = ("own", "judged")
_UNTRAINED_AUC = 0.5
_QUARTER_COLUMNS = {"own AUC": 3, "own loss": 1, "judged AUC": 3, "judged loss": 1, "F1": 1}  # decimals
Curve = Mapping[int, float]  # AUC by step


@dataclass(frozen=True)
class Trained:
    """What the tables need of a run, ours or PyTorch's.

    Attributes:
        curves: by `KINDS`.        below_constant: 1 - loss / a constant's loss at the end, by `KINDS`.
        seconds_until: CPU seconds of a number of steps; None: not measured.
        flops_until: hardware FLOPs of a number of steps.
    """

    arm: str
    num_steps: int
    curves: dict[str, Curve]
    below_constant: dict[str, float]
    seconds_until: Callable[[int], float] | None
    flops_until: Callable[[int], int]


class StepSeconds:
    """The seconds of steps, as `benchmarks.train_step.configurations` wrote them."""

    def __init__(self, file: Path):
        stages = json.loads(file.read_text(encoding="utf-8"))["stages"]
        self._rounds = {(stage["batch_size"], stage["max_seq_length"]): stage["seconds"] for stage in stages}

    def until(self, config: PretrainingConfig, name: str, step: int) -> float:
        """The seconds of the first steps of a run, with the median over rounds."""
        total = 0.0
        for plan in plan_stages(config):
            rounds = self._rounds[plan.batch_size, plan.config.data.max_seq_length]
            steps = min(max(step - plan.first_step, 0), plan.last_step - plan.first_step)
            total += steps * min(statistics.median(rounds[each]) for each in _measured_as(name, rounds))
        return total


def _measured_as(name: str, rounds: Mapping[str, list[float]]) -> list[str]:
    """The rows of a name: PyTorch has one for each way to compute products, the fastest of which counts."""
    return [each for each in rounds if each == name or (name.startswith("pytorch") and each.startswith(name))]


def trained_of(run: RunResults, seconds: StepSeconds | None) -> Trained | None:
    """A run of this project; None if it has no discriminator or the judge has not asked it."""
    judged = {int(step): metrics for step, metrics in run.notes.get("judged", {}).items()}
    end = run.metrics[run.last_step]
    if not judged or "replaced_token_auc" not in end:
        return None
    curves = {"own": {}, "judged": {step: metrics["auc"] for step, metrics in judged.items()}}
    curves["own"] = {step: metrics["replaced_token_auc"] for step, metrics in run.metrics.items()}
    last = judged[run.last_step]
    name = settings_of(arm_of(run))
    return Trained(
        arm_of(run),
        run.last_step,
        curves,
        {
            "own": 1.0 - end["replaced_token_loss"] / end["constant_predictor_loss"],
            "judged": 1.0 - last["loss"] / last["constant_loss"],
        },
        seconds and (lambda step: seconds.until(run.config, name, step)),
        lambda step: run.cost.spent(step).hardware.total,
    )


def pytorch_run(record: Mapping, ours: RunResults, seconds: StepSeconds | None) -> Trained:
    """A run of `benchmarks.train_step.pytorch_run`, which trained on the text of one of ours."""
    evaluations = {int(step): kinds for step, kinds in record["evaluations"].items()}
    end, name = evaluations[record["num_steps"]], f"pytorch_{settings_of(arm_of(ours))}"
    return Trained(
        f"{arm_of(ours)} in PyTorch",
        record["num_steps"],
        {kind: {step: kinds[kind]["auc"] for step, kinds in evaluations.items()} for kind in KINDS},
        {kind: 1.0 - end[kind]["loss"] / end[kind]["constant_loss"] for kind in KINDS},
        seconds and (lambda step: seconds.until(ours.config, name, step)),
        lambda step: ours.cost.spent(step).hardware.total,
    )


def first_step(curve: Curve, auc: float) -> int | None:
    """The first step at which a curve, straight between its points, has an AUC; None: it never has.

    It begins at step 0 with 0.5.
    """
    before, below = 0, _UNTRAINED_AUC
    for step, value in sorted(curve.items()):
        if value >= auc:
            return round(before + (step - before) * (auc - below) / (value - below))
        before, below = step, value
    return None


def end_table(trained: Sequence[Trained]) -> str:
    """AUC and loss at the end of training: the mean over pre-trainings, and each."""
    headings = ["arm", "AUC, own samples", "loss below a constant", "AUC, the judge's samples", "loss below a constant"]
    rows = []
    for arm, members in grouped(trained, attrgetter("arm")).items():
        cells = [arm]
        for kind in KINDS:
            cells += [mean_and_each([each.curves[kind][each.num_steps] for each in members], 3)]
            cells += [mean_and_each([100 * each.below_constant[kind] for each in members], 1, " %")]
        rows.append(cells)
    return markdown_table(headings, rows)


def quarter_table(runs: Sequence[RunResults]) -> str:
    """AUC, loss below a constant, and the scores of fine-tuning by quarter of a run, means over pre-trainings."""
    groups = grouped((run for run in runs if "judged" in run.notes and score_metric(PROBE) in run.scores), arm_of)
    headings = ["arm", "AUC, own samples", "loss below a constant, %"]
    headings += ["AUC, the judge's", "loss below a constant, %", "F1, %"]
    rows = []
    for arm, members in groups.items():
        quarters = [[_at_quarter(run, index) for run in members] for index in range(len(MILESTONES))]
        rows.append([arm, *(_by_quarter(quarters, column) for column in _QUARTER_COLUMNS)])
    return markdown_table(headings, rows)


def _at_quarter(run: RunResults, index: int) -> dict[str, float | None]:
    """The columns of a run at one of `MILESTONES`; of its own samples at the nearest evaluation."""
    step = milestone_steps(run.last_step, MILESTONES)[index]
    own, judged = run.metrics[min(run.metrics, key=lambda each: abs(each - step))], run.notes["judged"][str(step)]
    return {
        "own AUC": own["replaced_token_auc"],
        "own loss": 100.0 - 100.0 * own["replaced_token_loss"] / own["constant_predictor_loss"],
        "judged AUC": judged["auc"],
        "judged loss": 100.0 - 100.0 * judged["loss"] / judged["constant_loss"],
        "F1": None if (score := task_score(run, PROBE, step)) is None else 100.0 * score,
    }


def _by_quarter(quarters: Sequence[Sequence[Mapping[str, float | None]]], column: str) -> str:
    """The means of a column, one for each quarter; "-" if a run lacks it."""
    cells, digits = [], _QUARTER_COLUMNS[column]
    for members in quarters:
        values = [member[column] for member in members]
        # + 0.0 turns -0.0 into 0.0.
        cells.append("-" if None in values else f"{round(statistics.fmean(values), digits) + 0.0:.{digits}f}")
    return ", ".join(cells)


def target_table(trained: Sequence[Trained], auxiliary_seconds: Mapping[str, float]) -> str:
    """When each arm has the mean AUC that ELECTRA has at its end.

    Args:
        auxiliary_seconds: the CPU seconds of training each auxiliary model, by its arm.
    """
    groups = grouped(trained, attrgetter("arm"))
    headings = ["arm", "seconds in all"]
    for kind in ("own samples", "the judge's"):
        headings += [f"{kind}: CPU seconds to ELECTRA's AUC", "of ELECTRA's seconds", "of its FLOPs"]
    rows = []
    for arm, members in groups.items():
        cells = [arm, _seconds_of(members)]
        for kind in KINDS:
            cells += _until(members, groups["electra"], kind, auxiliary_seconds.get(AUXILIARY_OF.get(settings_of(arm))))
        rows.append(cells)
    return markdown_table(headings, rows)


def _until(members: Sequence[Trained], electra: Sequence[Trained], kind: str, auxiliary: float | None) -> list[str]:
    """Three cells: CPU seconds until ELECTRA's AUC, their share of ELECTRA's seconds, and the share of its FLOPs."""
    auc = statistics.fmean(each.curves[kind][each.num_steps] for each in electra)
    if members is electra:
        return [f"AUC {auc:.3f} at its end", "1.00", "1.00"]
    steps = [first_step(each.curves[kind], auc) for each in members]
    reached = [(each, step) for each, step in zip(members, steps, strict=True) if step is not None]
    if len(reached) < len(members):
        return [f"not reached by {len(members) - len(reached)} of {len(members)}", "", ""]
    whole = statistics.fmean(each.flops_until(each.num_steps) for each in electra)
    flops = f"{statistics.fmean(each.flops_until(step) for each, step in reached) / whole:.2f}"
    if any(each.seconds_until is None for each in (*members, *electra)):
        return ["", "", flops]
    whole = statistics.fmean(each.seconds_until(each.num_steps) for each in electra)
    seconds = [each.seconds_until(step) for each, step in reached]
    share = f"{statistics.fmean(seconds) / whole:.2f}"
    if auxiliary is not None:
        share += f" ({(statistics.fmean(seconds) + auxiliary) / whole:.2f} with its auxiliary model)"
    return [mean_and_each(seconds, 0), share, flops]


def peer_table(pairs: Sequence[tuple[Trained, Trained]]) -> str:
    """CPU seconds until the lower of the two last AUCs of a run of ours and PyTorch's on the same text.

    Raises: ValueError: if the seconds of steps are not measured.
    """
    headings = ["AUC", "the lower of the two at the end", "CPU seconds, ours", "PyTorch's", "ours / PyTorch's"]
    rows = []
    for kind, name in zip(KINDS, ("own samples", "the judge's"), strict=True):
        aucs = [min(each.curves[kind][each.num_steps] for each in pair) for pair in pairs]
        ours, theirs = (
            [_seconds_until(run, kind, auc) for run, auc in zip(runs, aucs, strict=True)]
            for runs in zip(*pairs, strict=True)
        )
        ratios = [own / other for own, other in zip(ours, theirs, strict=True)]
        cells = [mean_and_each(aucs, 3), mean_and_each(ours, 0), mean_and_each(theirs, 0), mean_and_each(ratios, 2)]
        rows.append([name, *cells])
    return markdown_table(headings, rows)


def _seconds_until(run: Trained, kind: str, auc: float) -> float:
    step = first_step(run.curves[kind], auc)
    if step is None or run.seconds_until is None:
        raise ValueError(f"{run.arm}: no seconds until an AUC of {auc:.3f} ({kind})")
    return run.seconds_until(step)


def _seconds_of(members: Sequence[Trained]) -> str:
    if any(each.seconds_until is None for each in members):
        return ""
    return f"{statistics.fmean(each.seconds_until(each.num_steps) for each in members):,.0f}"
