"""The runs of the replication, the steps that equal FLOPs allow them, and the processes of each: what is done, and how.

OUTPUT_DIR/ARM-seedN                        the run
OUTPUT_DIR/ARM-seedN/as_masked_lm.json      its accuracy as a masked language model (paper, appendix G)
OUTPUT_DIR/ARM-seedN/finetuned/TASK/step_N  the encoder of step N, fine-tuned
OUTPUT_DIR/logs/ARM-seedN.PROCESS.log       what its processes print
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

from benchmarks.common import PROJECT
from electra_tf.config.errors import UserError
from electra_tf.files import read_json
from electra_tf.finetuning.summary import SUMMARY
from electra_tf.flops.budget import Convention, RunCost
from electra_tf.runs.checkpoints import checkpoint_prefix
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.reported_lines import evaluation_at
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from electra_tf.train.timeline import milestone_steps

CONFIGS = PROJECT / "configs" / "pretrain" / "replication"
STAGES = ("train", "score", "milestones", "beside")
UNTRAINED = "untrained"
# Arms that are trained and scored seed by seed, the most important comparison first.
ORDER = (("electra", "bert_mlm"), ("bert_mlm_paper_flops",), ("electra_15",), ("all_tokens_mlm",), (UNTRAINED,))
ARMS = tuple(itertools.chain(*ORDER))
AS_MASKED_LM_ARMS = ("electra", "bert_mlm", "bert_mlm_paper_flops")
MILESTONE_ARMS = ("electra", "bert_mlm")

SCORE_TASKS = ("qnli", "stsb", "mnli", "qqp")
PROBE = "truecasing"
BESIDE_TASKS = ("mrpc", "rte", "sst2", "cola")
NUM_FINETUNING_SEEDS = 3
_MILESTONES = (0.25, 0.5, 0.75, 1.0)
_EVALUATIONS = 8
_MAX_RATIO = 1000  # no arm gets more steps than so many times ELECTRA's


@dataclass(frozen=True)
class Process:
    """One process of a run.

    Attributes:
        name: among those of the run.        needs: the run that must be trained before; None: none.
    """

    run: "PlannedRun"
    name: str
    command: tuple[str, ...]
    is_done: Callable[[], bool]
    needs: "PlannedRun | None" = None
    output_file: Path | None = None

    @property
    def log_file(self) -> Path:
        return self.run.directory.parent / "logs" / f"{self.run.name}.{self.name}.log"

    def is_ready(self) -> bool:
        return self.needs is None or self.needs.is_trained()


@dataclass(frozen=True)
class PlannedRun:
    """One pre-training, and what is made of it; of the arm `untrained` the encoder that `electra` starts with.

    Attributes:
        num_steps: what the budget allows.        arguments: the flags of the benchmark.
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
    def pretrained(self) -> "PlannedRun":
        """The run whose checkpoints are fine-tuned."""
        return PlannedRun("electra", self.seed, self.num_steps, self.arguments) if self.arm == UNTRAINED else self

    @property
    def scored_step(self) -> int:
        return 0 if self.arm == UNTRAINED else self.num_steps

    @functools.cached_property
    def config(self) -> PretrainingConfig:
        return load_config(_config_file(self.arm), self._overrides())

    def is_trained(self) -> bool:
        """Whether the run has its last evaluation, which comes after its last checkpoint."""
        return bool(evaluation_at(RunDirectory(self.directory).metrics_file, self.num_steps))

    def require_same_run(self) -> None:
        """Raises: UserError: if the directory holds a run of other settings."""
        if (directory := RunDirectory(self.directory)) and self.directory.exists() and self.arm != UNTRAINED:
            directory.require_same_run(self.config)

    def processes(self, stage: str) -> Iterator[Process]:
        """The processes of one of `STAGES`."""
        if stage == "train" and self.arm != UNTRAINED:
            yield Process(self, "train", self._pretraining_command(), self.is_trained)
        if stage == "score" and self.arm in AS_MASKED_LM_ARMS:
            file = self.directory / "as_masked_lm.json"
            command = (*self._pretraining_command(), "--evaluate", "--as_masked_lm")
            yield Process(self, "as_masked_lm", command, functools.partial(is_json, file), self, file)
        if stage == "milestones" and self.arm in MILESTONE_ARMS:
            *earlier, _ = milestone_steps(self.num_steps, _MILESTONES)
            yield from (self._finetuning(task, step, 1) for step in earlier for task in (*SCORE_TASKS, PROBE))
        elif tasks := {"score": (*SCORE_TASKS, PROBE), "beside": BESIDE_TASKS}.get(stage):
            yield from (self._finetuning(task, self.scored_step, NUM_FINETUNING_SEEDS) for task in tasks)

    def _overrides(self) -> list[str]:
        """The settings that differ from the arm's file, as `--set` takes them."""
        evaluated = -(-self.num_steps // _EVALUATIONS)
        return [
            *length_overrides(self.arm, self.num_steps),
            f"train.seed={self.seed}",
            f"train.milestone_fractions={list(_MILESTONES)}",
            f"train.save_every_steps={evaluated}",
            f"evaluation.every_steps={evaluated}",
        ]

    def _pretraining_command(self) -> tuple[str, ...]:
        flags = [f"--config={_config_file(self.arm)}", f"--model_dir={self.directory}"]
        flags += [f"--data_dir={data_dir}" for data_dir in self.arguments.data_dirs]
        return _command("run_pretraining.py", *flags, *(f"--set={override}" for override in self._overrides()))

    def _finetuning(self, task: str, step: int, num_seeds: int) -> Process:
        source, directory = self.pretrained, self.directory / "finetuned" / task / f"step_{step}"
        init_from = checkpoint_prefix(RunDirectory(source.directory).milestones, step or source.num_steps)
        seeds = range(num_seeds)
        flags = [f"--data_dir={self.arguments.glue_dir}", f"--task={task}"]
        if task == PROBE:
            files = {split: self.arguments.probe_dir / f"{split}.jsonl" for split in ("train", "dev")}
            flags = ["--task=tagging", f"--train_file={files['train']}", f"--validation_file={files['dev']}"]
            flags += ["--set=data.max_seq_length=64"]
        if self.arm == UNTRAINED:
            # The seeds of fine-tuning draw the weights too: others for each seed.
            seeds = range(self.seed * num_seeds, (self.seed + 1) * num_seeds)
            flags += ["--untrained"]
        flags += [f"--init_from={init_from}", f"--output_dir={directory}", "--keep=none", "--seeds", *map(str, seeds)]
        command = _command("run_finetuning.py", *flags)
        return Process(self, f"{task}.{step}", command, functools.partial(has_seeds, directory, seeds), source)


def plan(arguments: Namespace) -> list[Process]:
    """All processes in their order, stage by stage.

    Raises: UserError: if a directory holds a run of other settings.
    """
    steps = equal_flops_steps(arguments.budget_steps)
    runs = [
        PlannedRun(arm, seed, steps[arm], arguments)
        for arms in ORDER
        for seed in arguments.seeds
        for arm in arms
        if arm in arguments.only
    ]
    for run in runs:
        run.require_same_run()
    stages = [stage for stage in STAGES if stage in arguments.stages]
    return [process for stage in stages for run in runs for process in run.processes(stage)]


def equal_flops_steps(budget_steps: int | None = None) -> dict[str, int]:
    """The number of steps of each arm that cost what ELECTRA's steps cost, by the convention of the arm.

    Args:
        budget_steps: of ELECTRA; None: those of its file.
    """
    electra_steps = budget_steps or load_config(_config_file("electra")).train.num_steps
    steps = dict.fromkeys(("electra", UNTRAINED), electra_steps)
    for arm in ARMS:
        if arm not in steps:
            convention: Convention = "paper" if arm == "bert_mlm_paper_flops" else "hardware"
            budget = _flops("electra", convention, electra_steps)
            lengths, cost = range(_MAX_RATIO * electra_steps), functools.partial(_flops, arm, convention)
            steps[arm] = bisect.bisect_right(lengths, budget, lo=_EVALUATIONS, key=cost) - 1
    return steps


def _flops(arm: str, convention: Convention, num_steps: int) -> Fraction:
    config = load_config(_config_file(arm), length_overrides(arm, num_steps))
    return RunCost(config).spent(num_steps).flops(convention)


def length_overrides(arm: str, num_steps: int) -> list[str]:
    """The settings of the arm's run of so many steps: each input stage keeps its share of them."""
    config = load_config(_config_file(arm))
    overrides = [f"train.num_steps={num_steps}"]
    if config.stages:
        ends = itertools.accumulate((stage.num_steps for stage in config.stages), initial=0)
        ends = [round(end * num_steps / config.train.num_steps) for end in ends]
        changes = [{"num_steps": last - first} for first, last in itertools.pairwise(ends)]
        stages = [stage.model_dump() | change for stage, change in zip(config.stages, changes, strict=True)]
        overrides.append(f"stages={json.dumps(stages)}")
    return overrides


def has_seeds(directory: Path, seeds: Sequence[int]) -> bool:
    """Whether a directory holds the scores of all these seeds."""
    summary: dict[str, Any] = read_json(directory / SUMMARY)
    return set(seeds) <= {result["seed"] for result in summary.get("seeds", ())}


def is_json(file: Path) -> bool:
    """Whether a process has written its whole output."""
    try:
        return bool(read_json(file))
    except UserError:
        return False


def _config_file(arm: str) -> Path:
    arm = {UNTRAINED: "electra", "bert_mlm_paper_flops": "bert_mlm"}.get(arm, arm)
    return CONFIGS / f"{arm}.yaml"


def _command(program: str, *flags: str) -> tuple[str, ...]:
    return (sys.executable, str(PROJECT / program), *flags)
