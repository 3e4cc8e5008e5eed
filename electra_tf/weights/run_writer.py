"""Writes a stored model as a run of this program, which `--init_from`, the export and the converter read."""

import dataclasses
from collections.abc import Sequence

import absl.logging
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.loader import merge, read_values
from electra_tf.config.networks import EncoderConfig
from electra_tf.files import write_atomically
from electra_tf.models.layers import seed_initial_values
from electra_tf.tasks.base import Task
from electra_tf.tasks.finetune import build_finetuning_task
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig, merge_settings, parse_config
from electra_tf.train.checkpoints import checkpoint_prefix
from electra_tf.train.run_directory import RunDirectory
from electra_tf.weights.names import list_briefly, named_variables
from electra_tf.weights.stored_model import StoredModel, assign_weights
from electra_tf.weights.warm_start import GENERATOR_SIZES, require_generator

# Objectives with the networks of the authors' code.
_KNOWN_OBJECTIVES = ("electra", "electra_15", "bert_mlm")
# Sizes that --set may change: only training uses the rates, and a shorter position table gets the first rows.
_FREE = ("hidden_dropout", "attention_dropout", "initializer_range", "max_position_embeddings")
# --fresh_generator leaves these random: the generator, and the discriminator's head if the model is only an encoder.
_MAY_BE_FRESH = ("generator/", "generator_predictions/", "discriminator_predictions/")
# The generator's fraction of the discriminator's hidden size, and the learning rate, by that size (paper, table 5).
_PAPER = {256: (0.25, 5e-4), 768: (1 / 3, 2e-4), 1024: (0.25, 2e-4)}
_OTHERWISE = (0.25, 5e-4)


def write_run(
    model: StoredModel, output_dir: str, fresh_generator: bool = False, overrides: Sequence[str] = ()
) -> list[str]:
    """Writes a run's directory with a checkpoint at the model's step, without the state of an optimizer.

    Args:
        output_dir: a directory, empty or new.
        fresh_generator: write a random generator, from `train.seed`, in place of the model's.
        overrides: `a.b=value` settings of the run. The paper's are the default for settings that the source lacks.
    Returns: lines for the log.
    Raises: UserError: the model lacks networks that a run trains, or its weights would compute something else with
        these settings.
    """
    model, notes = model.of_authors()
    if model.finetuned is not None:
        if overrides or fresh_generator:
            raise UserError(
                "--set and --fresh_generator require a pre-trained source, this one is fine-tuned; remove them"
            )
        config, task = model.finetuned, build_finetuning_task(model.finetuned)
        if getattr(config.task, "text_columns", None) == ():
            notes.append("the source states no columns of text: this is a model of one; of two with --text_columns A B")
    else:
        if fresh_generator:
            model = _without_generator(model)
        config = _configuration(model, fresh_generator, overrides)
        if fresh_generator:
            require_generator(config)
        _require_same_networks(model, config)
        seed_initial_values(config.train.seed)
        task = build_objective(config)
        task.adopt_tokenizer(model.stored_tokenizer)
    named = named_variables(task)
    if unused := sorted(set(model.weights) - set(named)):
        raise UserError(f"{model.source} holds {list_briefly(unused)}, which the run would not have; remove --set")
    fresh = sorted(set(named) - set(model.weights)) if fresh_generator else []
    fresh = [name for name in fresh if name.startswith(_MAY_BE_FRESH)]
    variables = {name: variable for name, variable in named.items() if name not in fresh}
    notes += assign_weights(model.source, model.weights, variables)
    prefix = _write(model, config, task, RunDirectory(output_dir, flag="--output_dir"))
    lines = [f"wrote {prefix}: {len(variables)} variables, no state of an optimizer", *notes]
    if fresh:
        lines.append(
            f"random, from seed {config.train.seed} (--fresh_generator): {len(fresh)} variables, {list_briefly(fresh)}"
            "; at first its samples are easy to detect: see docs/interop.md"
        )
    return lines


def _without_generator(model: StoredModel) -> StoredModel:
    """The model without weights of a generator: a discriminator, or the encoder of a published masked language model.

    A masked language model in ELECTRA's classes stays as it is, since its encoder may be a generator's.
    """
    is_published = model.encoder.block == "modern" and not model.facts.get("configuration")
    if not (model.has_discriminator_head or is_published):
        return model
    kept = {name: value for name, value in model.weights.items() if not name.startswith("generator")}
    objective = model.objective if model.has_discriminator_head else ""
    return dataclasses.replace(model, generator=None, weights=kept, objective=objective)


