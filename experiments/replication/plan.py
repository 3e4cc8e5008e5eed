"""The runs of the replication, their numbers of steps at equal FLOPs, and their processes.

OUTPUT_DIR/ARM-seedN                        the run
OUTPUT_DIR/ARM-seedN/as_masked_lm.json      its accuracy as a masked language model (paper, appendix G)
OUTPUT_DIR/ARM-seedN/finetuned/TASK/step_N  the encoder of step N after fine-tuning; step_0 had random weights
OUTPUT_DIR/logs/ARM-seedN.PROCESS.log       the output of its processes
"""

import bisect
import functools
import itertools
import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from electra_tf.config.errors import UserError
from electra_tf.files import exists, read_json
from electra_tf.flops.budget import Convention, RunCost
from electra_tf.runs.checkpoints import checkpoint_prefix
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.json_lines import evaluation_at
from electra_tf.tasks.finetune.summary import SUMMARY
from electra_tf.tasks.pretrain.config import PretrainingConfig, StageConfig, load_config
from electra_tf.train.timeline import milestone_steps
from experiments.processes import PROJECT
from experiments.replication.arms import (
    AUXILIARY_OF,
    BY_PAPER_FLOPS,
    COMPARISONS,
    EVALUATIONS,
    MILESTONES,
    NUM_FINETUNING_SEEDS,
    PROBE,
    SETTINGS_OF_TASK,
    SOURCE_OF,
    STAGES,
    UNTRAINED,
    VARIED,
    WITH_AUXILIARY,
    Comparison,
    settings_of,
)

CONFIGS = PROJECT / "configs" / "pretrain" / "replication"
RESTARTED_SEED = 100  # added to the seed of a run that begins with another one's weights
_MIN_BUDGET = 64  # in steps; a shorter run has no room for its evaluations and milestones
_MAX_RATIO = 1000  # upper limit of an arm's steps over ELECTRA's


