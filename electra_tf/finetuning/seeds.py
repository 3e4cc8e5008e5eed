"""Fine-tunes a task with several seeds: each has its directory, and all share one traced training step."""

import json
import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.loader import merge
from electra_tf.files import exists, read_rewritten, remove, write_atomically
from electra_tf.models.layers import seed_initial_values
from electra_tf.tasks.finetune.config import FinetuningConfig, TaskConfig
from electra_tf.tasks.finetune.data import FinetuningStage, Predictions, TaskData
from electra_tf.tasks.finetune.kinds import build_finetuning_task
from electra_tf.tasks.finetune.summary import RESULT, seeds_in
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.train.checkpoints import latest_intact, restore_strictly, step_of, steps_in
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.distribution import is_chief
from electra_tf.train.loop import Run, train
from electra_tf.train.optimizer import reset_optimizer
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.signals import Interruption
from electra_tf.train.step import compile_task
from electra_tf.weights.source import load_trained
from electra_tf.weights.stored_model import StoredModel

logger = logging.getLogger(__name__)

Loop = DeviceLoop[FinetuningTask]


@dataclass(frozen=True)
class Job:
    """A task to fine-tune with several seeds."""

    config: FinetuningConfig  # of all seeds, except for `train.seed`
    data: TaskData
    pretrained: StoredModel  # whose encoder each seed starts from, `finished`
    output_dir: str  # in which each seed gets a directory `seed_N/`
    strategy: tf.distribute.Strategy
    test: TaskData | None  # the examples of `--test_file`, which each seed's kept model scores once
    given: dict[str, Any]  # the user's settings
    interruption: Interruption  # ends a training or an evaluation

    def directory(self, seed: int) -> RunDirectory:
        return RunDirectory(os.path.join(self.output_dir, f"seed_{seed}"), flag="output_dir")

    def config_of(self, seed: int) -> FinetuningConfig:
        return self.config.model_copy(update={"train": self.config.train.model_copy(update={"seed": seed})})

    def result_file(self, seed: int) -> str:
        """The file with a seed's step and scores, written last: a seed that has it is done."""
        return os.path.join(self.directory(seed).path, RESULT)

    def stage(self, seed: int, data: TaskData) -> FinetuningStage:
        return FinetuningStage(self.config_of(seed), data, self.pretrained.tokenizer, self.strategy)


def run_seeds(job: Job, seeds: Sequence[int]) -> None:
    """Fine-tunes each seed that is not done yet, one after another. `results_of` reads the results.

    A killed seed continues from its checkpoint and gives the same result as an uninterrupted one. A seed that was done
    before there was a test file is scored on it with its kept checkpoint.

    Raises: UserError: a directory holds another task, other settings or the scores of another test file, or no
        checkpoint to score. Interrupted, TrainingStopped: see `train`.
    """
    for seed in _started_seeds(job):
        directory = job.directory(seed)
        directory.require_same_run(job.config_of(seed))
        directory.require_same_data([job.data.data_hash])
    finished = results_of(job)
    for seed, result in finished.items():
        if "test" in result and (job.test is None or job.test.data_hash != result["test"]["data"]):
            found = "no test file is given" if job.test is None else f"{job.test.source} is another"
            raise UserError(
                f"{job.result_file(seed)} has the scores of test_file={result['test']['file']}, but {found}; give that "
                "file, or a new output_dir"
            )
    for seed, result in finished.items():
        if job.test is not None and "test" not in result:
            _score_finished(job, job.test, seed, result)
    unfinished = [seed for seed in dict.fromkeys(seeds) if seed not in finished]
    if not unfinished:
        return
    with job.strategy.scope():  # all seeds share the task, so a step is traced once
        loop = DeviceLoop(compile_task(build_finetuning_task(job.config)), job.strategy)
    for seed in unfinished:
        stage, given = job.stage(seed, job.data), merge(job.given, {"train": {"seed": seed}})
        run = Run(stage.config, job.directory(seed), job.strategy, given)
        logger.info("%s, seed %d", job.config.name, seed)
        line = _reset(loop, job, seed)
        if seed == unfinished[0]:
            logger.info(line)
        with run.opened([stage]):
            evaluation = train(run, loop, [stage], interruption=job.interruption)
        _finish(job, loop, stage, evaluation.predictions)


def results_of(job: Job) -> dict[int, dict[str, Any]]:
    """Returns the content of `result.json` by seed, also for the seeds of earlier calls."""
    results = {seed: read_rewritten(job.result_file(seed)) for seed in _started_seeds(job)}
    return {seed: result for seed, result in results.items() if result}


