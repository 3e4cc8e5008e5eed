"""The ladder: whether the gap between ELECTRA and BERT in a task closes with the length of training.

    python -m experiments.replication.ladder --picture=docs/notes/ladder.png

Reads experiments/replication/records/ladder_STEPS.jsonl, a file for each rung, and prints a table and the slope for
each task. The registrations are in docs/notes/replication.md and replication_records.md.
"""

import json
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command
from electra_tf.data.tables import markdown_table
from experiments.replication.arms import ARMS, TASKS

RECORDS = Path(__file__).parent / "records"
CONFIDENCE = 0.95


class Rung(NamedTuple):
    """The scores of one task after one length of training.

    Attributes:
        steps: of ELECTRA; they set the budget.        flops: the budget, as devices compute them.
        scores: of each arm in percent: for each pre-training the median over the seeds of fine-tuning.
    """

    steps: int
    flops: float
    scores: tuple[list[float], list[float]]

    @property
    def gap(self) -> tuple[float, float]:
        """ELECTRA's lead in points, and the half width of its 95 % interval by Welch's t."""
        test = stats.ttest_ind(*self.scores, equal_var=False)
        interval = test.confidence_interval(CONFIDENCE)
        return statistics.mean(self.scores[0]) - statistics.mean(self.scores[1]), (interval.high - interval.low) / 2


def read_rungs(task: str) -> list[Rung]:
    """The rungs with at least two scored pre-trainings of each arm."""
    rungs = []
    # SQuAD's official script gives percentages, the others fractions.
    scale = 1.0 if task.startswith("squad") else 100.0
    for file in RECORDS.glob("ladder_[0-9]*.jsonl"):
        by_arm: dict[str, list[float]] = {arm: [] for arm in ARMS}
        flops = 0.0
        for record in map(json.loads, file.read_text().splitlines()):
            for result in (each["results"][-1] for each in record["finetuned"] if each["task"] == task):
                by_arm[record["notes"]["arm"]].append(scale * result["median"])
                flops = result["hardware_flops"]
        if min(map(len, by_arm.values())) > 1:
            rungs.append(Rung(int(file.stem.removeprefix("ladder_")), flops, (by_arm[ARMS[0]], by_arm[ARMS[1]])))
    return sorted(rungs)


def slope(rungs: list[Rung]) -> tuple[float, float, float]:
    """The change of the gap per tenfold FLOPs: value and ends of its 95 % interval.

    By least squares over all runs, with a level and a slope for each arm.
    """
    rows = [(np.log10(rung.flops), arm, score) for rung in rungs for arm in (0, 1) for score in rung.scores[arm]]
    logs, arms, scores = np.array(rows).T
    is_electra = 1.0 - arms
    design = np.stack([np.ones_like(logs), logs, is_electra, is_electra * logs], axis=1)
    coefficients, *_ = np.linalg.lstsq(design, scores, rcond=None)
    freedom = len(rows) - design.shape[1]
    variance = np.sum((scores - design @ coefficients) ** 2) / freedom
    half = stats.t.ppf(0.5 + CONFIDENCE / 2, freedom) * np.sqrt(variance * np.linalg.inv(design.T @ design)[3, 3])
    return coefficients[3], coefficients[3] - half, coefficients[3] + half


def draw(rungs: list[Rung], file: Path) -> None:
    """The gap of each rung with its interval, over FLOPs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 3.2), layout="constrained")
    axes = figure.add_subplot()
    gaps, halves = zip(*(rung.gap for rung in rungs), strict=True)
    axes.axhline(0.0, color="0.6", linewidth=1)
    axes.errorbar([rung.flops for rung in rungs], gaps, halves, marker="o", capsize=4, color="#3b7dd8")
    axes.set(xscale="log", xlabel="FLOPs, as devices compute them", ylabel="ELECTRA - BERT, points")
    for rung, gap in zip(rungs, gaps, strict=True):
        axes.annotate(f"{rung.steps:,} steps", (rung.flops, gap), (8, -4), textcoords="offset points", va="top")
    axes.margins(x=0.15)
    figure.savefig(file, dpi=150)


def report(picture: Path | None) -> None:
    for task in TASKS:
        rungs = read_rungs(task)
        rows = []
        for rung in rungs:
            each = [f"{statistics.mean(of):.1f} ({', '.join(f'{score:.1f}' for score in of)})" for of in rung.scores]
            gap, half = rung.gap
            rows.append([f"{rung.steps:,}", f"{rung.flops:.3g}", *each, f"{gap:+.2f}", f"{half:.2f}"])
        print(f"\n{task}\n\n{markdown_table(['steps', 'FLOPs', *ARMS, 'gap', 'either way (95 %)'], rows)}\n")
        value, low, high = slope(rungs)
        print(f"Ten times the FLOPs change the gap by {value:+.2f} points ({low:+.2f} to {high:+.2f}).")
        if picture and task == "truecasing":
            draw(rungs, picture)


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="where to draw truecasing's gap")
    picture = parser.parse_args(argv).picture
    return run_command(lambda: report(picture))


if __name__ == "__main__":
    sys.exit(main())
