"""Results of runs as Markdown tables, and as data."""

from collections.abc import Sequence

from electra_tf.config.errors import UserError
from electra_tf.flops.budget import Spent
from electra_tf.reports.runs import Point, RunGroup, finetuned_task

# The usual metrics, shown if a run has them, and their headings. Another metric's heading is its name.
HEADINGS = {
    "masked_lm_loss": "masked-LM loss",
    "masked_lm_accuracy": "masked-LM accuracy",
    "mask_token_loss": "loss on [MASK]",
    "unigram_loss": "of token frequencies",
    "mask_token_accuracy": "accuracy on [MASK]",
    "encoder_masked_lm_accuracy": "of the encoder",
    "replaced_token_loss": "replaced-token loss",
    "constant_predictor_loss": "of a constant",
    "replaced_token_auc": "replaced-token AUC",
}


def heading(metric: str) -> str:
    """What a metric is called in tables and pictures."""
    task = finetuned_task(metric)
    return HEADINGS.get(metric, metric) if task is None else f"{task}, fine-tuned"


def chosen_metrics(groups: Sequence[RunGroup], names: Sequence[str] | None = None) -> list[str]:
    """The metrics of these names, or without names those of `HEADINGS` that some group has.

    Raises: UserError: if no run has a metric of a name; it lists the existing ones.
    """
    known = {metric for group in groups for run in group.runs for values in run.metrics.values() for metric in values}
    if unknown := next((name for name in names or () if name not in known), None):
        raise UserError(f"no run has a metric {unknown!r}; there are: {', '.join(sorted(known))}")
    return list(names or (metric for metric in HEADINGS if any(group.points(metric) for group in groups)))


def markdown_table(groups: Sequence[RunGroup], metrics: Sequence[str]) -> str:
    """One row a group, at the end of its training: the median over seeds, and behind it the lowest and highest.

    FLOPs are those of the paper's convention, `hardware` those that devices computed; both, and the tokens, padding
    included, are empty for an objective that does not describe its steps.
    """
    headings = ["run", "seeds", "steps", "FLOPs", "hardware", "tokens", *map(heading, metrics)]
    rows = []
    for group in groups:
        cells = _costs_until(group, group.last_step)
        rows.append([*cells, *(_cell(group.last(metric)) for metric in metrics)])
    return table_of(headings, rows)


def points_table(groups: Sequence[RunGroup], metric: str) -> str:
    """One row for each step of each group at which the metric is known, and how many values it is the median of."""
    headings = ["run", "seeds", "steps", "FLOPs", "hardware", "tokens", heading(metric), "values"]
    rows = [
        [*_costs_until(group, point.step), _cell(point), str(len(group.values(metric, point.step)))]
        for group in groups
        for point in group.points(metric)
    ]
    return table_of(headings, rows)


def points_data(groups: Sequence[RunGroup], metrics: Sequence[str]) -> dict:
    """What the tables and the picture show, as JSON takes it: groups, and of each the points of all metrics.

    FLOPs are null for an objective that does not describe its steps.
    """
    return {
        "groups": [
            {
                "label": group.label,
                "objective": group.runs[0].config.objective.name,
                "runs": [run.name for run in group.runs],
                "seeds": group.seeds,
                "points": [
                    {
                        "metric": metric,
                        **_flops(group, point.step),
                        **point._asdict(),
                        "values": group.values(metric, point.step),
                    }
                    for metric in metrics
                    for point in group.points(metric)
                ],
            }
            for group in groups
        ]
    }


def table_of(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def _spent(group: RunGroup, step: int) -> Spent | None:
    return None if group.cost is None else group.cost.spent(step)


def _flops(group: RunGroup, step: int) -> dict[str, float | None]:
    spent = _spent(group, step)
    if spent is None:
        return {"paper_flops": None, "hardware_flops": None}
    return {"paper_flops": float(spent.paper), "hardware_flops": spent.hardware.total}


def _costs_until(group: RunGroup, step: int) -> list[str]:
    """The first six cells of a row: which runs, and what they have cost until a step."""
    costs, spent = ["", "", ""], _spent(group, step)
    if spent is not None:
        costs = [f"{float(spent.paper):.3g}", f"{spent.hardware.total:.3g}", f"{spent.token_slots / 1e6:.3g} M"]
    return [group.label.replace("|", "\\|"), ", ".join(map(str, group.seeds)), f"{step:,}", *costs]


def _cell(point: Point | None) -> str:
    if point is None:
        return ""
    span = f" ({point.lowest:.3f} to {point.highest:.3f})" if point.lowest != point.highest else ""
    return f"{point.median:.3f}{span}"
