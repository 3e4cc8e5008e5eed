"""Reads runs of this program: the restored task, or its weights by name."""

import os

import tensorflow as tf

from electra_tf.files import read_json
from electra_tf.tasks.base import Task
from electra_tf.tasks.finetune.seeds import restore_finetuned
from electra_tf.tasks.pretrain import Objective, build_objective
from electra_tf.tasks.pretrain.config import load_config
from electra_tf.train.checkpoints import RunCheckpoint, find_checkpoint, in_precision, restore_strictly
from electra_tf.train.run_directory import RunDirectory, no_run_at
from electra_tf.weights.names import named_variables
from electra_tf.weights.stored_model import StoredModel, sound_weights


def load_objective(path: str | os.PathLike, precision: str | None = None) -> Objective:
    """The objective of a pre-training run with its weights; before the last phase, that of the checkpoint's phase.

    Args:
        path: see `electra_tf.train.checkpoints.find_checkpoint`.
        precision: the dtype of matrix products and activations; None for the run's own.
    Raises: UserError: there is no such checkpoint, or it does not fit.
    """
    if (checkpoint := find_checkpoint(path, "--model_dir")) is None:
        raise no_run_at(path)
    objective = _restored_objective(checkpoint, precision)
    phase = objective.phase_at(checkpoint.step)
    return objective if phase is objective.phases()[-1] else phase


def read_run(checkpoint: RunCheckpoint) -> StoredModel:
    """The model of a run, of pre-training or fine-tuning, as its training left it."""
    return (_read_finetuned if checkpoint.run.is_finetuned else _read_pretrained)(checkpoint)


def _read_pretrained(checkpoint: RunCheckpoint) -> StoredModel:
    run, step = checkpoint.run, checkpoint.step
    objective = _restored_objective(checkpoint)
    config, weights, source = objective.config, _weights_of(objective, run), f"step {step} of {run.path}"
    origin = read_json(run.warm_start_file)
    is_kept = objective.phase_at(step).encoder is objective.encoder
    return StoredModel(
        source=source,
        encoder=config.encoder,
        generator=config.objective.generator_encoder(config) if config.objective.trains_generator else None,
        weights=weights,
        objective=config.objective.name,
        step=step,
        kept_scope="electra/" if is_kept else "generator/",
        facts={
            "data": read_json(run.data_file).get("data", []),
            "init_from": origin.get("init_from"),
            "configuration": config.model_dump(mode="json"),
        },
        stored_tokenizer=run.read_tokenizer(),
    )


def _read_finetuned(checkpoint: RunCheckpoint) -> StoredModel:
    model = restore_finetuned(checkpoint)
    config = model.config
    return StoredModel(
        source=checkpoint.prefix,
        encoder=config.encoder,
        generator=None,
        weights=_weights_of(model.task, checkpoint.run),
        step=checkpoint.step,
        finetuned=config,
        facts={
            "init_from": config.origin,
            "configuration": config.model_dump(mode="json"),
        },
        stored_tokenizer=checkpoint.run.read_tokenizer(),
    )


def _restored_objective(checkpoint: RunCheckpoint, precision: str | None = None) -> Objective:
    objective = build_objective(in_precision(load_config(checkpoint.run.settings_file), precision))
    objective.adopt_tokenizer(checkpoint.run.read_tokenizer())
    restore_strictly(tf.train.Checkpoint(task=objective), checkpoint.prefix)
    return objective


def _weights_of(task: Task, run: RunDirectory) -> dict:
    return sound_weights(run.path, {name: variable.numpy() for name, variable in named_variables(task).items()})
