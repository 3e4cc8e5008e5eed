"""Compares pre-training and fine-tuning with what the authors' own code computed.

    python -m benchmarks.parity DIR

DIR is a golden set, or holds sets at any depth. google-research/electra computed them with dropout off and greedy
sampling, from config.json and init.ckpt: the forward pass, every gradient, and trainings of some steps; in fine-tuning
also features and outputs for the dev set. Beside sets of fine-tuning are vocab.txt, inputs/, and the rows of all tasks.
The command loads each checkpoint into our model, compares everything that DIR holds, prints one table, and exits 1 if a
difference is above its tolerance. For features, texts and beam entries the difference is the number of those that
differ, and the tolerance is 0.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import print_table
from benchmarks.parity.golden import Comparison, GoldenSet, read_json
from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError


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
    from benchmarks.parity import finetuning, model, pretraining, text

    for directory in sets:
        is_pretraining = "electra_objective" in read_json(directory / "config.json")
        for comparison in (
            pretraining.comparisons(GoldenSet(directory))
            if is_pretraining
            else finetuning.comparisons(model.FinetuningSet(directory))
        ):
            yield comparison._replace(what=f"{directory.name}: {comparison.what}")
    for folder in beside:
        if (file := folder / "glue_features.jsonl.xz").exists():
            yield Comparison(file.name, text.glue_differences(file), finetuning.EXACT)


if __name__ == "__main__":
    sys.exit(main())
