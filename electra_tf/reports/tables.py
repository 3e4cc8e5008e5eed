"""Results of runs as Markdown tables."""

from collections.abc import Sequence

from electra_tf.config.errors import UserError
from electra_tf.data.tables import markdown_table
from electra_tf.reports.runs import Point, RunGroup

# The usual metrics, shown if a run has them, and their headings. Another metric's heading is its name.
HEADINGS = {
    "masked_lm_loss": "masked-LM loss",
    "masked_lm_accuracy": "masked-LM accuracy",
    "mask_token_loss": "loss on [MASK]",
    "unigram_loss": "unigram loss",
    "mask_token_accuracy": "accuracy on [MASK]",
    "encoder_masked_lm_accuracy": "encoder's masked-LM accuracy",
    "replaced_token_loss": "replaced-token loss",
    "constant_predictor_loss": "constant predictor's loss",
    "replaced_token_auc": "replaced-token AUC",
}
_COST_HEADINGS = ("run", "seeds", "steps", "FLOPs", "hardware", "tokens")


def heading(metric: str) -> str:
    """The heading of a metric in tables and pictures."""
    return HEADINGS.get(metric, metric)


def chosen_metrics(groups: Sequence[RunGroup], names: Sequence[str] | None = None) -> list[str]:
    """The metrics to show: `names`, or by default the metrics of `HEADINGS` that a group has.

    Raises: UserError: no run has one of these metrics.
    """
    runs = [run for group in groups for run in group.runs]
    known = {metric for run in runs for values in run.metrics.values() for metric in values}
    if unknown := next((name for name in names or () if name not in known), None):
        raise UserError(f"--metric: no run has {unknown!r}; there are: {', '.join(sorted(known))}")
    return list(names or (metric for metric in HEADINGS if any(group.points(metric) for group in groups)))


def runs_table(groups: Sequence[RunGroup], metrics: Sequence[str]) -> str:
    """One row for each group, at its last step: the median over seeds, and the range.

    The columns `FLOPs` (paper convention), `hardware` and `tokens` (with padding) are empty for an objective without
    `phase_costs`.
    """
    rows = [
        [*_cost_cells(group, group.last_step), *(cell(group.last(metric)) for metric in metrics)] for group in groups
    ]
    return markdown_table([*_COST_HEADINGS, *map(heading, metrics)], rows)


def points_table(groups: Sequence[RunGroup], metric: str) -> str:
    """One row for each group and each step with a value of the metric; the last column counts the values."""
    rows = [
        [*_cost_cells(group, point.step), cell(point), str(len(group.values(metric, point.step)))]
        for group in groups
        for point in group.points(metric)
    ]
    return markdown_table([*_COST_HEADINGS, heading(metric), "values"], rows)


def _cost_cells(group: RunGroup, step: int) -> list[str]:
    """The cells below `_COST_HEADINGS`: a group, and its cost up to a step."""
    spent = group.cost.spent(step)
    costs = [f"{float(spent.paper):.3g}", f"{spent.hardware.total:.3g}", f"{spent.token_slots / 1e6:.3g} M"]
    return [group.label, ", ".join(map(str, group.seeds)), f"{step:,}", *costs]


def cell(point: Point | None) -> str:
    """The cell of a median, with its range if that is not a single value; empty without a value."""
    if point is None:
        return ""
    span = f" ({point.lowest:.3f} to {point.highest:.3f})" if point.lowest != point.highest else ""
    return f"{point.median:.3f}{span}"
