"""Fine-tunes a task with several seeds: each has its directory, and all share one traced training step."""

import dataclasses
import functools
import json
import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf
import tf_keras

from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig
from electra_tf.files import exists, names_in, read_json, write_atomically
from electra_tf.models.encoder import Encoder
from electra_tf.runs.checkpoints import newest_whole, restore_strictly, step_of, steps_in
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.interruption import Interruption
from electra_tf.runs.run import Run, train
from electra_tf.tasks.finetune import build_finetuning_task
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.data import FinetuningStage, TaskData
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.train.optimizer import reset_optimizer
from electra_tf.train.trainer import Loops

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PretrainedEncoder:
    """The encoder that fine-tuning starts from.

    Attributes:
        config: the encoder's sizes.
        source: the checkpoint, as messages and summary.json name it.
        assign_to: copies the weights into an encoder of the same sizes, and returns a line for the log.
    """

    config: EncoderConfig
    tokenizer: Tokenizer
    source: str
    assign_to: Callable[[Encoder], str]


@dataclass(frozen=True)
class FinetunedModel:
    """A fine-tuned model.

    Attributes:
        task: the model, with the fine-tuned weights.
        source: the checkpoint with these weights.
    """

    config: FinetuningConfig
    task: FinetuningTask
    tokenizer: Tokenizer
    source: str


@dataclass(frozen=True)
class Job:
    """A task to fine-tune with several seeds.

    Attributes:
        config: the configuration of all seeds, except for `train.seed`.
        output_dir: the directory in which each seed gets a directory `seed_N/`.
        keep: the checkpoints that stay when a seed is done: "best", "last", "all" or "none".
        untrained: True to use the encoder's sizes and vocabulary with random weights.
        force: True to take over a remote directory that another process holds.
    """

    config: FinetuningConfig
    data: TaskData
    pretrained: PretrainedEncoder
    output_dir: str
    strategy: tf.distribute.Strategy
    keep: str = "last"
    untrained: bool = False
    force: bool = False

    def directory(self, seed: int) -> RunDirectory:
        return RunDirectory(os.path.join(self.output_dir, f"seed_{seed}"), flag="--output_dir")

    def config_of(self, seed: int) -> FinetuningConfig:
        return self.config.model_copy(update={"train": self.config.train.model_copy(update={"seed": seed})})

    def stage(self, seed: int) -> FinetuningStage:
        is_tpu = isinstance(self.strategy, tf.distribute.TPUStrategy)
        return FinetuningStage(self.config_of(seed), self.data, self.pretrained.tokenizer, static_shapes=is_tpu)


def run_seeds(job: Job, seeds: tuple[int, ...], interruption: Interruption | None = None) -> None:
    """Fine-tunes each seed that is not done yet, one after another. `results_of` reads the results.

    A killed seed continues from its checkpoint and gives the same result as an uninterrupted one.

    Raises: UserError: a directory holds another task or other settings. Interrupted, TrainingStopped: see `train`.
    """
    for seed in _started_seeds(job):
        directory = job.directory(seed)
        directory.require_same_run(job.config_of(seed))
        directory.require_same_data([job.data.identity])
    interruption = interruption or Interruption()
    loops: Loops | None = None
    for seed in seeds:
        if exists(_result_file(job, seed)):
            continue
        build, stage = functools.partial(build_finetuning_task, job.config), job.stage(seed)
        run = Run(job.config_of(seed), job.directory(seed), job.strategy, build, job.force)
        is_first = loops is None
        if is_first:
            logger.info(stage.describe())
            loops = Loops(run.build(), job.strategy)
        logger.info("%s, seed %d", job.config.name, seed)
        line = _reset(loops, job, seed)
        if is_first:
            logger.info(line)
        train(dataclasses.replace(run, loops=loops), lambda stage=stage: [stage], interruption=interruption)
        _finish(job, loops, stage, run, interruption)


def results_of(job: Job) -> dict[int, dict]:
    """Returns the content of `result.json` by seed, also for the seeds of earlier calls."""
    files = {seed: _result_file(job, seed) for seed in _started_seeds(job)}
    return {seed: read_json(file) for seed, file in files.items() if exists(file)}