def _require_same_networks(model: StoredModel, config: PretrainingConfig) -> None:
    """Raises: UserError: settings change what the networks compute with the model's weights."""
    pairs = [("encoder", model.encoder, config.encoder)]
    if model.generator is not None and config.objective.has_generator_network:
        pairs.append(("objective.generator", model.generator, config.objective.generator_encoder(config)))
    for group, sizes, configured in pairs:
        for name, value in sizes:
            if name not in _FREE and getattr(configured, name) != value:
                raise UserError(
                    f"{group}.{name} would be {getattr(configured, name)}, but {model.source} has {value}, which its "
                    "weights require; remove --set, or give two networks of one model"
                )


def _write(model: StoredModel, config, task: Task, run: RunDirectory) -> str:
    """Returns: the checkpoint's prefix."""
    run.create()
    run.adopt_tokenizer(model.stored_tokenizer)
    if data := model.facts.get("data"):
        run.adopt_data(data, model.facts.get("hold_out", ()))
    absl.logging.set_verbosity(absl.logging.WARNING)  # TensorFlow logs the seconds of a save
    checkpoint = tf.train.Checkpoint(task=task)  # without an optimizer: electra-tf pretrain refuses to continue it
    manager = tf.train.CheckpointManager(checkpoint, run.checkpoints, max_to_keep=None, checkpoint_name="step")
    manager.save(model.step)
    if "train" not in model.facts.get("configuration", {}) or model.facts.get("is_assumed"):
        write_atomically(run.warm_start_file, b'{"is_assumed": true}\n')
    run.adopt_config(config)  # last: this file makes the directory a run
    return checkpoint_prefix(run.checkpoints, model.step)


def _configuration(model: StoredModel, fresh_generator: bool, overrides: Sequence[str]) -> PretrainingConfig:
    """The settings of the run that the source comes from, if any; else the paper's for its sizes."""
    changes, _ = read_values(None, overrides)
    encoder = model.encoder
    fraction, learning_rate = _PAPER.get(encoder.hidden_size, _OTHERWISE)
    values = model.facts.get("configuration") or {
        "data": {"max_seq_length": min(512, encoder.max_position_embeddings)},
        "optimizer": {"learning_rate": learning_rate},
        "train": {"num_steps": max(1, model.step), "batch_size": 128},
    }
    objective = _objective(model, fresh_generator, fraction, values.get("objective", {}))
    values = {**values, "encoder": encoder.model_dump(mode="json"), "objective": objective}
    return parse_config(merge_settings(values, changes), f"of {model.source}")


def _objective(model: StoredModel, fresh_generator: bool, fraction: float, settings: dict) -> dict:
    """The settings of the objective that trains these networks."""
    name = settings.get("name", model.objective)
    settings = settings if name in _KNOWN_OBJECTIVES else {"name": "electra"}
    settings = settings or {"name": name}
    if model.has_masked_lm_head and not model.has_discriminator_head:
        return {**settings, "name": "bert_mlm"}
    if model.has_discriminator_head and model.has_masked_lm_head:
        return merge(settings, {"tying": _tying(model), "generator": _sizes(model.generator, model.encoder)})
    if settings.get("generator", {}).get("kind", "transformer") != "transformer" and not fresh_generator:
        return settings  # its generator has no weights
    if not fresh_generator:
        part = "a discriminator alone" if model.has_discriminator_head else "an encoder alone"
        raise UserError(
            f"{model.source} is {part}, and ELECTRA trains a discriminator and a generator; give --fresh_generator for "
            "random weights in the missing parts (for fine-tuning, give it as --init_from without a conversion)"
        )
    kept = {key: value for key, value in settings.items() if key not in ("generator", "tying")}
    # ModernBERT's classes have no narrower generator that shares embeddings; half the depth is DeBERTaV3's.
    default = {"size_fraction": fraction}
    if model.encoder.block == "modern":
        default = {"size_fraction": 1.0, "num_layers": max(1, model.encoder.num_layers // 2)}
    return {**kept, "generator": settings.get("generator") or default}


def _sizes(generator: EncoderConfig, encoder: EncoderConfig) -> dict:
    sizes = {name: getattr(generator, name) for name in GENERATOR_SIZES}
    return {"kind": "transformer", "size_fraction": generator.hidden_size / encoder.hidden_size, **sizes}


def _tying(model: StoredModel) -> str:
    """The setting `objective.tying` of the model: how its networks share weights."""
    if not model.part("generator/"):
        return "all"
    return "none" if model.part("generator/embeddings/") else "embeddings"
