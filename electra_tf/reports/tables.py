"""Results of runs as a Markdown table."""

from collections.abc import Sequence

from electra_tf.config.errors import UserError
from electra_tf.reports.runs import Point, RunGroup

# The usual metrics, shown if a run has them, and their headings. Another metric's heading is its name.
HEADINGS = {
    "probe_score": "probe, mean",
    "cola": "CoLA, Matthews",
    "sst2": "SST-2, accuracy",
    "masked_lm_loss": "masked-LM loss",
    "masked_lm_accuracy": "masked-LM accuracy",
    "encoder_masked_lm_accuracy": "of the encoder",
    "replaced_token_loss": "replaced-token loss",
    "constant_predictor_loss": "of a constant",
    "replaced_token_auc": "replaced-token AUC",
}


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
    headings = ["run", "seeds", "steps", "FLOPs", "hardware", "tokens", *(HEADINGS.get(name, name) for name in metrics)]
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    for group in groups:
        step, costs = group.last_step, ("", "", "")
        if group.cost is not None:
            spent = group.cost.spent(step)
            costs = f"{float(spent.paper):.3g}", f"{spent.hardware.total:.3g}", f"{spent.token_slots / 1e6:.3g} M"
        cells = [group.label.replace("|", "\\|"), ", ".join(map(str, group.seeds)), f"{step:,}", *costs]
        cells += [_cell(group.last(metric)) for metric in metrics]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(point: Point | None) -> str:
    if point is None:
        return ""
    span = f" ({point.lowest:.3f} to {point.highest:.3f})" if point.lowest != point.highest else ""
    return f"{point.median:.3f}{span}"
