"""What the runs of a search have reached: a line for each, and a table of all, the best first."""

import math
import statistics
from collections.abc import Mapping, Sequence

from benchmarks.search.grid import SearchRun
from electra_tf.reports.reading import read_run
from electra_tf.reports.runs import RunGroup, RunResults
from electra_tf.reports.tables import chosen_metrics, markdown_table
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.reported_lines import reports_of
from electra_tf.tasks.pretrain.config import ObjectiveSettings

_SPEED = "k tokens/s"
# Of an objective with several losses, the first of these is the encoder's.
_ENCODER_LOSSES = ("replaced_token", "encoder_masked_lm", "all_tokens_lm", "masked_lm")


def run_line(run: SearchRun, failure: str | None) -> str:
    """How a run has ended, in one line."""
    if failure:
        return f"{run.name} failed: {failure}"
    group = RunGroup(run.name, (_results(run),))
    return f"{run.name}: " + ", ".join(f"{name} {group.last(name).median:.4g}" for name in _metrics([group]))


def results_markdown(runs: Sequence[SearchRun], failures: Mapping[str, str], sort: str | None) -> str:
    """The table, one row a combination, and the runs that failed.

    Args:
        failures: by the run's name.
        sort: a held-out metric; None: the own loss of each objective, whose rows then stand together.
    Raises: UserError: if no run has that metric; it lists the existing ones.
    """
    finished: dict[str, list[RunResults]] = {}
    for run in runs:
        if run.name not in failures:
            finished.setdefault(run.combination, []).append(_results(run))
    groups = [RunGroup(combination, tuple(members)) for combination, members in finished.items()]
    lines = [f"- {name} failed: {failure}\n" for name, failure in failures.items()]
    if groups:
        metrics = list(dict.fromkeys([*(chosen_metrics(groups, [sort]) if sort else ()), *_metrics(groups)]))
        train, order = runs[0].config.train, sort or "each objective's own held-out loss"
        note = f"\nEach run may cost {train.flops_budget:g} FLOPs ({train.flops_convention}). Sorted by {order}.\n"
        lines = [markdown_table(_sorted(groups, sort), metrics), note, *(["\n"] if lines else []), *lines]
    return "".join(lines)


def own_loss(objective: ObjectiveSettings) -> str:
    """The held-out loss of an objective's encoder."""
    losses = [name for name, weight in objective.loss_weights.items() if weight > 0] or ["masked_lm"]
    return f"{next((name for name in _ENCODER_LOSSES if name in losses), losses[0])}_loss"


def _results(run: SearchRun) -> RunResults:
    """What the directory of a finished run holds, with the median speed of its reports at the last step."""
    results = read_run(run.directory)
    reports = reports_of(RunDirectory(run.directory).metrics_file, "train")
    speeds = [report["tokens_per_second"] / 1e3 for report in reports if "tokens_per_second" in report]
    if speeds:
        results.metrics[results.last_step][_SPEED] = statistics.median(speeds)
    return results


def _metrics(groups: Sequence[RunGroup]) -> list[str]:
    known = dict.fromkeys((*chosen_metrics(groups), _SPEED))
    return [name for name in known if any(group.last(name) for group in groups)]


def _sorted(groups: Sequence[RunGroup], sort: str | None) -> list[RunGroup]:
    objectives = list(dict.fromkeys(group.runs[0].config.objective.name for group in groups))

    def rank(group: RunGroup) -> tuple[int, float]:
        objective = group.runs[0].config.objective
        metric = sort or own_loss(objective)
        last = group.last(metric)
        value = math.inf if last is None else last.median if "loss" in metric else -last.median
        return (0 if sort else objectives.index(objective.name), value)

    return sorted(groups, key=rank)
