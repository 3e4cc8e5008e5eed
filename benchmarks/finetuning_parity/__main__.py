"""Compares fine-tuning with what the authors' own code computed.

    python -m benchmarks.finetuning_parity DIR

DIR holds golden sets, or is one set. The sets come from google-research/electra with dropout off. Each is a directory
with config.json, init.ckpt, batches.npz, forward.npz, gradients.npz, trajectories, features.jsonl.xz and outputs for
the dev set. Beside them are vocab.txt, inputs/, and cases for readers, scorers, spans and learning rates. The command
loads each checkpoint into our model and compares everything that DIR holds. It prints one table, and exits 1 if a
difference is above its tolerance. For features, texts and beam entries the difference is the number of those that
differ, and the tolerance is 0.
"""

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import Verdict
from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError

# The README of the golden sets recommends most of these. It measured by how much the authors' own numbers change when
# the initial weights change by a rounding: up to 8e-6 in the forward pass, 2e-6 in gradients.
NONE = 0.0
EXACT = 1e-9  # scores
FORWARD = 1e-5
MASKED_LOGITS = 2e-4  # near -1000, where a float32 has steps of 6e-5
GRADIENTS = 2e-5  # relative to the largest entry of each
NORMS = 1e-5
LOSSES = 2e-5  # relative to the larger of 1 and the loss
RATES = 1e-6  # relative to the peak
FINAL_VARIABLES = 2e-6
PROBABILITIES = 1e-7  # in n-best lists; theirs are rounded by a float32 exponential, 2e-8


class Comparison(NamedTuple):
    """Differences by name, with their common tolerance."""

    what: str
    differences: dict[str, float]
    tolerance: float

    def verdict(self) -> tuple[Verdict, str]:
        """The verdict on the largest difference, and the name of that difference. NaN is larger than any number."""
        name = max(self.differences, key=lambda name: (math.isnan(self.differences[name]), self.differences[name]))
        return Verdict(self.what, self.differences[name], self.tolerance, is_ceiling=True), name


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR", help="golden sets and the files beside them, or one set")
    parser.add_argument(
        "--bert_vocabulary",
        type=Path,
        metavar="FILE",
        help="BERT's uncased vocab.txt, to compare also the windows of squad_features_bert_vocab.jsonl.xz",
    )
    arguments = parser.parse_args(argv)
    return run_command(lambda: compare(arguments))


def compare(arguments: argparse.Namespace) -> bool:
    """Runs every comparison and prints the table. Returns: whether all are within their tolerances."""
    sets, golden = _sets(arguments.directory)
    verdicts = []
    print(f"{'what':54} {'difference':>10} {'tolerance':>9}        largest difference")
    for comparison in _comparisons(sets, golden, arguments.bert_vocabulary):
        if not comparison.differences:
            continue
        verdict, name = comparison.verdict()
        result = "PASS" if verdict.holds else "FAIL"
        print(f"{verdict.name:54} {verdict.value:10.1e} {verdict.limit:9.0e}  {result}  {name}", flush=True)
        verdicts.append(verdict)
    failed = [verdict.name for verdict in verdicts if not verdict.holds]
    print(f"{len(verdicts) - len(failed)} of {len(verdicts)} hold" + (f"; not: {', '.join(failed)}" if failed else ""))
    return not failed


def _sets(directory: Path) -> tuple[list[Path], Path | None]:
    """The sets to compare, and the directory of the files beside them; None: these are not compared."""
    if (directory / "config.json").is_file():
        return [directory.resolve()], None
    sets = [path.parent for path in sorted(directory.glob("*/config.json"))]
    if not sets:
        raise UserError(f"{directory} is no golden set and holds none; give one with config.json, or its directory")
    return sets, directory


def _comparisons(sets: list[Path], golden: Path | None, bert_vocabulary: Path | None) -> Iterator[Comparison]:
    for directory in sets:
        for what, differences, tolerance in _of_set(directory):
            yield Comparison(f"{directory.name}: {what}", differences, tolerance)
    if golden is not None:
        yield from _of_files(golden, bert_vocabulary)


