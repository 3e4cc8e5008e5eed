"""The results of the replication as Markdown: the table of runs, and whether the order of table 4 shows."""

import itertools
import statistics
from collections.abc import Sequence

from benchmarks.replication.plan import CONVENTION, PAPER_SCORES
from electra_tf.reports.pictures import png_picture
from electra_tf.reports.runs import Point, RunGroup
from electra_tf.reports.tables import chosen_metrics, markdown_table

SCORE = "probe_score"
PICTURE_METRICS = (SCORE, "cola", "sst2", "masked_lm_accuracy", "replaced_token_auc", "replaced_token_loss")


def results_markdown(groups: Sequence[RunGroup]) -> str:
    """The table of runs, and whether the order of table 4 shows. Every run has a probe."""
    by_objective = {group.runs[0].config.objective.name: group for group in groups}
    parts = [markdown_table(groups, chosen_metrics(groups)), *_seeds(groups), "", *_order(by_objective)]
    return "\n".join(parts) + "\n"


def picture(groups: Sequence[RunGroup]) -> bytes:
    """The scores and held-out metrics over FLOPs, as PNG."""
    return png_picture(groups, [name for name in PICTURE_METRICS if name in chosen_metrics(groups)], CONVENTION)


def _seeds(groups: Sequence[RunGroup]) -> list[str]:
    """The number of seeds, and the scores of the untrained encoders beside those of the trained ones."""
    lines = [f"Medians over {len(groups[0].seeds)} seeds, lowest and highest in brackets."]
    untrained = [point for group in groups for point in group.points(SCORE) if point.step == 0]
    if not untrained:
        return lines
    lowest, highest = min(point.lowest for point in untrained), max(point.highest for point in untrained)
    median = statistics.median(point.median for point in untrained)
    ends = [end for group in groups if (end := group.last(SCORE)) is not None]
    above = sum(end.lowest > highest for end in ends)
    return [
        *lines,
        f"Untrained encoders of these seeds score {median:.3f} ({lowest:.3f} to {highest:.3f}).",
        f"Of the {len(ends)} objectives, {above} end above every untrained encoder with all seeds.",
    ]


def _order(groups: dict[str, RunGroup]) -> list[str]:
    """One row for each pair that table 4 orders, and a summary."""
    lines = [
        "| table 4 has above (GLUE) | below (GLUE) | here above, by the median? | ranges over seeds |",
        "|---|---|---|---|",
    ]
    agreeing, apart, opposed = 0, 0, 0
    pairs = [pair for pair in itertools.combinations(PAPER_SCORES, 2) if len(set(map(PAPER_SCORES.get, pair))) == 2]
    for pair in pairs:
        upper, lower = (groups[name].last(SCORE) for name in pair)
        assert upper is not None and lower is not None, "every run is probed at its end"
        is_above, are_apart = upper.median > lower.median, _are_apart(upper, lower)
        agreeing += is_above
        apart += is_above and are_apart
        opposed += not is_above and are_apart
        names = " | ".join(f"{name} ({PAPER_SCORES[name]})" for name in pair)
        verdict = f"{'yes' if is_above else 'no'}: {upper.median:.3f} and {lower.median:.3f}"
        lines.append(f"| {names} | {verdict} | {'apart' if are_apart else 'overlap'} |")
    return [
        *lines,
        "",
        f"Of the {len(pairs)} pairs that table 4 orders, the medians of the probe's mean score have {agreeing} in the "
        f"same order, {apart} of them with ranges apart. {opposed} are in the opposite order with ranges apart.",
    ]


def _are_apart(first: Point, second: Point) -> bool:
    return first.lowest > second.highest or second.lowest > first.highest
