"""Results of runs as a Markdown table."""

from collections.abc import Sequence

from electra_tf.config.errors import UserError
from electra_tf.reports.runs import Point, RunGroup

# By name: the column's heading. Shown are those that some run has; names of other metrics stand for themselves.
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


def known_metrics(groups: Sequence[RunGroup]) -> list[str]:
    """The metrics of `HEADINGS` that some of the groups have."""
    return [metric for metric in HEADINGS if any(group.points(metric) for group in groups)]


def chosen_metrics(groups: Sequence[RunGroup], names: Sequence[str] | None) -> list[str]:
    """The metrics of these names, or without names those of `HEADINGS` that some of the groups have.

    Raises: UserError: if no run has a metric of a name; it lists those that there are.
    """
    found = {metric for group in groups for run in group.runs for values in run.metrics.values() for metric in values}
    for name in names or ():
        if name not in found:
            raise UserError(f"no run has a metric {name!r}; there are: {', '.join(sorted(found))}")
    return list(names or known_metrics(groups))


def markdown_table(groups: Sequence[RunGroup], metrics: Sequence[str]) -> str:
    """One row a group, at the end of its training: the median over seeds, and behind it the lowest and highest.

    FLOPs are counted as in the paper; `hardware` are those that devices computed. Tokens include padding.
    """
    headings = ["run", "seeds", "steps", "FLOPs", "hardware", "tokens", *(HEADINGS.get(name, name) for name in metrics)]
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    for group in groups:
        step = group.last_step
        cells = [
            group.label.replace("|", "\\|"),
            ", ".join(map(str, group.seeds)),
            f"{step:,}",
            *_cost_cells(group, step),
            *(_cell(group.last(metric)) for metric in metrics),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cost_cells(group: RunGroup, step: int) -> tuple[str, str, str]:
    """FLOPs in both conventions, and tokens; empty where the objective does not describe its steps."""
    cost = group.runs[0].cost
    if cost is None:
        return "", "", ""
    spent = cost.spent(step)
    return f"{float(spent.paper):.3g}", f"{spent.hardware.total:.3g}", f"{spent.token_slots / 1e6:.3g} M"


def _cell(point: Point | None) -> str:
    if point is None:
        return ""
    if point.lowest == point.highest:
        return f"{point.median:.3f}"
    return f"{point.median:.3f} ({point.lowest:.3f} to {point.highest:.3f})"
