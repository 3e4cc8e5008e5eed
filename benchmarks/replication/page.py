"""docs/replication.md: what the runs of `benchmarks/replication.py` came to, and whether the paper's order shows."""

import itertools
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.replication import CONVENTION, PAPER_SCORES
from electra_tf.reports.pictures import png_picture
from electra_tf.reports.runs import Point, RunGroup
from electra_tf.reports.tables import known_metrics, markdown_table
from electra_tf.runs.directory import write_atomically

SCORE = "probe_score"
PICTURE_METRICS = (SCORE, "cola", "sst2", "masked_lm_accuracy", "replaced_token_auc", "replaced_token_loss")


def write_page(page: Path, groups: Sequence[RunGroup], electra_steps: int) -> None:
    """Writes the page, and its picture beside it. Raises: UserError: if a run has no probe, or the disk is full."""
    picture = page.with_suffix(".png")
    metrics = [metric for metric in PICTURE_METRICS if metric in known_metrics(groups)]
    write_atomically(picture, png_picture(groups, metrics, CONVENTION))
    by_objective = {group.runs[0].config.objective.name: group for group in groups}
    seeds = groups[0].seeds
    untrained = [point for group in groups for point in group.points(SCORE) if point.step == 0]
    parts = [
        _INTRODUCTION.format(
            command=_command(seeds, electra_steps),
            num_seeds=len(seeds),
            machine=_machine(),
            rates=_rates(groups),
        ),
        markdown_table(groups, known_metrics(groups)),
        f"\nMedians over {len(seeds)} seeds, lowest and highest in brackets. " + _untrained(untrained),
        f"\n![Scores and held-out metrics over FLOPs]({picture.name})\n",
        "\n## Does the paper's order show?\n\n" + _order(by_objective) + _against_untrained(untrained, groups),
        _CAVEATS,
    ]
    write_atomically(page, "".join(parts).encode())


def _command(seeds: Sequence[int], electra_steps: int) -> str:
    chosen = " ".join(map(str, seeds))
    return (
        f"python -m benchmarks.replication --data_dir=DATA --glue_dir=GLUE --output_dir=RUNS --seeds {chosen} \\\n"
        f"    --electra_steps={electra_steps} --markdown=docs/replication.md"
    )


def _machine() -> str:
    import tensorflow as tf

    versions = f"Python {platform.python_version()}, TensorFlow {tf.__version__}"
    return f"{os.cpu_count()} cores of {platform.machine()}, {versions}"


def _rates(groups: Sequence[RunGroup]) -> str:
    rates = [run.tokens_per_second for group in groups for run in group.runs if run.tokens_per_second]
    if not rates:
        return ""
    return f" The slowest run read {min(rates) / 1e3:.1f} k tokens/s, the fastest {max(rates) / 1e3:.1f} k."


def _untrained(untrained: Sequence[Point]) -> str:
    if not untrained:
        return ""
    lowest, highest = min(point.lowest for point in untrained), max(point.highest for point in untrained)
    median = statistics.median(point.median for point in untrained)
    return f"Untrained encoders of these seeds score {median:.3f} ({lowest:.3f} to {highest:.3f}).\n"


def _against_untrained(untrained: Sequence[Point], groups: Sequence[RunGroup]) -> str:
    """Whether anything was learnt that the score could order."""
    if not untrained:
        return ""
    highest = max(point.highest for point in untrained)
    ends = [end for group in groups if (end := group.last(SCORE)) is not None]
    above = sum(end.lowest > highest for end in ends)
    found = f"\nOf the {len(ends)} objectives, {above} end above every untrained encoder with all seeds."
    return found + (
        "\n" if above else " So at this size the score tells nothing of what they have learnt, nor of an order.\n"
    )


def _order(groups: dict[str, RunGroup]) -> str:
    """One row a pair that table 4 orders, and what they sum up to."""
    lines = [
        "| table 4 has above (GLUE) | below (GLUE) | here above, by the median? | ranges over seeds |",
        "|---|---|---|---|",
    ]
    agreeing, apart, opposed = 0, 0, 0
    pairs = [
        pair for pair in itertools.combinations(PAPER_SCORES, 2) if len({PAPER_SCORES[name] for name in pair}) == 2
    ]
    for upper, lower in pairs:
        ends = groups[upper].last(SCORE), groups[lower].last(SCORE)
        assert None not in ends, "every run is probed at its end"
        is_above, are_apart = ends[0].median > ends[1].median, _are_apart(*ends)
        agreeing += is_above
        apart += is_above and are_apart
        opposed += not is_above and are_apart
        named = [f"{name} ({PAPER_SCORES[name]})" for name in (upper, lower)]
        values = [f"{end.median:.3f}" for end in ends]
        lines.append(
            f"| {' | '.join(named)} | {'yes' if is_above else 'no'}: {values[0]} and {values[1]} | "
            f"{'apart' if are_apart else 'overlap'} |"
        )
    summary = (
        f"Of the {len(pairs)} pairs that table 4 orders, the medians of the probe's mean score order {agreeing} as "
        f"there; for {apart} of these the ranges over seeds do not overlap. {opposed} are the other way round with "
        "ranges apart.\n"
    )
    return "\n".join(lines) + "\n\n" + summary


def _are_apart(first: Point, second: Point) -> bool:
    return first.lowest > second.highest or second.lowest > first.highest


_INTRODUCTION = """# A small replication of table 4

Five objectives of the paper's section 3.5 at equal FLOPs: `configs/pretrain/replication/*.yaml`, two layers of 128
hidden units and a vocabulary of 8,192, on Wikipedia and novels in sequences of 128, {num_seeds} seeds each. The budget
is that of ELECTRA's steps, counted as devices compute ([flops.md](flops.md)); each objective trains for the steps that
it pays for, with one learning rate, warmed up and decayed to 0 over them. The paper's own rows have Base's size and are
fine-tuned on GLUE; [configs/README.md](../configs/README.md) has their files and scores.

The score is a first downstream reading: logistic regression on the mean vector of the frozen encoder's last layer, the
mean of Matthews' correlation on CoLA and the accuracy on SST-2, both on dev (`benchmarks/linear_probe.py`).

```
{command}
```

Run on {machine}.{rates} This page is written by that command.

## Results

"""

_CAVEATS = """
## What this says, and what not

- These models read a few million tokens; ELECTRA-Base of the paper has 766K x 256 x 512, 100 billion.
- The vocabulary is large beside a network of this width: All-Tokens MLM scores every token against all of it, and so
  has far fewer steps for the same FLOPs than it has in Base's size.
- Masked-LM accuracy is the generator's wherever there is one, and in BERT that of the network that is kept: it can be
  compared over FLOPs and seeds, and not between BERT and the others.
- A linear probe asks what can be read from the vectors as they are. The paper fine-tunes.
"""
