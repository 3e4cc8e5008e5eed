"""A small replication of the paper's table 4: five objectives at equal FLOPs, several seeds each, and a linear probe.

    python -m benchmarks.replication --data_dir=DATA --glue_dir=GLUE --output_dir=RUNS --markdown=docs/replication.md

DATA was built with a vocabulary of 8,192 and --max_seq_length=128. The runs are those of configs/pretrain/replication;
the budget is what ELECTRA's takes, counted as devices compute (docs/flops.md), and each objective gets the steps that
it pays for. Every run and probe is a process of its own, in RUNS/OBJECTIVE-seedN. Given again, the command goes on
where it was ended, and leaves alone what is finished. --markdown writes the page, and its picture beside it.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from electra_tf.cli.flags import flag_parser, run_command
from electra_tf.config.errors import UserError
from electra_tf.flops.budget import RunCost
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config

if TYPE_CHECKING:
    from electra_tf.reports.runs import RunGroup

PROJECT = Path(__file__).resolve().parents[1]
CONFIGS = PROJECT / "configs" / "pretrain" / "replication"
# In the order of table 4, which is that of their GLUE scores.
PAPER_SCORES = {"electra": 85.0, "all_tokens_mlm": 84.3, "replace_mlm": 82.4, "electra_15": 82.4, "bert_mlm": 82.2}
CONVENTION = "hardware"
EVALUATIONS = 4  # of each run, evenly over its steps


@dataclass(frozen=True)
class PlannedRun:
    """One run of the replication.

    Attributes:
        directory: where it is, or will be.
        num_steps: what the budget pays for.
    """

    objective: str
    seed: int
    num_steps: int
    directory: Path

    @property
    def config_file(self) -> Path:
        return CONFIGS / f"{self.objective}.yaml"

    def config(self) -> PretrainingConfig:
        return load_config(self.config_file, self.overrides())

    def overrides(self) -> list[str]:
        """The settings that this run has beyond its file, as `--set` takes them."""
        return [
            f"train.num_steps={self.num_steps}",
            f"train.seed={self.seed}",
            f"evaluation.every_steps={max(1, self.num_steps // EVALUATIONS)}",
            f"train.save_every_steps={max(1, self.num_steps // 4)}",
        ]

    def milestones(self) -> list[int]:
        from electra_tf.train.timeline import milestone_steps

        return list(milestone_steps(self.num_steps, self.config().train.milestone_fractions))

    def is_trained(self) -> bool:
        from electra_tf.runs.checkpoint_files import CheckpointFolder
        from electra_tf.runs.directory import RunDirectory

        run = RunDirectory(self.directory)
        return self.num_steps in CheckpointFolder(run.checkpoints).steps()

    def is_probed(self) -> bool:
        from electra_tf.reports.runs import PROBE_FILE

        file = self.directory / PROBE_FILE
        if not file.exists():
            return False
        found = {result["step"] for result in json.loads(file.read_text(encoding="utf-8"))["results"]}
        return {0, *self.milestones()} <= found


def plan(output_dir: Path, seeds: list[int], electra_steps: int) -> list[PlannedRun]:
    """All runs, seed by seed, so that an early end leaves whole comparisons behind."""
    steps = equal_flops_steps(electra_steps)
    return [
        PlannedRun(objective, seed, steps[objective], output_dir / f"{objective}-seed{seed}")
        for seed in seeds
        for objective in PAPER_SCORES
    ]


def equal_flops_steps(electra_steps: int) -> dict[str, int]:
    """How many steps of each objective cost what so many of ELECTRA's do."""
    budget = float(RunCost(_lengthened("electra", electra_steps)).spent(electra_steps).flops(CONVENTION))
    return {name: RunCost(_lengthened(name, 2**30)).steps_within(budget, CONVENTION) for name in PAPER_SCORES}


def _lengthened(objective: str, num_steps: int) -> PretrainingConfig:
    return load_config(CONFIGS / f"{objective}.yaml", [f"train.num_steps={num_steps}"])


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--data_dir", required=True, metavar="DIR", help="output of build_pretraining_dataset.py")
    parser.add_argument("--glue_dir", required=True, metavar="DIR", help="directory with CoLA and SST-2")
    parser.add_argument("--output_dir", required=True, metavar="DIR", help="the runs' directories are made here")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N", help="one run each")
    parser.add_argument(
        "--electra_steps",
        type=int,
        default=load_config(CONFIGS / "electra.yaml").train.num_steps,
        metavar="N",
        help="of ELECTRA's runs, whose FLOPs are the budget of all",
    )
    parser.add_argument("--markdown", metavar="FILE", help="page to write; its picture has the same name, .png")
    arguments = parser.parse_args(argv)
    return run_command(lambda: _replicate(arguments))


def _replicate(arguments) -> None:
    if arguments.electra_steps < EVALUATIONS:
        raise UserError(f"--electra_steps={arguments.electra_steps}: expected {EVALUATIONS} or more")
    runs = plan(Path(arguments.output_dir), arguments.seeds, arguments.electra_steps)
    for number, run in enumerate(runs, start=1):
        print(f"{number}/{len(runs)}: {run.directory.name}, {run.num_steps} steps", file=sys.stderr, flush=True)
        if not run.is_trained():
            _call(_training_command(run, arguments.data_dir))
        if not run.is_probed():
            _call(_probe_command(run, arguments.glue_dir))
    if arguments.markdown:
        from benchmarks.replication_page import write_page

        write_page(Path(arguments.markdown), _groups(runs), arguments.electra_steps)
    else:
        from electra_tf.reports.tables import known_metrics, markdown_table

        groups = _groups(runs)
        print(markdown_table(groups, known_metrics(groups)), end="")


def _groups(runs: list[PlannedRun]) -> "list[RunGroup]":
    from electra_tf.reports.runs import group_runs, read_run

    return group_runs(read_run(run.directory) for run in runs)


def _training_command(run: PlannedRun, data_dir: str) -> list[str]:
    flags = [f"--config={run.config_file}", f"--data_dir={data_dir}", f"--model_dir={run.directory}"]
    settings = [part for override in run.overrides() for part in ("--set", override)]
    return [sys.executable, str(PROJECT / "run_pretraining.py"), *flags, *settings]


def _probe_command(run: PlannedRun, glue_dir: str) -> list[str]:
    from electra_tf.reports.runs import PROBE_FILE

    flags = [f"--model_dir={run.directory}", f"--glue_dir={glue_dir}", f"--output={run.directory / PROBE_FILE}"]
    steps = [f"--step={step}" for step in (0, *run.milestones())]
    return [sys.executable, "-m", "benchmarks.linear_probe", *flags, *steps]


def _call(command: list[str]) -> None:
    """Raises: UserError: if the command fails, whose own message stands above."""
    finished = subprocess.run(command, stdout=subprocess.DEVNULL)
    if finished.returncode:
        raise UserError(f"the command above ended with status {finished.returncode}; mend it and give this one again")


if __name__ == "__main__":
    sys.exit(main())