def _of_set(directory: Path) -> Iterator[Comparison]:
    from benchmarks.finetuning_parity import model, outputs, squad, text, training

    golden = model.GoldenSet(directory)
    task = golden.build()
    golden.load(task, golden.weights)
    of_features = {"question_answering": squad.feature_differences, "tagging": text.tagging_differences}
    yield Comparison("features", of_features.get(golden.kind, text.feature_differences)(directory), NONE)
    forward, masked = model.forward_differences(golden, task)
    yield Comparison("forward", forward, FORWARD)
    yield Comparison("forward, masked logits", masked, MASKED_LOGITS)
    gradients, norm = training.gradient_differences(golden, task)
    yield Comparison("gradients", gradients, GRADIENTS)
    yield Comparison("gradient norms", norm, NORMS)
    yield Comparison("variables with weight decay", training.weight_decay_differences(golden, task), NONE)
    trajectories = {
        "trajectory_dense_norm.npz": ("training", training.dense_norm_trajectory),
        "trajectory.npz": ("training, unmerged norm", training.unmerged_norm_trajectory),
    }
    tolerances = {"losses": LOSSES, "clip norms": NORMS, "learning rates": RATES}
    for file, (what, function) in trajectories.items():
        if golden.has(file):
            for part, differences in function(golden, task).items():
                yield Comparison(f"{what}: {part}", differences, tolerances.get(part, FINAL_VARIABLES))
    if golden.has("dev_outputs.npz"):
        of_outputs, of_predictions = outputs.dev_differences(golden, task)
        yield Comparison("dev outputs", of_outputs, FORWARD)
        yield Comparison("dev predictions", of_predictions, NONE)
        yield Comparison("dev scores", text.dev_score_differences(directory), EXACT)
    if golden.has("inference.npz"):
        yield from _of_beams("inference", outputs.inference_differences(golden, task))
        answers = squad.answer_differences(directory)
        probabilities = {name: answers.pop(name) for name in list(answers) if name.endswith("probabilities")}
        yield Comparison("answers and their scores", answers, EXACT)
        yield Comparison("n-best probabilities", probabilities, PROBABILITIES)
    if golden.has("variants.npz"):
        for variant, differences in outputs.variant_differences(golden).items():
            yield from _of_beams(variant, differences)


def _of_beams(what: str, differences: tuple[dict[str, float], ...]) -> Iterator[Comparison]:
    for part, each, tolerance in zip(
        ("", ", masked logits", ", beam entries"), differences, (FORWARD, MASKED_LOGITS, NONE), strict=True
    ):
        yield Comparison(f"{what}{part}", each, tolerance)


def _of_files(golden: Path, bert_vocabulary: Path | None) -> Iterator[Comparison]:
    from benchmarks.finetuning_parity import schedule, squad, text

    layerwise = golden.resolve().parent / "layerwise_lr.json"
    checks = [
        (golden / "glue_features.jsonl.xz", text.glue_differences, EXACT),
        (golden / "scorers.json", text.scorer_differences, EXACT),
        (golden / "tag_spans.jsonl.xz", text.span_differences, NONE),
        (golden / "final_text.jsonl.xz", squad.realignment_differences, NONE),
        (golden / "squad_answer_metrics.json", squad.answer_metric_differences, NONE),
        (golden / "squad_official_eval.json", squad.official_score_differences, NONE),
        (golden / "lr_schedule.json", schedule.rate_differences, RATES),
        (golden / "steps.json", schedule.step_differences, EXACT),
        (layerwise, lambda _: schedule.multiplier_differences(layerwise), EXACT),
    ]
    if bert_vocabulary is not None:
        windows = golden / "squad_features_bert_vocab.jsonl.xz"
        checks.append((windows, lambda golden: squad.bert_vocabulary_differences(golden, bert_vocabulary), NONE))
    for file, function, tolerance in checks:
        if file.exists():
            yield Comparison(file.name, function(golden), tolerance)


if __name__ == "__main__":
    sys.exit(main())
