"""Compares pre-training and fine-tuning with what the authors' own code computed.

    python -m benchmarks.parity DIR

DIR is a golden set, or holds sets at any depth. google-research/electra computed them with dropout off and greedy
sampling, from config.json and init.ckpt: the forward pass, every gradient, and trainings of some steps; in fine-tuning
also features and outputs for the dev set. Beside sets of fine-tuning are vocab.txt, inputs/, and the rows of all tasks.
The command loads each checkpoint into our model, compares everything that DIR holds, prints one table, and exits 1 if a
difference is above its tolerance. For features, texts and beam entries the
difference is the number of those that differ, and the tolerance is 0.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import print_table
from benchmarks.parity.golden import Comparison, read_json
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
_OF_TRAINING = {"losses": LOSSES, "clip norms": NORMS, "learning rates": RATES}
_OF_BEAMS = {"": FORWARD, ", masked logits": MASKED_LOGITS, ", beam entries": NONE}


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR", help="golden sets and the files beside them, or one set")
    directory = parser.parse_args(argv).directory
    return run_command(lambda: compare(directory))


def compare(root: Path) -> bool:
    """Runs every comparison and prints the table. Returns: whether all are within their tolerances."""
    sets = [path.parent.resolve() for path in sorted(root.rglob("config.json"))]
    if not sets:
        raise UserError(f"{root} is no golden set and holds none; give one with config.json, or a directory of sets")
    # What is beside sets is compared, unless one set alone is given.
    beside = [] if (root / "config.json").is_file() else sorted({directory.parent for directory in sets})
    rows, failed = [], []
    for comparison in _comparisons(sets, beside):
        if comparison.differences:
            name, value = comparison.largest()
            holds = value <= comparison.tolerance
            result = "PASS" if holds else "FAIL"
            rows.append([comparison.what, f"{value:.1e}", f"{comparison.tolerance:.0e}", result, name])
            failed += [] if holds else [comparison.what]
    headings = ["what", "difference", "tolerance", "", "largest difference"]
    print_table("Differences from what the authors' code computed", headings, rows)
    print(f"{len(rows) - len(failed)} of {len(rows)} hold" + (f"; not: {', '.join(failed)}" if failed else ""))
    return not failed


def _comparisons(sets: list[Path], beside: list[Path]) -> Iterator[Comparison]:
    from benchmarks.parity import pretraining, text

    for directory in sets:
        settings = read_json(directory / "config.json")
        is_pretraining = "electra_objective" in settings
        for what, differences, tolerance in (
            pretraining.comparisons(directory, settings) if is_pretraining else _of_finetuning(directory)
        ):
            yield Comparison(f"{directory.name}: {what}", differences, tolerance)
    for golden in beside:
        if (file := golden / "glue_features.jsonl.xz").exists():
            yield Comparison(file.name, text.glue_differences(file), EXACT)


def _of_finetuning(directory: Path) -> Iterator[Comparison]:
    from benchmarks.parity import finetuning, outputs, squad, text

    golden = finetuning.GoldenSet(directory)
    task = golden.build()
    golden.load(task, golden.weights)
    of_features = {"question_answering": squad.feature_differences, "tagging": text.tagging_differences}
    yield Comparison("features", of_features.get(golden.kind, text.feature_differences)(directory), NONE)
    forward, masked = finetuning.forward_differences(golden, task)
    yield Comparison("forward", forward, FORWARD)
    yield Comparison("forward, masked logits", masked, MASKED_LOGITS)
    gradients, norm = finetuning.gradient_differences(golden, task)
    yield Comparison("gradients", gradients, GRADIENTS)
    yield Comparison("gradient norms", norm, NORMS)
    yield Comparison("variables with weight decay", finetuning.weight_decay_differences(golden, task), NONE)
    trajectories = {"": finetuning.dense_norm_trajectory, ", unmerged norm": finetuning.unmerged_norm_trajectory}
    for clipping, trajectory in trajectories.items():
        for part, differences in trajectory(golden, task).items():
            yield Comparison(f"training{clipping}: {part}", differences, _OF_TRAINING.get(part, FINAL_VARIABLES))
    if golden.has("dev_outputs.npz"):
        of_outputs, of_predictions = outputs.dev_differences(golden, task)
        yield Comparison("dev outputs", of_outputs, FORWARD)
        yield Comparison("dev predictions", of_predictions, NONE)
        yield Comparison("dev scores", text.dev_score_differences(directory), EXACT)
    if golden.has("inference.npz"):
        of_inference = outputs.inference_differences(golden, task)
        for (part, tolerance), differences in zip(_OF_BEAMS.items(), of_inference, strict=True):
            yield Comparison(f"inference{part}", differences, tolerance)
        answers = squad.answer_differences(directory)
        probabilities = {name: answers.pop(name) for name in list(answers) if name.endswith("probabilities")}
        yield Comparison("answers and their scores", answers, EXACT)
        yield Comparison("n-best probabilities", probabilities, PROBABILITIES)


if __name__ == "__main__":
    sys.exit(main())
