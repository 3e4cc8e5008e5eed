"""The runs of the replication: their configurations, the steps that the FLOPs budget allows, and what is done."""

import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import PROJECT
from electra_tf.flops.budget import RunCost
from electra_tf.reports.runs import PROBE_FILE
from electra_tf.runs.checkpoints import steps_in
from electra_tf.runs.directory import RunDirectory
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from electra_tf.train.timeline import milestone_steps

CONFIGS = PROJECT / "configs" / "pretrain" / "replication"
# The GLUE scores of table 4, in its order.
PAPER_SCORES = {"electra": 85.0, "all_tokens_mlm": 84.3, "replace_mlm": 82.4, "electra_15": 82.4, "bert_mlm": 82.2}
CONVENTION = "hardware"  # how FLOPs are counted
EVALUATIONS = 4  # of each run, evenly over its steps


@dataclass(frozen=True)
class PlannedRun:
    """One run of the replication.

    Attributes:
        directory: of the run.        num_steps: what the budget allows.
    """

    objective: str
    seed: int
    num_steps: int
    directory: Path

    @property
    def config_file(self) -> Path:
        return CONFIGS / f"{self.objective}.yaml"

    @property
    def probe_file(self) -> Path:
        return self.directory / PROBE_FILE

    def config(self) -> PretrainingConfig:
        return load_config(self.config_file, self.overrides())

    def overrides(self) -> list[str]:
        """The settings of this run that its file does not have, as `--set` takes them."""
        return [
            f"train.num_steps={self.num_steps}",
            f"train.seed={self.seed}",
            f"evaluation.every_steps={max(1, self.num_steps // EVALUATIONS)}",
            f"train.save_every_steps={max(1, self.num_steps // 4)}",
        ]

    def probed_steps(self) -> list[int]:
        """Step 0, the untrained encoder, and every milestone."""
        return [0, *milestone_steps(self.num_steps, self.config().train.milestone_fractions)]

    def is_trained(self) -> bool:
        return self.num_steps in steps_in(RunDirectory(self.directory).checkpoints)

    def is_probed(self) -> bool:
        if not self.probe_file.exists():
            return False
        results = json.loads(self.probe_file.read_text(encoding="utf-8"))["results"]
        return set(self.probed_steps()) <= {result["step"] for result in results}


def plan(output_dir: Path, seeds: list[int], electra_steps: int) -> list[PlannedRun]:
    """All runs, seed by seed, so that the runs of one seed can be compared when the command ends early."""
    steps = equal_flops_steps(electra_steps)
    return [
        PlannedRun(objective, seed, steps[objective], output_dir / f"{objective}-seed{seed}")
        for seed in seeds
        for objective in PAPER_SCORES
    ]


def equal_flops_steps(electra_steps: int) -> dict[str, int]:
    """The number of steps of each objective that cost as many FLOPs as `electra_steps` steps of ELECTRA."""
    budget = float(RunCost(_config_of_length("electra", electra_steps)).spent(electra_steps).flops(CONVENTION))
    return {name: RunCost(_config_of_length(name, 2**30)).steps_within(budget, CONVENTION) for name in PAPER_SCORES}


def _config_of_length(objective: str, num_steps: int) -> PretrainingConfig:
    return load_config(CONFIGS / f"{objective}.yaml", [f"train.num_steps={num_steps}"])
