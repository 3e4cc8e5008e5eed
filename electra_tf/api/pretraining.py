"""The orders of pre-training: `pretrain`, `evaluate` and `describe`; and a model and batches for Keras' `fit`."""

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import electra_tf
from electra_tf.api.process import GivenSettings, interruptible, overrides_of, started_strategy, users_process
from electra_tf.config.errors import UserError
from electra_tf.data.corpus import damaged_data_reported
from electra_tf.data.mixture import DataDir
from electra_tf.data.pretraining_input import training_batches
from electra_tf.models.generators import UnigramGenerator
from electra_tf.models.layers import seed_initial_values
from electra_tf.tasks.pretrain import Objective, build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from electra_tf.tasks.pretrain.fast_electra import FastElectra
from electra_tf.tasks.pretrain.stages import PretrainingStage, open_fitting_data, open_stages, plan_stages
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.distribution import BATCHES_IN_FLIGHT
from electra_tf.train.evaluation import restore_newest
from electra_tf.train.loop import Run, train
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.start import Start, check_data, continue_from, recorded_start
from electra_tf.train.step import compile_task, parts_at_once
from electra_tf.weights.hub import hub_source

logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class PretrainingResult:
    """The result of `pretrain`.

    Attributes:
        model_dir: the run's directory.
        history: the means that were reported during the whole training, in order, by metric; also `step`.
        evaluation: the metrics of the last evaluation; empty if the data has no held-out documents.
    """

    model_dir: str
    history: list[dict[str, Any]]
    evaluation: dict[str, float]

    def __repr__(self) -> str:
        step = self.history[-1]["step"] if self.history else 0
        return f"<electra_tf.PretrainingResult {self.model_dir}: step {step}, {len(self.evaluation)} held-out metrics>"

    def model(self) -> "electra_tf.Model":
        """The trained model, from the run's newest checkpoint."""
        return electra_tf.load(self.model_dir)


@users_process()
def pretrain(
    config: str | os.PathLike[str],
    data_dir: DataDir | Iterable[DataDir],
    model_dir: str | os.PathLike[str],
    *,
    settings: GivenSettings = None,
    seed: int | None = None,
    strategy: str = "one_device",
    tpu: str = "local",
    logical_cpu_devices: int = 1,
    init_from: str | os.PathLike[str] | None = None,
    fresh_generator: bool = False,
    with_optimizer: bool = False,
    grow: str | None = None,
    stop_at_step: int | None = None,
) -> PretrainingResult:
    """Trains an encoder, as `electra-tf pretrain` does with the flags of these names.

    The same call continues an interrupted one, also of the command. Ctrl-C, or a notebook's button to stop, ends the
    training after its next step and a checkpoint, with KeyboardInterrupt.

    Args:
        config: a preset such as `small`, or a YAML file.
        data_dir: the output of `build_dataset`, or a mixture, `{"wiki": 0.7, "books": 0.3}`; of a configuration with
            stages a list, one for each stage.
        model_dir: the run's directory, local or a URL.
        settings: settings by path, which override those of `config`: `{"train.num_steps": 1000}`.
        seed: of initial values, order, masks, samples and dropout; None: `train.seed` of the settings.
        strategy: the devices: `one_device`, `mirrored`, `multi_worker_mirrored` or `tpu`.
        tpu: of strategy `tpu`: `local`, on a TPU VM, its name, or `grpc://HOST:PORT`.
        logical_cpu_devices: the devices into which the CPU is split, for strategy `mirrored`.
        init_from: the source of a new run's weights: a run, a checkpoint, a folder, or `OWNER/NAME` of the Hub.
        fresh_generator: with `init_from`, give the generator random weights.
        grow: `stack`: with `init_from`, a model of fewer layers, repeat its layers.
        with_optimizer: with `init_from`, a run, go on from its step and with its optimizer.
        stop_at_step: end this call after that step; the schedule stays the same.

    Returns:
        The metrics of the training, and the trained model.

    Raises:
        UserError: data, settings or an earlier run in the directory do not fit.
        TrainingStopped: the loss is not finite.
        KeyboardInterrupt: after a checkpoint.
    """
    if stop_at_step is not None and stop_at_step < 1:
        raise UserError(f"stop_at_step is {stop_at_step}, expected 1 or more")
    source = _weights_source(init_from, fresh_generator, with_optimizer, grow)
    parsed = load_config(config, overrides_of(settings, seed))
    with (
        _started_run(parsed, model_dir, strategy, tpu, logical_cpu_devices) as run,
        interruptible() as interruption,
    ):
        stages = open_stages(parsed, _directories(data_dir))
        with run.opened(stages) as is_new:
            start = recorded_start(run.directory, is_new, source, with_optimizer)
            task = compiled_objective(parsed, run.strategy)
            task.adopt_tokenizer(stages[0].tokenizer)
            if is_new:
                start = start._replace(report=_initialize(task, stages, start, fresh_generator, grow))
            loop = DeviceLoop(task, run.strategy)
            evaluation = train(run, loop, stages, start=start, stop_at_step=stop_at_step, interruption=interruption)
    return PretrainingResult(os.fspath(model_dir), list(run.directory.reports("train")), dict(evaluation.metrics))