@dataclass(frozen=True)
class PlannedProcess:
    """One process of a run.

    Attributes:
        work: its name among the processes of the run.
        is_first: whether it is the training, which the others need.
    """

    run: "PlannedRun"
    work: str
    command: tuple[str, ...]
    is_done: Callable[[], bool]
    is_first: bool = False
    output_file: Path | None = None

    @property
    def name(self) -> str:
        return f"{self.run.name}.{self.work}"

    @property
    def log_file(self) -> Path:
        return self.run.directory.parent / "logs" / f"{self.name}.log"

    def is_ready(self) -> bool:
        needed = (self.run.auxiliary, self.run.source) if self.is_first else (self.run, self.run.judge)
        return all(run is None or run.is_trained() for run in needed)


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
    def judged_file(self) -> Path:
        return self.directory / "judged.json"

    @property
    def comparison(self) -> Comparison:
        return COMPARISONS[self.arguments.comparison]

    @functools.cached_property
    def auxiliary(self) -> "PlannedRun | None":
        """The run whose model gives this one its samples."""
        return self._planned(AUXILIARY_OF.get(settings_of(self.arm)))

    @functools.cached_property
    def judge(self) -> "PlannedRun | None":
        """The run whose samples the discriminator is asked about."""
        return None if self.arm in self.comparison.single else self._planned(self.comparison.judge)

    @functools.cached_property
    def source(self) -> "PlannedRun | None":
        """The run of the same seed whose weights, at the end of its first phase, this one begins with."""
        return self._planned(SOURCE_OF.get(self.arm), self.seed)

    def _planned(self, arm: str | None, seed: int = 0) -> "PlannedRun | None":
        if arm is None:
            return None
        steps = equal_flops_steps(self.comparison, self.arguments.budget_steps)
        return PlannedRun(arm, seed, steps[arm], self.arguments)

    @functools.cached_property
    def config(self) -> PretrainingConfig:
        return load_config(_config_file(self.arm), self._overrides())

    def is_trained(self) -> bool:
        """Whether the run has its last evaluation, which follows its last checkpoint."""
        return bool(evaluation_at(RunDirectory(self.directory).metrics_file, self.num_steps))

    def require_same_run(self) -> None:
        """Raises: UserError: if the directory holds a run with other settings."""
        directory = RunDirectory(self.directory)
        if exists(directory.config_file):
            directory.require_same_run(self.config)

    def processes(self, stage: str) -> Iterator[PlannedProcess]:
        """The processes of one of `STAGES`."""
        if stage == "train":
            yield PlannedProcess(self, "train", self._pretraining_command(), self.is_trained, is_first=True)
        if stage == "judge" and self.comparison.judge and self.arm not in self.comparison.single:
            command = (sys.executable, "-m", "experiments.replication.judge", f"--judge={self.judge.directory}")
            command += (f"--model_dir={self.directory}", f"--data_dir={self.arguments.data_dirs[-1]}")
            done = functools.partial(is_json, self.judged_file)
            yield PlannedProcess(self, "judged", command, done, output_file=self.judged_file)
        if stage == "score" and self.arm in self.comparison.as_masked_lm_arms:
            command, file = (*self._pretraining_command(), "--evaluate", "--as_masked_lm"), self.as_masked_lm_file
            yield PlannedProcess(self, "as_masked_lm", command, functools.partial(is_json, file), output_file=file)
        if stage == "milestones" and self.arm in self.comparison.milestone_arms:
            *earlier, _ = milestone_steps(self.num_steps, MILESTONES)
            tasks = self.comparison.milestone_tasks
            yield from (self._finetuning(task, step, range(1)) for step in earlier for task in tasks)
        tasks = () if self.arm in self.comparison.single else self.comparison.tasks.get(stage, ())
        for task in tasks:
            num_seeds = self.comparison.seeds_of_task.get(task, NUM_FINETUNING_SEEDS)
            yield self._finetuning(task, self.num_steps, range(num_seeds))

    def untrained_processes(self, stage: str) -> Iterator[PlannedProcess]:
        """The processes that fine-tune this run's encoder from random weights, for a stage."""
        # Fine-tuning seeds draw the weights, so every seed of pre-training has its own.
        seeds = range(self.seed * NUM_FINETUNING_SEEDS, (self.seed + 1) * NUM_FINETUNING_SEEDS)
        yield from (self._finetuning(task, 0, seeds) for task in self.comparison.tasks.get(stage, ()))

    def finetuned_directory(self, task: str, step: int) -> Path:
        return self.directory / "finetuned" / task / f"step_{step}"

    def _overrides(self) -> list[str]:
        """The values of `--set` that change the arm's file."""
        evaluated = -(-self.num_steps // EVALUATIONS)
        stages = stages_of_length(_config(self.arm), self.num_steps)
        auxiliary = [f"objective.auxiliary={self.auxiliary.directory}"] if self.auxiliary else []
        return [
            *auxiliary,
            *VARIED.get(self.arm, ()),
            f"train.num_steps={self.num_steps}",
            f"stages={json.dumps([stage.model_dump() for stage in stages])}",
            # Not the seed of its source, whose text it would read again.
            f"train.seed={self.seed + (RESTARTED_SEED if self.source else 0)}",
            f"train.milestone_fractions={list(MILESTONES)}",
            f"train.save_every_steps={evaluated}",
            f"evaluation.every_steps={evaluated}",
        ]

    def _pretraining_command(self) -> tuple[str, ...]:
        flags = [f"--config={_config_file(self.arm)}", f"--model_dir={self.directory}"]
        flags += [f"--data_dir={data_dir}" for data_dir in self.arguments.data_dirs[-max(1, len(self.config.stages)) :]]
        if self.source:
            switch, *_ = self.source.config.objective.phase_steps(self.source.config)
            flags += [f"--init_from={checkpoint_prefix(RunDirectory(self.source.directory).milestones, switch)}"]
        return _command("run_pretraining.py", *flags, *(f"--set={override}" for override in self._overrides()))

    def _finetuning(self, task: str, step: int, seeds: range) -> PlannedProcess:
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
        command = _command(
            "run_finetuning.py", *flags, f"--output_dir={directory}", "--keep=none", "--seeds", *map(str, seeds)
        )
        return PlannedProcess(self, f"{task}.{step}", command, functools.partial(has_seeds, directory, seeds))


def plan(arguments: Namespace) -> tuple[list[PlannedRun], list[PlannedProcess]]:
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
    processes: dict[str, list[PlannedProcess]] = {stage: [] for stage in STAGES}
    ordered = ((arm, seed) for arms in comparison.order for seed in seeds for arm in arms)
    for arm, seed in dict.fromkeys((arm, 0 if arm in comparison.single else seed) for arm, seed in ordered):
        if arm in (arguments.only or comparison.arms):
            trained = comparison.untrained_as if arm == UNTRAINED else arm
            run = runs.setdefault((trained, seed), PlannedRun(trained, seed, steps[trained], arguments))
            run.require_same_run()
            for stage in arguments.stages:
                processes[stage] += (run.untrained_processes if arm == UNTRAINED else run.processes)(stage)
    return list(runs.values()), [process for stage in STAGES for process in processes[stage]]


def equal_flops_steps(comparison: Comparison, budget_steps: int | None = None) -> dict[str, int]:
    """For each arm, the largest number of steps that costs no more FLOPs than ELECTRA's steps.

    Auxiliary models and sources have the steps of their own configuration, scaled as ELECTRA's are. An arm that begins
    with another one's weights may spend what that one spends after them.

    Args:
        budget_steps: the steps of ELECTRA; None: those of its configuration.
    """
    electra = _config("electra")
    steps = {"electra": electra.train.num_steps if budget_steps is None else budget_steps}
    if steps["electra"] < _MIN_BUDGET:
        raise UserError(f"--budget_steps={budget_steps}: expected {_MIN_BUDGET} or more")
    for arm in comparison.arms:
        if arm in (*AUXILIARY_OF.values(), *SOURCE_OF.values()):
            planned = _config(arm).train.num_steps
            steps[arm] = planned * steps["electra"] // electra.train.num_steps
        elif arm not in (*steps, UNTRAINED):
            convention: Convention = "paper" if arm.endswith(BY_PAPER_FLOPS) else "hardware"
            budget = _flops(electra, convention, steps["electra"])
            if source := SOURCE_OF.get(arm):
                run = _of_length(_config(source), steps[source])
                budget = _flops(run, convention, steps[source])
                budget -= RunCost(run).spent(run.objective.phase_steps(run)[0]).flops(convention)
            if arm.endswith(WITH_AUXILIARY):
                auxiliary = AUXILIARY_OF[settings_of(arm)]
                budget -= _flops(_config(auxiliary), convention, steps[auxiliary])
            cost = functools.partial(_flops, _config(arm), convention)
            lengths = range(_MAX_RATIO * steps["electra"])
            steps[arm] = bisect.bisect_right(lengths, budget, lo=EVALUATIONS, key=cost) - 1
    return steps


def stages_of_length(config: PretrainingConfig, num_steps: int) -> list[StageConfig]:
    """The input stages of a run with `num_steps` steps. Each keeps its share of the steps."""
    ends = itertools.accumulate((stage.num_steps for stage in config.stages), initial=0)
    pairs = itertools.pairwise(round(end * num_steps / config.train.num_steps) for end in ends)
    lengths = [last - first for first, last in pairs]
    return [
        stage.model_copy(update={"num_steps": length}) for stage, length in zip(config.stages, lengths, strict=True)
    ]


def _flops(config: PretrainingConfig, convention: Convention, num_steps: int) -> Fraction:
    """The cost of the run with `num_steps` steps."""
    return RunCost(_of_length(config, num_steps)).spent(num_steps).flops(convention)


def _of_length(config: PretrainingConfig, num_steps: int) -> PretrainingConfig:
    train, stages = config.train.model_copy(update={"num_steps": num_steps}), stages_of_length(config, num_steps)
    return config.model_copy(update={"train": train, "stages": tuple(stages)})


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


def _config(arm: str) -> PretrainingConfig:
    return load_config(_config_file(arm), VARIED.get(arm, ()))


def _config_file(arm: str) -> Path:
    return CONFIGS / f"{settings_of(arm)}.yaml"


def _command(program: str, *flags: str) -> tuple[str, ...]:
    return (sys.executable, str(PROJECT / program), *flags)
