"""Pre-training runs of experiments: how many steps FLOPs pay for, and the command that starts or continues a run."""

import bisect
import functools
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from electra_tf.files import exists
from electra_tf.flops.budget import Convention, RunCost
from electra_tf.tasks.pretrain.config import PretrainingConfig, StageConfig, load_config
from electra_tf.train.run_directory import RunDirectory
from experiments.processes import PROJECT, Process

_MAX_STEPS = 2**31 - 1


@dataclass(frozen=True)
class PretrainingRun:
    """A pre-training run.

    Attributes:
        directory: of the run, which has its name.        config_file: a file or preset.
        overrides: values of `--set`.        data_dirs: one for each input stage.        further_flags: of the command.
    """

    directory: Path
    config_file: str | Path
    overrides: tuple[str, ...]
    data_dirs: tuple[str, ...]
    further_flags: tuple[str, ...] = ()

    @functools.cached_property
    def config(self) -> PretrainingConfig:
        return load_config(self.config_file, self.overrides)

    @property
    def command(self) -> tuple[str, ...]:
        """Starts or continues the run."""
        flags = [f"--config={self.config_file}", f"--model_dir={self.directory}"]
        flags += [f"--data_dir={data_dir}" for data_dir in self.data_dirs] + [*self.further_flags]
        flags += [f"--set={override}" for override in self.overrides]
        return (sys.executable, str(PROJECT / "run_pretraining.py"), *flags)

    def is_trained(self) -> bool:
        """Whether the run has its last evaluation, which follows its last checkpoint."""
        return bool(RunDirectory(self.directory).evaluation_at(self.config.train.num_steps))

    def require_same_run(self) -> None:
        """Raises: UserError: if the directory holds a run with other settings."""
        directory = RunDirectory(self.directory)
        if exists(directory.config_file):
            directory.require_same_run(self.config)

    def process(self) -> Process:
        """The training, with its log beside the directory."""
        log_file = self.directory.with_name(f"{self.directory.name}.log")
        return Process(name=self.directory.name, command=self.command, log_file=log_file, is_done=self.is_trained)


def steps_within(budget: Fraction, cost: Callable[[int], Fraction]) -> int:
    """The largest number of steps that costs no more than a budget; 0 if none does.

    Args:
        cost: the cost of a run by its number of steps. It is searched, because a step may cost more in a longer run.
    """
    longest = 1
    while longest < _MAX_STEPS and cost(longest) <= budget:
        longest = min(2 * longest, _MAX_STEPS)
    return bisect.bisect_right(range(longest + 1), budget, lo=1, key=cost) - 1


def flops(config: PretrainingConfig, convention: Convention, num_steps: int) -> Fraction:
    """The cost of a configuration's run with another number of steps."""
    return RunCost(of_length(config, num_steps)).spent(num_steps).flops(convention)


def of_length(config: PretrainingConfig, num_steps: int) -> PretrainingConfig:
    """A configuration with another number of steps, not validated. Its input stages keep their shares of the steps."""
    train, stages = config.train.model_copy(update={"num_steps": num_steps}), stages_of_length(config, num_steps)
    return config.model_copy(update={"train": train, "stages": tuple(stages)})


def stages_of_length(config: PretrainingConfig, num_steps: int) -> list[StageConfig]:
    """The input stages of a run with another number of steps. Each keeps its share of the steps."""
    ends = itertools.accumulate((stage.num_steps for stage in config.stages), initial=0)
    pairs = itertools.pairwise(round(end * num_steps / config.train.num_steps) for end in ends)
    lengths = [last - first for first, last in pairs]
    return [
        stage.model_copy(update={"num_steps": length}) for stage, length in zip(config.stages, lengths, strict=True)
    ]


def length_overrides(config: PretrainingConfig, num_steps: int) -> list[str]:
    """The values of `--set` that give a configuration's run another number of steps."""
    stages: Sequence[StageConfig] = stages_of_length(config, num_steps)
    return [f"train.num_steps={num_steps}", f"stages={json.dumps([stage.model_dump() for stage in stages])}"]