@users_process()
def evaluate(
    config: str | os.PathLike[str],
    data_dir: DataDir | Iterable[DataDir],
    model_dir: str | os.PathLike[str],
    *,
    settings: GivenSettings = None,
    strategy: str = "one_device",
    tpu: str = "local",
    logical_cpu_devices: int = 1,
    as_masked_lm: bool = False,
) -> dict[str, float]:
    """The held-out metrics of the newest checkpoint of a run, which may be in training.

    Args:
        config: as the run's, see `pretrain`.
        data_dir: that of the run, or another data set of the same vocabulary.
        model_dir: the run's directory.
        settings: as the run's.
        strategy: the devices, see `pretrain`.
        tpu: of strategy `tpu`, see `pretrain`.
        logical_cpu_devices: of strategy `mirrored`, see `pretrain`.
        as_masked_lm: measure the accuracy on single masked tokens instead (paper, appendix G).

    Returns:
        The metrics by name, and the checkpoint's `step`.

    Raises:
        UserError: there is no checkpoint, or settings, vocabulary or data do not fit.
    """
    parsed = load_config(config, overrides_of(settings))
    with _started_run(parsed, model_dir, strategy, tpu, logical_cpu_devices, is_training=False) as run:
        stages = open_stages(parsed, _directories(data_dir))
        task = compiled_objective(parsed, run.strategy)
        task.adopt_tokenizer(stages[0].tokenizer)
        step, stage = restore_newest(run.directory, task, stages)
        if as_masked_lm:
            stage = stage.with_all_tokens_masked()
        evaluated = stage.task.as_masked_lm() if as_masked_lm else stage.task
        with damaged_data_reported():
            evaluation = DeviceLoop(evaluated, run.strategy).evaluate(stage)
    return {"step": step, **(evaluation.metrics if evaluation else {})}


def describe(
    config: str | os.PathLike[str],
    data_dir: DataDir | Iterable[DataDir],
    model_dir: str | os.PathLike[str],
    *,
    settings: GivenSettings = None,
    strategy: str = "one_device",
    tpu: str = "local",
    logical_cpu_devices: int = 1,
    init_from: str | os.PathLike[str] | None = None,
    fresh_generator: bool = False,
    with_optimizer: bool = False,
    grow: str | None = None,
) -> dict[str, Any]:
    """The sizes and settings of a run that `pretrain` would begin or continue; builds its model and writes nothing.

    Args: as for `pretrain`; without data directories the data is unknown.
    Raises: UserError: as `pretrain` before its first step.
    """
    source = _weights_source(init_from, fresh_generator, with_optimizer, grow)
    parsed = load_config(config, overrides_of(settings))
    with _started_run(parsed, model_dir, strategy, tpu, logical_cpu_devices) as run:
        directories = _directories(data_dir)
        stages = open_stages(parsed, directories) if directories else ()
        begins, task = run.begins(), compiled_objective(parsed, run.strategy)
        if begins:
            for line in _initialize(task, stages, Start(source, with_optimizer), fresh_generator, grow):
                logger.info(line)
        return {
            "data": [source.sizes() for stage in stages for source in stage.sources],
            "trainable_parameters": int(sum(np.prod(variable.shape) for variable in task.trainable_variables)),
            "global_batch_size": parsed.train.batch_size,
            "replicas": run.strategy.num_replicas_in_sync,
            "tokens_per_step": parsed.train.batch_size * parsed.data.max_seq_length,
            "config": parsed.model_dump(mode="json"),
        }


@contextlib.contextmanager
def _started_run(
    config: PretrainingConfig[Any],
    model_dir: str | os.PathLike[str],
    strategy: str,
    tpu: str,
    logical_cpu_devices: int,
    is_training: bool = True,
) -> Iterator[Run]:
    """The run of a configuration, on devices among which its batches divide."""
    plans = plan_stages(config)
    parts = [parts_at_once(plan.config.train, config.rows_together) for plan in plans]
    num_at_once = min(parts) if is_training else BATCHES_IN_FLIGHT
    with started_strategy(strategy, tpu, logical_cpu_devices, num_at_once) as devices:
        for plan in plans:
            plan.require_divisible(devices.num_replicas_in_sync)
        yield Run(config, RunDirectory(model_dir), devices)


def _directories(data_dir: DataDir | Iterable[DataDir]) -> list[DataDir]:
    return [data_dir] if isinstance(data_dir, str | os.PathLike | Mapping) else list(data_dir)


def compiled_objective(config: PretrainingConfig[Any], strategy: tf.distribute.Strategy) -> Objective:
    """The model of a run with its initial values, ready for training steps."""
    seed_initial_values(config.train.seed)
    with strategy.scope():
        return compile_task(build_objective(config))