def _started_seeds(job: Job) -> list[int]:
    seeds = seeds_in(job.output_dir)
    return [seed for seed in seeds if exists(job.result_file(seed)) or steps_in(job.directory(seed).checkpoints)]


def _reset(loop: Loop, job: Job, seed: int) -> str:
    """Puts a trained task into the initial state of a seed. Returns: a line about the weights, for the log."""
    task = loop.task
    with tf.device("CPU:0"):
        seed_initial_values(seed)
        fresh = build_finetuning_task(job.config_of(seed))
        if job.config.untrained:
            line = "untrained: the encoder's weights are random"
        else:
            line = job.pretrained.initialize(fresh)
    for variable, initial in zip(task.variables, fresh.variables, strict=True):
        variable.assign(initial.numpy())
    task.seed.assign(seed)
    reset_optimizer(task.optimizer)
    for variable in loop.metrics.variables:
        variable.assign(tf.zeros_like(variable))
    return line


def _finish(job: Job, loop: Loop, stage: FinetuningStage, evaluated: Predictions | None) -> None:
    """Writes the result of a trained seed. Args: evaluated: by its last weights; None if an earlier process did it."""
    seed, step = stage.config.train.seed, loop.task.completed_steps
    directory = job.directory(seed)
    if job.config.evaluation.best_metric is not None:
        best = latest_intact(directory.best)
        assert best is not None
        if step_of(best) != step:
            restore_strictly(tf.train.Checkpoint(task=loop.task), best)
            step, evaluated = step_of(best), None
    if evaluated is None:
        evaluated = _evaluated(job, loop, stage)
    test = None if job.test is None else _evaluated(job, loop, job.stage(seed, job.test), evaluated.task)
    if not is_chief(job.strategy):
        return
    result = {"seed": seed, "step": step, **job.data.notes, "metrics": _written_scores(directory, evaluated)}
    if (alarm := evaluated.alarm) is not None:
        result["alarm"] = alarm
        logger.warning(
            "%s, seed %d seems to have learnt nothing: %s; see docs/finetuning.md", job.config.name, seed, alarm
        )
    if evaluated.reports:
        result["reports"] = evaluated.reports
    _write_result(job, seed, result, test)
    keep = job.config.train.keep
    if keep not in ("best", "all"):
        remove(directory.best)
    if keep not in ("last", "all"):
        remove(directory.checkpoints)


def _evaluated(job: Job, loop: Loop, stage: FinetuningStage, task: TaskConfig | None = None) -> Predictions:
    evaluation = loop.evaluate(stage)
    if evaluation is None:
        raise job.interruption.interrupted()
    return stage.data.evaluated(stage.in_row_order(evaluation.outputs), task)


def _written_scores(directory: RunDirectory, evaluated: Predictions) -> dict[str, float | None]:
    """Writes the predictions for a split, and returns its metrics; JSON has no NaN, so one without a value is None."""
    for name, content in evaluated.files().items():
        write_atomically(os.path.join(directory.path, name), content)
    return {name: None if math.isnan(value) else value for name, value in evaluated.metrics.items()}


def _write_result(job: Job, seed: int, result: dict[str, Any], test: Predictions | None) -> None:
    if test is not None and job.test is not None:
        metrics = _written_scores(job.directory(seed), test)
        result["test"] = {"file": job.test.source, "data": job.test.data_hash, **job.test.notes, "metrics": metrics}
        if test.reports:
            result["reports"] = {**result.get("reports", {}), **test.reports}
    write_atomically(job.result_file(seed), json.dumps(result, indent=1, allow_nan=False).encode())


def _score_finished(job: Job, test: TaskData, seed: int, result: dict[str, Any]) -> None:
    """Scores the test file with the kept checkpoint of a finished seed. Raises: UserError: it was not kept."""
    with job.strategy.scope():
        model = load_trained(job.directory(seed).path, flag="output_dir").finished()
        task = model.build_task()
    if model.step != result["step"]:
        raise UserError(
            f"{job.directory(seed).path} lacks the checkpoint of step {result['step']}, which test_file needs; "
            "remove the directory to fine-tune this seed again"
        )
    assert isinstance(task, FinetuningTask)
    logger.info("%s, seed %d: the checkpoint of step %d scores the test file", job.config.name, seed, result["step"])
    evaluated = _evaluated(job, DeviceLoop(task, job.strategy), job.stage(seed, test), task.config.task)
    if is_chief(job.strategy):
        _write_result(job, seed, result, evaluated)
