"""One task fine-tuned from the same encoder with several seeds: one traced step, one directory for each seed."""

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
from electra_tf.config.schema import EncoderConfig
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
from electra_tf.text.tokenizer import BertTokenizer
from electra_tf.train.optimizer import reset_optimizer
from electra_tf.train.trainer import Loops

logger = logging.getLogger(__name__)

KEEP = ("best", "last", "all", "none")


@dataclass(frozen=True)
class PretrainedEncoder:
    """The encoder that fine-tuning starts from.

    Attributes:
        config: its sizes.
        tokenizer, vocabulary_file: of its text; the second is the content of vocab.txt.
        source: the checkpoint, for messages and for the record.
        assign_to: copies the weights into an encoder of the same sizes and returns a line for the log.
    """

    config: EncoderConfig
    tokenizer: BertTokenizer
    vocabulary_file: bytes
    source: str
    assign_to: Callable[[Encoder], str]


@dataclass(frozen=True)
class Job:
    """A task to fine-tune.

    Attributes:
        config: of all seeds; `train.seed` is replaced by each.
        pretrained: the encoder.        untrained: its sizes and vocabulary are used, its weights are not.
        output_dir: gets `seed_N/` for each seed.
        keep: which checkpoints stay when a seed is done: one of `KEEP`.
        force: take over a remote directory that another process is named as holding.
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
        """Of a seed."""
        return RunDirectory(os.path.join(self.output_dir, f"seed_{seed}"), flag="--output_dir")

    def config_of(self, seed: int) -> FinetuningConfig:
        """The configuration of a seed."""
        return self.config.model_copy(update={"train": self.config.train.model_copy(update={"seed": seed})})

    def stage(self, seed: int) -> FinetuningStage:
        """The input of a seed."""
        is_tpu = isinstance(self.strategy, tf.distribute.TPUStrategy)
        tokenizer, vocabulary = self.pretrained.tokenizer, self.pretrained.vocabulary_file
        return FinetuningStage(self.config_of(seed), self.data, tokenizer, vocabulary, static_shapes=is_tpu)


@dataclass(frozen=True)
class FinetunedModel:
    """A fine-tuned model.

    Attributes:
        task: with its weights.        source: the checkpoint they came from.
    """

    config: FinetuningConfig
    task: FinetuningTask
    tokenizer: BertTokenizer
    source: str


def load_seed(job: Job, seed: int) -> FinetunedModel:
    """The model of a seed that is done: of its best checkpoint if that was kept, else of its newest.

    Raises: UserError: if no checkpoint was kept.
    """
    directory, config = job.directory(seed), job.config_of(seed)
    prefix = newest_whole(directory.best) or newest_whole(directory.checkpoints)
    if prefix is None:
        raise UserError(f"{directory.path} holds no checkpoint; fine-tune this seed with --keep=last or best")
    with job.strategy.scope():
        task = build_finetuning_task(config)
    restore_strictly(tf.train.Checkpoint(task=task), prefix)
    return FinetunedModel(config, task, job.pretrained.tokenizer, prefix)


def result_file(directory: RunDirectory) -> str:
    """The file that a seed which is done leaves: its step and its dev metrics."""
    return os.path.join(directory.path, "result.json")


def run_seeds(job: Job, seeds: tuple[int, ...], interruption: Interruption | None = None) -> None:
    """Fine-tunes every seed that is not done yet, one after the other; `results_of` tells what they give.

    A seed that a kill has ended goes on from its checkpoint; either way it gives what it would have given.

    Raises: UserError: if a directory holds another task or other settings. Interrupted, TrainingStopped: as `train`.
    """
    for seed in _started_seeds(job):
        directory = job.directory(seed)
        directory.require_same_run(job.config_of(seed))
        directory.require_same_data([job.data.identity])
    todo = [seed for seed in seeds if not exists(result_file(job.directory(seed)))]
    interruption = interruption or Interruption()
    loops: Loops | None = None
    for seed in todo:
        build, stage = functools.partial(build_finetuning_task, job.config), job.stage(seed)
        run = Run(job.config_of(seed), job.directory(seed), job.strategy, build, job.force)
        if loops is None:
            logger.info(stage.describe())
            loops = Loops(run.build(), job.strategy)
        logger.info("%s, seed %d", job.config.name, seed)
        line = _reset(loops, job, seed)
        if seed == todo[0]:
            logger.info(line)
        train(dataclasses.replace(run, loops=loops), lambda stage=stage: [stage], interruption=interruption)
        _finish(job, loops, stage, run, interruption)


def results_of(job: Job) -> dict[int, dict]:
    """The content of `result.json` of every seed that is done, by this call or by an earlier one."""
    files = {seed: result_file(job.directory(seed)) for seed in _started_seeds(job)}
    return {seed: read_json(file) for seed, file in files.items() if exists(file)}


def _started_seeds(job: Job) -> list[int]:
    """The seeds in the output directory that are done or have a checkpoint, also those that are not asked for."""
    numbers = [name.removeprefix("seed_") for name in names_in(job.output_dir) if name.startswith("seed_")]
    seeds = [(seed, job.directory(seed)) for seed in sorted(int(number) for number in numbers if number.isdecimal())]
    return [seed for seed, run in seeds if exists(result_file(run)) or steps_in(run.checkpoints)]


def _reset(loops: Loops, job: Job, seed: int) -> str:
    """Puts a task that has been trained back to the initial state of a seed. Returns: a line on the weights."""
    with tf.device("CPU:0"):
        # A model of its own: initial values are drawn as Keras draws them, whatever was drawn before.
        tf_keras.utils.set_random_seed(seed)
        fresh = build_finetuning_task(job.config_of(seed))
        line = "random weights: nothing is loaded (--untrained)"
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
    """Evaluates what is kept of a seed, writes its predictions and its result, and removes what is not kept."""
    directory, seed, prefix = run.directory, run.config.train.seed, None
    if job.keep == "best":
        prefix = newest_whole(directory.best)
        restore_strictly(tf.train.Checkpoint(task=loops.task), prefix)
    step = step_of(prefix) if prefix else int(loops.task.optimizer.iterations.numpy())
    evaluator = loops.evaluator(loops.task)
    evaluation = evaluator.evaluate(stage.evaluation_batches, stage.num_evaluation_batches)
    if evaluation is None:  # a signal came after the last step
        raise interruption.interrupted()
    if not run.is_chief:
        return
    ordered = stage.in_row_order(evaluation.outputs)
    for name, content in job.data.prediction_files(ordered).items():
        write_atomically(os.path.join(directory.path, name), content)
    # JSON has no NaN, such as the correlation of predictions that are all equal: null.
    metrics = {name: None if math.isnan(value) else value for name, value in job.data.metrics(ordered).items()}
    result = {"seed": seed, "step": step, "metrics": metrics}
    if (problem := job.data.problem(ordered)) is not None:
        result["alarm"] = problem
        logger.warning("%s, seed %d has learnt nothing: %s; see docs/finetuning.md", job.config.name, seed, problem)
    write_atomically(result_file(directory), json.dumps(result, indent=1, allow_nan=False).encode())
    # What is left is what the result tells of, so `best/` stays only where it is that.
    kept = {"best": [directory.best], "none": []}.get(job.keep, [directory.checkpoints])
    for path in (directory.best, directory.checkpoints):
        if path not in kept and tf.io.gfile.exists(path):
            tf.io.gfile.rmtree(path)