def _weights_source(
    init_from: str | os.PathLike[str] | None, fresh_generator: bool, with_optimizer: bool, grow: str | None
) -> str | None:
    """The source of a new run's weights. Raises: UserError: the arguments do not go together."""
    flags = {"fresh_generator": fresh_generator, "with_optimizer": with_optimizer, "grow": grow}
    given = [flag for flag, is_given in flags.items() if is_given]
    if given and init_from is None:
        raise UserError(f"{given[0]} requires init_from")
    if with_optimizer and len(given) > 1:
        raise UserError(
            f"with_optimizer takes the moments of the source's own weights; remove one of {', '.join(given)}"
        )
    return None if init_from is None else hub_source(init_from)


def _initialize(
    task: Objective, stages: Sequence[PretrainingStage], start: Start, fresh_generator: bool, grow: str | None
) -> list[str]:
    """Gives the task of a new run its initial weights. Returns: lines for the log; none if they are random."""
    tokenizer = stages[0].tokenizer if stages else None
    if start.init_from is not None and start.with_optimizer:
        report = continue_from(task, start.init_from, tokenizer)
    else:
        report = initial_weights(task, start.init_from, fresh_generator, tokenizer, stacks=grow is not None)
    check_data(stages, start.init_from, None if start.with_optimizer else task.config.train.seed)
    return report


def initial_weights(
    task: Objective,
    init_from: str | os.PathLike[str] | None = None,
    fresh_generator: bool = False,
    tokenizer: StoredTokenizer | None = None,
    stacks: bool = False,
) -> list[str]:
    """Sets the weights of a new run that are not random: those of `init_from`, if given, and of a frozen generator.

    Args, Raises: see `electra_tf.weights.warm_start.initialize_from` and `load_auxiliary`.
    Returns: lines for the log; none if all weights are random.
    """
    lines: list[str] = []
    # A run whose weights are random need not wait for the imports of all formats of weights.
    if init_from is not None:
        from electra_tf.weights.warm_start import initialize_from

        lines += initialize_from(task, init_from, fresh_generator, tokenizer, stacks)
    if isinstance(task, FastElectra):
        from electra_tf.weights.warm_start import load_auxiliary

        lines += load_auxiliary(task, tokenizer)
    return lines


@users_process()
def build_model(
    config: str | os.PathLike[str],
    data_dir: DataDir | None = None,
    *,
    settings: GivenSettings = None,
    seed: int | None = None,
) -> keras.Model:
    """A new model of pre-training with the initial weights of `pretrain`, for `fit(pretraining_batches(...))`.

    A step of `fit` is one of `pretrain`. Checkpoints and exact resumption are those of `pretrain` alone. `evaluate`
    gives the means of the losses over the batches. Call it in the scope of a `tf.distribute` strategy to train on
    several devices.

    Args:
        config: a preset such as `small`, or a YAML file.
        data_dir: the data that the model will be trained on, from which it takes the number of tokens, and the
            frequencies that `objective.generator.kind: unigram` needs.
        settings: settings by path, which override those of `config`.
        seed: see `pretrain`; `pretraining_batches` of the model's `config` have it too.

    Returns:
        A `keras.Model` whose `config` has all settings, `encoder` the encoder, and that maps a batch to the
        encoder's output.

    Raises:
        UserError: the settings are wrong, or the data does not fit them.
    """
    parsed = load_config(config, overrides_of(settings, seed))
    seed_initial_values(parsed.train.seed)
    model: Objective = build_objective(parsed)
    compile_task(model)
    if data_dir is None:
        if isinstance(getattr(model, "generator", None), UnigramGenerator):
            raise UserError("objective.generator.kind unigram needs the frequencies of the tokens; give data_dir")
        initial_weights(model)
        return model
    data = open_fitting_data(data_dir, parsed)
    model.adopt_tokenizer(data.tokenizer)
    initial_weights(model, tokenizer=data.tokenizer)
    model.adopt_data(data)
    return model


@users_process()
def pretraining_batches(
    data_dir: DataDir,
    config: str | os.PathLike[str] | PretrainingConfig[Any],
    *,
    settings: GivenSettings = None,
    first_step: int = 0,
) -> tf.data.Dataset:
    """Endless batches for `build_model(...).fit(..., steps_per_epoch=...)`.

    Batch k is a function of (`train.seed`, k), the same that step k + 1 of `pretrain` trains on.

    Args:
        data_dir: the output of `build_dataset`, or a mixture, see `pretrain`.
        config: the `config` of a model that `build_model` made, or its preset or YAML file, without stages.
        settings: settings by path, which override those of a preset or file.
        first_step: k of the first batch.

    Returns:
        Batches of `train.batch_size` examples, tensors by name.

    Raises:
        UserError: the settings are wrong, or the data does not fit them.
    """
    parsed = config if isinstance(config, PretrainingConfig) else load_config(config, overrides_of(settings))
    if parsed.stages:
        raise UserError("the configuration has stages, each with batches of its own; remove them, or call pretrain")
    train = parsed.train
    settings = {"seed": train.seed, "batch_size": train.batch_size, "num_steps": train.num_steps}
    return training_batches(open_fitting_data(data_dir, parsed), parsed.masking, first_step=first_step, **settings)
