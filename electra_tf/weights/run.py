"""Reads the checkpoints of this program's runs, of pre-training and fine-tuning, as stored models."""

import dataclasses
import os

import numpy as np
import tensorflow as tf

from electra_tf.config.loader import read_values
from electra_tf.config.validation import validate
from electra_tf.files import read_json
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.tasks.finetune.summary import RESULT
from electra_tf.tasks.pretrain.config import load_config
from electra_tf.train.checkpoints import RunCheckpoint, restore_strictly
from electra_tf.weights.names import named_variables
from electra_tf.weights.stored_model import StoredModel, sound_weights, untrained_task


def read_checkpoint(checkpoint: RunCheckpoint) -> StoredModel:
    """The model of a run as its training left it, with the task that was built and restored to read it.

    Raises: UserError: the checkpoint does not fit the run's settings, or holds NaN or infinity.
    """
    run, step = checkpoint.run, checkpoint.step
    config = _config_of_seed(checkpoint) if run.is_finetuned else load_config(run.settings_file)
    task, tokenizer = untrained_task(config), run.read_tokenizer()
    task.adopt_tokenizer(tokenizer)
    restore_strictly(tf.train.Checkpoint(task=task), checkpoint.prefix)
    # Arrays that share the memory of the variables; whoever trains the task leaves them as they are.
    values = {name: np.asarray(tf.convert_to_tensor(variable)) for name, variable in named_variables(task).items()}
    model = StoredModel(
        source=checkpoint.prefix,
        encoder=config.encoder,
        generator=None,
        weights=sound_weights(run.path, values),
        stored_tokenizer=tokenizer,
        step=step,
        facts={"configuration": config.model_dump(mode="json")},
        checkpoint=checkpoint.prefix,
        task=task,
    )
    if isinstance(config, FinetuningConfig):
        return dataclasses.replace(model, finetuned=config, facts=model.facts | {"init_from": config.origin})
    is_kept = task.phase_at(step).encoder is task.encoder
    facts = {
        "data": read_json(run.data_file).get("data", []),
        "init_from": read_json(run.warm_start_file).get("init_from"),
    }
    return dataclasses.replace(
        model,
        source=f"step {step} of {run.path}",
        generator=config.objective.generator_encoder(config) if config.objective.trains_generator else None,
        objective=config.objective.name,
        kept_scope="electra/" if is_kept else "generator/",
        facts=facts | model.facts,
    )


def _config_of_seed(checkpoint: RunCheckpoint) -> FinetuningConfig:
    """The configuration of a seed, with the settings of its task that its dev set has chosen."""
    run = checkpoint.run
    config = validate(read_values(run.settings_file)[0], FinetuningConfig, run.settings_file)
    kind, result = KINDS[config.task.kind], read_json(os.path.join(run.path, RESULT))
    metrics = result.get("metrics", {})
    if kind.chosen and result.get("step") != checkpoint.step:  # the seed is not finished, or had trained on
        evaluations = [each for each in run.reports("held_out") if each["step"] <= checkpoint.step]
        metrics = evaluations[-1] if evaluations else metrics
    return config.model_copy(update={"task": kind.with_chosen(config.task, metrics)})
