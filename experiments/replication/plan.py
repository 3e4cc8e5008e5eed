"""The runs of the replication, their numbers of steps at equal FLOPs, and their processes.

OUTPUT_DIR/ARM-seedN                        the run
OUTPUT_DIR/ARM-seedN/as_masked_lm.json      its accuracy as a masked language model (paper, appendix G)
OUTPUT_DIR/ARM-seedN/finetuned/TASK/step_N  the encoder of step N after fine-tuning; step_0 had random weights
OUTPUT_DIR/logs/ARM-seedN.PROCESS.log       the output of its processes
"""

import functools
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra_tf.config.errors import UserError
from electra_tf.files import read_json
from electra_tf.flops.budget import Convention
from electra_tf.tasks.finetune.summary import SUMMARY
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from electra_tf.train.checkpoints import checkpoint_prefix
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.timeline import milestone_steps
from experiments.pretraining import PretrainingRun, flops, length_overrides, steps_within
from experiments.processes import PROJECT, Process
from experiments.replication.arms import (
    BY_PAPER_FLOPS,
    COMPARISONS,
    EVALUATIONS,
    MILESTONES,
    NUM_FINETUNING_SEEDS,
    PROBE,
    SETTINGS_OF_TASK,
    STAGES,
    UNTRAINED,
    Comparison,
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
    def as_masked_lm_file(self) -> Path:
        return self.directory / "as_masked_lm.json"

    @property
    def comparison(self) -> Comparison:
        return COMPARISONS[self.arguments.comparison]

    @property
    def config(self) -> PretrainingConfig:
        return self.training.config

    @functools.cached_property
    def training(self) -> PretrainingRun:
        config, evaluated = load_config(_config_file(self.arm)), -(-self.num_steps // EVALUATIONS)
        overrides = (
            *length_overrides(config, self.num_steps),
            f"train.seed={self.seed}",
            f"train.milestone_fractions={list(MILESTONES)}",
            f"train.save_every_steps={min(evaluated, _MAX_UNSAVED_STEPS)}",
            f"evaluation.every_steps={evaluated}",
        )
        return PretrainingRun(self.directory, _config_file(self.arm), overrides, tuple(self.arguments.data_dirs))

    def processes(self, stage: str) -> Iterator[RunProcess]:
        """The processes of one of `STAGES`."""
        command, is_trained = self.training.command, self.training.is_trained
        if stage == "train":
            yield self._process("train", command, is_trained)
        if stage == "score" and self.arm in self.comparison.as_masked_lm_arms:
            file = self.as_masked_lm_file
            done, command = functools.partial(is_json, file), (*command, "--evaluate", "--as_masked_lm")
            yield self._process("as_masked_lm", command, done, is_ready=is_trained, output_file=file)
        if stage == "milestones" and self.arm in self.comparison.milestone_arms:
            *earlier, _ = milestone_steps(self.num_steps, MILESTONES)
            tasks = self.comparison.milestone_tasks
            yield from (self._finetuning(task, step, range(1)) for step in earlier for task in tasks)
        for task in self.comparison.tasks.get(stage, ()):
            yield self._finetuning(task, self.num_steps, range(NUM_FINETUNING_SEEDS))

    def untrained_processes(self, stage: str) -> Iterator[RunProcess]:
        """The processes that fine-tune this run's encoder from random weights, for a stage."""
        # Fine-tuning seeds draw the weights, so every seed of pre-training has its own.
        seeds = range(self.seed * NUM_FINETUNING_SEEDS, (self.seed + 1) * NUM_FINETUNING_SEEDS)
        yield from (self._finetuning(task, 0, seeds) for task in self.comparison.tasks.get(stage, ()))

    def finetuned_directory(self, task: str, step: int) -> Path:
        return self.directory / "finetuned" / task / f"step_{step}"

    def _finetuning(self, task: str, step: int, seeds: range) -> RunProcess:
        """The process that fine-tunes the milestone of a step, or random weights for step 0."""
        prefix = checkpoint_prefix(RunDirectory(self.directory).milestones, step or self.num_steps)
        directory = self.finetuned_directory(task, step)
        flags = [f"--data_dir={self.arguments.glue_dir}", f"--task={task}"]
        if task == PROBE:
            files = [self.arguments.probe_dir / f"{split}.jsonl" for split in ("train", "dev")]
            flags = ["--task=tagging", f"--train_file={files[0]}", f"--validation_file={files[1]}"]
        # The encoder has no more positions.
        settings = (f"data.max_seq_length={self.config.data.max_seq_length}", *SETTINGS_OF_TASK.get(task, ()))
        flags += [f"--set={setting}" for setting in settings]
        flags += [f"--init_from={prefix}"] if step else [f"--init_from={prefix}", "--untrained"]
        flags += [f"--output_dir={directory}", "--keep=none", "--seeds", *map(str, seeds)]
        command = (sys.executable, str(PROJECT / "run_finetuning.py"), *flags)
        done = functools.partial(has_seeds, directory, seeds)
        return self._process(f"{task}.{step}", command, done, is_ready=self.training.is_trained)

    def _process(self, work: str, command: tuple[str, ...], is_done, **further) -> RunProcess:
        name = f"{self.name}.{work}"
        log_file = self.directory.parent / "logs" / f"{name}.log"
        return RunProcess(run=self, name=name, command=command, log_file=log_file, is_done=is_done, **further)


def plan(arguments: Namespace) -> tuple[list[PlannedRun], list[RunProcess]]:
    """All runs, and all their processes, stage by stage.

    Raises: UserError: if a directory holds a run with other settings, or an arm is not of the comparison.
    """
    comparison, seeds = COMPARISONS[arguments.comparison], dict.fromkeys(arguments.seeds)
    if others := set(arguments.only or ()) - set(comparison.arms):
        raise UserError(
            f"--only={' '.join(sorted(others))}: not of --comparison={arguments.comparison}, whose arms are "
            f"{', '.join(comparison.arms)}"
        )
    steps, runs = equal_flops_steps(comparison, arguments.budget_steps), {}
    processes: dict[str, list[RunProcess]] = {stage: [] for stage in STAGES}
    for arm, seed in ((arm, seed) for arms in comparison.order for seed in seeds for arm in arms):
        if arm in (arguments.only or comparison.arms):
            trained = "electra" if arm == UNTRAINED else arm
            run = runs.setdefault((trained, seed), PlannedRun(trained, seed, steps[trained], arguments))
            run.training.require_same_run()
            for stage in arguments.stages:
                processes[stage] += (run.untrained_processes if arm == UNTRAINED else run.processes)(stage)
    return list(runs.values()), [process for stage in STAGES for process in processes[stage]]


def equal_flops_steps(comparison: Comparison, budget_steps: int | None = None) -> dict[str, int]:
    """For each arm, the largest number of steps that costs no more FLOPs than ELECTRA's steps.

    Args:
        budget_steps: the steps of ELECTRA; None: those of its configuration.
    """
    electra = load_config(_config_file("electra"))
    steps = {"electra": electra.train.num_steps if budget_steps is None else budget_steps}
    if steps["electra"] < _MIN_BUDGET:
        raise UserError(f"--budget_steps={budget_steps}: expected {_MIN_BUDGET} or more")
    for arm in comparison.arms:
        if arm not in (*steps, UNTRAINED):
            convention: Convention = "paper" if arm.endswith(BY_PAPER_FLOPS) else "hardware"
            cost = functools.partial(flops, load_config(_config_file(arm)), convention)
            budget = flops(electra, convention, steps["electra"])
            steps[arm] = steps_within(budget, cost, shortest=EVALUATIONS)
    return steps


def has_seeds(directory: Path, seeds: Sequence[int]) -> bool:
    """Whether a directory of fine-tuning has the scores of all these seeds."""
    summary: dict[str, Any] = read_json(directory / SUMMARY)
    return set(seeds) <= {result["seed"] for result in summary.get("seeds", ())}


def is_json(file: Path) -> bool:
    """Whether a file holds complete JSON, which its process prints at its end."""
    try:
        return bool(read_json(file))
    except UserError:
        return False


def _config_file(arm: str) -> Path:
    return CONFIGS / f"{arm.removesuffix(BY_PAPER_FLOPS)}.yaml"
