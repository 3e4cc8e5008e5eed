"""Trains every ablation of configs/pretrain/ablations for some steps at a tiny size on real data.

    python -m benchmarks.ablations --data_dir=DATA --output_dir=RUNS

Sizes are reduced (`electra_tf.tasks.pretrain.reduction`) to the data set's vocabulary and length; rates,
weights and kinds are each file's own. Every run is a process of its own. Prints a Markdown table: for each phase of a
run the loss of its first and of its last report, and what the last one says beside. Exits 1 unless every number is
finite and the loss falls in every phase (but for `adversarial`, whose two networks train against each other).
"""

import itertools
import math
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from electra_tf.cli.flags import flag_parser, run_command
from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.runs.directory import RATES
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from electra_tf.tasks.pretrain.reduction import ReducedSizes, reduce_config

PROJECT = Path(__file__).resolve().parents[1]
ABLATIONS = PROJECT / "configs" / "pretrain" / "ablations"
REPORTS = 10  # of each run
_HIDDEN_SIZE, _BATCH_SIZE = 128, 32
_WITHOUT_A_FALLING_LOSS = ("adversarial",)
# Of a report, what says nothing about learning.
_NOT_SHOWN = {"step", "split", "loss", "gradient_norm", "learning_rate", "nonfinite"}
_NOT_SHOWN |= set(RATES)
_NOT_SHOWN |= {"examples_seen", "token_slots_seen", "paper_flops", "hardware_flops"}


@dataclass(frozen=True)
class PhaseResult:
    """What became of the loss in the steps of a run that report the same terms.

    Attributes:
        first, last: the total loss of the first and the last report.
        terms: of the last report, by name.
    """

    first: float
    last: float
    terms: dict[str, float]

    @property
    def is_finite(self) -> bool:
        return all(math.isfinite(value) for value in (self.first, self.last, *self.terms.values()))


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--data_dir", required=True, metavar="DIR", help="output of build_pretraining_dataset.py")
    parser.add_argument("--output_dir", required=True, metavar="DIR", help="the runs' directories are made here")
    parser.add_argument("--num_steps", type=int, default=200, metavar="N", help="of each run")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="ablations by name (default: all)")
    arguments = parser.parse_args(argv)
    passed: list[bool] = []
    status = run_command(lambda: passed.append(_train_all(arguments)))
    return status or (0 if passed[0] else 1)


def _train_all(arguments) -> bool:
    """Returns whether all learn."""
    files = {path.stem: path for path in sorted(ABLATIONS.glob("*.yaml"))}
    if unknown := set(arguments.only or ()) - set(files):
        raise UserError(f"--only: there is no {', '.join(sorted(unknown))}; there are {', '.join(files)}")
    sizes = _sizes(arguments.data_dir, arguments.num_steps)
    print("| ablation | loss, first and last | reported at the end |  |\n|---|---|---|---|", flush=True)
    passed = []
    for name in arguments.only or files:
        config = reduced(files[name], sizes)
        run = _train(config, name, Path(arguments.output_dir), arguments.data_dir)
        passed.append(_print_row(name, config, results(run)))
    return all(passed)


def _sizes(data_dir: str, num_steps: int) -> ReducedSizes:
    from electra_tf.text.manifest import Manifest

    manifest = Manifest.load(data_dir)
    if num_steps < 2 * REPORTS:
        raise UserError(f"--num_steps={num_steps}: expected {2 * REPORTS} or more")
    return ReducedSizes(manifest.vocab_size, _HIDDEN_SIZE, manifest.max_seq_length, _BATCH_SIZE, num_steps)


def reduced(path: Path, sizes: ReducedSizes) -> PretrainingConfig:
    """An ablation at these sizes, with a report every tenth of its steps."""
    config = reduce_config(load_config(path), sizes)
    bookkeeping = {"log_every_steps": sizes.num_steps // REPORTS, "milestone_fractions": ()}
    evaluation = config.evaluation.model_copy(update={"max_batches": 10})
    return config.model_copy(
        update={"train": config.train.model_copy(update=bookkeeping), "evaluation": evaluation},
    )


def _train(config: PretrainingConfig, name: str, output_dir: Path, data_dir: str) -> Path:
    """Raises: UserError: if the run fails, whose own message stands above."""
    output_dir.mkdir(parents=True, exist_ok=True)
    file, run = output_dir / f"{name}.yaml", output_dir / name
    file.write_text(config_to_yaml(config), encoding="utf-8")
    flags = [f"--config={file}", f"--data_dir={data_dir}", f"--model_dir={run}"]
    finished = subprocess.run([sys.executable, str(PROJECT / "run_pretraining.py"), *flags], stdout=subprocess.DEVNULL)
    if finished.returncode:
        raise UserError(f"{name} ended with status {finished.returncode}; see above")
    return run


def results(run: Path) -> list[PhaseResult]:
    """The phases of a run, told apart by what they report."""
    from electra_tf.runs.reported_lines import reports_of
    from electra_tf.runs.directory import RunDirectory

    reports = reports_of(RunDirectory(run).metrics_file, "train")
    phases = itertools.groupby(reports, key=lambda report: frozenset(_terms(report)))
    return [_result(list(members)) for _, members in phases]


def _result(reports: list[dict]) -> PhaseResult:
    first, last = (float("nan") if report["loss"] is None else report["loss"] for report in (reports[0], reports[-1]))
    return PhaseResult(first, last, _terms(reports[-1]))


def _terms(report: dict) -> dict[str, float]:
    shown = {name: value for name, value in report.items() if name not in _NOT_SHOWN}
    return {name: float("nan") if value is None else value for name, value in shown.items()}


def _print_row(name: str, config: PretrainingConfig, phases: Iterable[PhaseResult]) -> bool:
    phases = list(phases)
    falls = all(phase.last < phase.first for phase in phases) or config.objective.name in _WITHOUT_A_FALLING_LOSS
    learns = falls and all(phase.is_finite for phase in phases)
    losses = "; then ".join(f"{phase.first:.2f} to {phase.last:.2f}" for phase in phases)
    terms = ", ".join(f"{term} {value:.3g}" for term, value in phases[-1].terms.items())
    print(f"| {name} | {losses} | {terms} | {'PASS' if learns else 'FAIL'} |", flush=True)
    return learns


if __name__ == "__main__":
    sys.exit(main())
