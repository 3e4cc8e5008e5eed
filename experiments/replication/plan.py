"""The runs of the replication, their numbers of steps at equal FLOPs, and their processes.

OUTPUT_DIR/ARM-seedN                        the run
OUTPUT_DIR/ARM-seedN/finetuned/TASK/step_N  the encoder of step N, the last one, after fine-tuning
OUTPUT_DIR/logs/ARM-seedN.PROCESS.log       the output of its processes
"""

import functools
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from electra_tf.config.errors import UserError
from electra_tf.files import read_json
from electra_tf.tasks.finetune.summary import SUMMARY
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from electra_tf.train.checkpoints import checkpoint_prefix
from electra_tf.train.run_directory import RunDirectory
from experiments.pretraining import PretrainingRun, flops, length_overrides, steps_within
from experiments.processes import PROJECT, Process
from experiments.replication.arms import (
    ARMS,
    EVALUATIONS,
    NUM_FINETUNING_SEEDS,
    PROBE,
    SETTINGS_OF_TASK,
    STAGES,
    TASKS,
)

CONFIGS = PROJECT / "configs" / "pretrain" / "replication"
_MAX_UNSAVED_STEPS = 5000  # ten minutes of one core
_MIN_BUDGET = 64  # in steps; a shorter run has no room for its evaluations and milestones


@dataclass(frozen=True, kw_only=True)
class RunProcess(Process):
    """A process of a run."""

    run: "PlannedRun"


@dataclass(frozen=True)
class PlannedRun:
    """One pre-training run and its fine-tuning.

    Attributes:
        num_steps: as many as the budget pays for.        arguments: the flags of the command.
    """

    arm: str
    seed: int
    num_steps: int
    arguments: Namespace

    @property
    def name(self) -> str:
        return f"{self.arm}-seed{self.seed}"

    @property
    def directory(self) -> Path:
        return self.arguments.output_dir / self.name

    @property
    def start_file(self) -> Path:
        """The commit and the time at which the run began."""
        return self.directory.parent / "started" / f"{self.name}.json"

    @property
    def config(self) -> PretrainingConfig:
        return self.training.config

    @functools.cached_property
    def training(self) -> PretrainingRun:
        config, evaluated = load_config(_config_file(self.arm)), -(-self.num_steps // EVALUATIONS)
        overrides = (
            *length_overrides(config, self.num_steps),
            f"train.seed={self.seed}",
            "train.milestone_fractions=[1.0]",
            f"train.save_every_steps={min(evaluated, _MAX_UNSAVED_STEPS)}",
            f"evaluation.every_steps={evaluated}",
        )
        return PretrainingRun(self.directory, _config_file(self.arm), overrides, tuple(self.arguments.data_dirs))

    def processes(self, stage: str) -> Iterator[RunProcess]:
        """The processes of one of `STAGES`."""
        if stage == "train":
            yield self._process("train", self.training.command, self.training.is_trained)
        else:
            yield from map(self._finetuning, TASKS)

    def finetuned_directory(self, task: str) -> Path:
        return self.directory / "finetuned" / task / f"step_{self.num_steps}"

    def _finetuning(self, task: str) -> RunProcess:
        """The process that fine-tunes the encoder of the last step."""
        prefix = checkpoint_prefix(RunDirectory(self.directory).milestones, self.num_steps)
        directory, seeds = self.finetuned_directory(task), range(NUM_FINETUNING_SEEDS)
        flags = [f"--data_dir={self.arguments.glue_dir}", f"--task={task}"]
        if task == PROBE:
            files = [self.arguments.probe_dir / f"{split}.jsonl" for split in ("train", "dev")]
            flags = ["--task=tagging", f"--train_file={files[0]}", f"--validation_file={files[1]}"]
        # The encoder has no more positions.
        settings = (f"data.max_seq_length={self.config.data.max_seq_length}", *SETTINGS_OF_TASK.get(task, ()))
        flags += [f"--set={setting}" for setting in settings]
        flags += [f"--init_from={prefix}", f"--output_dir={directory}", "--keep=none", "--seeds", *map(str, seeds)]
        command = (sys.executable, str(PROJECT / "run_finetuning.py"), *flags)
        done = functools.partial(has_seeds, directory, seeds)
        return self._process(f"{task}.{self.num_steps}", command, done, is_ready=self.training.is_trained)

    def _process(self, work: str, command: tuple[str, ...], is_done, **further) -> RunProcess:
        name = f"{self.name}.{work}"
        log_file = self.directory.parent / "logs" / f"{name}.log"
        return RunProcess(run=self, name=name, command=command, log_file=log_file, is_done=is_done, **further)


def plan(arguments: Namespace) -> tuple[list[PlannedRun], list[RunProcess]]:
    """All runs, seed by seed, and all their processes, stage by stage.

    Raises: UserError: if a directory holds a run with other settings.
    """
    steps = equal_flops_steps(arguments.budget_steps)
    pairs = ((arm, seed) for seed in dict.fromkeys(arguments.seeds) for arm in ARMS)
    runs = [PlannedRun(arm, seed, steps[arm], arguments) for arm, seed in pairs if arm in (arguments.only or ARMS)]
    for run in runs:
        run.training.require_same_run()
    stages = [stage for stage in STAGES if stage in arguments.stages]
    return runs, [process for stage in stages for run in runs for process in run.processes(stage)]


def equal_flops_steps(budget_steps: int) -> dict[str, int]:
    """For each arm, the largest number of steps that costs no more FLOPs on devices than ELECTRA's steps."""
    if budget_steps < _MIN_BUDGET:
        raise UserError(f"--budget_steps={budget_steps}: expected {_MIN_BUDGET} or more")
    electra, bert = (load_config(_config_file(arm)) for arm in ARMS)
    budget, cost = flops(electra, "hardware", budget_steps), functools.partial(flops, bert, "hardware")
    return dict(zip(ARMS, (budget_steps, steps_within(budget, cost)), strict=True))


def has_seeds(directory: Path, seeds: Sequence[int]) -> bool:
    """Whether a directory of fine-tuning has the scores of all these seeds."""
    return set(seeds) <= {result["seed"] for result in read_json(directory / SUMMARY).get("seeds", ())}


def _config_file(arm: str) -> Path:
    return CONFIGS / f"{arm}.yaml"