def load_seed(job: Job, seed: int) -> FinetunedModel:
    """Loads the model of a finished seed, from its best checkpoint if that was kept, else from its newest.

    Raises: UserError: no checkpoint was kept.
    """
    directory, config = job.directory(seed), job.config_of(seed)
    prefix = newest_whole(directory.best) or newest_whole(directory.checkpoints)
    if prefix is None:
        raise UserError(
            f"{directory.path} holds no checkpoint; remove it and fine-tune this seed again, with --keep=last or best"
        )
    with job.strategy.scope():
        task = build_finetuning_task(config)
    restore_strictly(tf.train.Checkpoint(task=task), prefix)
    return FinetunedModel(config, task, job.pretrained.tokenizer, prefix)


def _result_file(job: Job, seed: int) -> str:
    """The file with a seed's step and dev metrics, written last: a seed that has it is done."""
    return os.path.join(job.directory(seed).path, "result.json")


def _started_seeds(job: Job) -> list[int]:
    """The seeds in the output directory that have a result or a checkpoint."""
    numbers = [name.removeprefix("seed_") for name in names_in(job.output_dir) if name.startswith("seed_")]
    seeds = sorted(int(number) for number in numbers if number.isdecimal())
    return [seed for seed in seeds if exists(_result_file(job, seed)) or steps_in(job.directory(seed).checkpoints)]


def _reset(loops: Loops, job: Job, seed: int) -> str:
    """Puts a trained task into the initial state of a seed. Returns: a line about the weights, for the log."""
    with tf.device("CPU:0"):
        # A new model draws its initial values from the global seed of Keras.
        tf_keras.utils.set_random_seed(seed)
        fresh = build_finetuning_task(job.config_of(seed))
        line = "--untrained: the encoder's weights are random"
        if not job.untrained:
            line = job.pretrained.assign_to(fresh.encoder)
    for variable, initial in zip(loops.task.variables, fresh.variables, strict=True):
        variable.assign(initial.numpy())
    loops.task.seed.assign(seed)
    reset_optimizer(loops.task.optimizer)
    for variable in loops.metrics.variables:
        variable.assign(tf.zeros_like(variable))
    return line


def _finish(job: Job, loops: Loops, stage: FinetuningStage, run: Run, interruption: Interruption) -> None:
    """Writes the predictions and the result of a seed, and removes the checkpoints that are not kept."""
    directory, seed = run.directory, run.config.train.seed
    step = int(loops.task.optimizer.iterations.numpy())
    outputs = stage.last_outputs
    if job.keep == "best" and step_of(best := newest_whole(directory.best)) != step:
        restore_strictly(tf.train.Checkpoint(task=loops.task), best)
        step, outputs = step_of(best), None
    if outputs is None:  # the weights are of an earlier epoch, or were evaluated by an earlier process
        evaluation = loops.evaluator(loops.task).evaluate(stage.evaluation_batches, stage.num_evaluation_batches)
        if evaluation is None:
            raise interruption.interrupted()
        outputs = stage.in_row_order(evaluation.outputs)
    if not run.is_chief:
        return
    for name, content in job.data.prediction_files(outputs).items():
        write_atomically(os.path.join(directory.path, name), content)
    # JSON has no NaN, so a metric without a value is null.
    metrics = {name: None if math.isnan(value) else value for name, value in job.data.metrics(outputs).items()}
    result = {"seed": seed, "step": step, "metrics": metrics}
    if (problem := job.data.problem(outputs)) is not None:
        result["alarm"] = problem
        logger.warning(
            "%s, seed %d seems to have learnt nothing: %s; see docs/finetuning.md", job.config.name, seed, problem
        )
    write_atomically(_result_file(job, seed), json.dumps(result, indent=1, allow_nan=False).encode())
    kept = {"best": [directory.best], "none": []}.get(job.keep, [directory.checkpoints])
    for path in (directory.best, directory.checkpoints):
        if path not in kept and tf.io.gfile.exists(path):
            tf.io.gfile.rmtree(path)
