"""Pre-training on a data set, by the code of `electra-tf pretrain`, or with Keras' `fit`."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from electra_tf.api.loading import load
from electra_tf.api.model import Model
from electra_tf.api.process import interruptible, overrides_of, started_strategy, users_process
from electra_tf.config.errors import UserError
from electra_tf.data.mixture import DataDir
from electra_tf.data.pretraining_input import training_batches
from electra_tf.models.generators import UnigramGenerator
from electra_tf.models.layers import seed_initial_values
from electra_tf.tasks.pretrain import Objective, build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from electra_tf.tasks.pretrain.stages import open_fitting_data, open_stages, plan_stages
from electra_tf.train.distribution import share_cores
from electra_tf.train.loop import Run, train
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.step import compile_task, splits_batches
from electra_tf.weights.hub import hub_source
from electra_tf.weights.initial_weights import initial_weights, start_from


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

    def model(self) -> Model:
        """The trained model, from the run's newest checkpoint."""
        return load(self.model_dir)


@users_process()
def pretrain(
    config: str | os.PathLike[str],
    data_dir: DataDir | Iterable[DataDir],
    model_dir: str | os.PathLike[str],
    *,
    settings: Mapping[str, Any] | None = None,
    seed: int | None = None,
    strategy: str = "one_device",
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
    directories = [data_dir] if isinstance(data_dir, str | os.PathLike | Mapping) else list(data_dir)
    parsed = load_config(config, overrides_of(_with_seed(settings, seed)))
    plans = plan_stages(parsed)
    if strategy == "one_device" and all(splits_batches(each.config.train, parsed.rows_together) for each in plans):
        share_cores()
    source = None if init_from is None else hub_source(os.fspath(init_from))
    start = start_from(source, fresh_generator, with_optimizer, grow)
    with started_strategy(strategy) as devices, interruptible() as interruption:
        for plan in plans:
            plan.require_divisible(devices.num_replicas_in_sync)
        run = Run(parsed, RunDirectory(model_dir), devices, lambda: build_objective(parsed))
        evaluation = train(
            run,
            lambda: open_stages(parsed, directories),
            start=start,
            stop_at_step=stop_at_step,
            interruption=interruption,
        )
    return PretrainingResult(os.fspath(model_dir), list(run.directory.reports("train")), dict(evaluation))


@users_process()
def build_model(
    config: str | os.PathLike[str],
    data_dir: DataDir | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
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
    parsed = load_config(config, overrides_of(_with_seed(settings, seed)))
    seed_initial_values(parsed.train.seed)
    model: Objective = build_objective(parsed)
    compile_task(model)
    if data_dir is None:
        if isinstance(getattr(model, "generator", None), UnigramGenerator):
            raise UserError("objective.generator.kind unigram needs the frequencies of the tokens; give data_dir")
        initial_weights(model, None, False, None)
        return model
    data = open_fitting_data(data_dir, parsed)
    model.adopt_tokenizer(data.tokenizer)
    initial_weights(model, None, False, data.tokenizer)
    model.adopt_data(data)
    return model


@users_process()
def pretraining_batches(
    data_dir: DataDir,
    config: str | os.PathLike[str] | PretrainingConfig[Any],
    *,
    settings: Mapping[str, Any] | None = None,
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


def _with_seed(settings: Mapping[str, Any] | None, seed: int | None) -> Mapping[str, Any] | None:
    return settings if seed is None else {**(settings or {}), "train.seed": seed}
