"""Checkpoints of the authors' code (TensorFlow 1), read and written."""

import os
import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError, first_line
from electra_tf.config.schema import EncoderConfig
from electra_tf.convert.sizes import (
    HEAD_SIZE,
    Shapes,
    default_num_heads,
    encoder_shapes,
    encoder_sizes,
    masked_lm_shapes,
    replaced_token_shapes,
    require_shapes,
)
from electra_tf.convert.stored_model import StoredModel
from electra_tf.convert.stored_weights import list_briefly
from electra_tf.files import store_errors, write_atomically

# Entries beside the weights: of the authors' code and of other optimizers of TensorFlow 1.
TF1_STATE = re.compile(r"global_step$|.*/(adam_[mv]|lamb_[mv]|Adam(_1)?)$")
_TASK_HEADS = "task_specific/"
# What their code calls tasks that have another name here, and the order of labels where theirs is another one.
_AUTHORS_TASKS = {"sst2": "sst", "stsb": "sts", "squad_v1": "squadv1", "squad_v2": "squad"}
_AUTHORS_LABELS = {"mnli": ("contradiction", "entailment", "neutral")}


def read_tf1(
    prefix: str,
    vocabulary_file: bytes,
    lower_case: bool = True,
    strip_accents: bool = True,
    num_heads: int | None = None,
    generator_num_heads: int | None = None,
    scopes: tuple[str, ...] = (),
) -> tuple[StoredModel, list[str]]:
    """Reads one of the authors' checkpoints: of pre-training, with or without a generator, or of fine-tuning.

    Of a fine-tuned one the encoder is read. Sizes follow from the shapes.

    Args:
        prefix: of its files, without their endings.
        vocabulary_file: the content of vocab.txt.
        num_heads, generator_num_heads: of the discriminator and the generator; None: one head for 64 hidden units, as
            in all of the authors' models. The checkpoint does not say.
        scopes: with what the names begin that are read; empty: all names, and what is unknown is refused.
    Returns: the model, and lines for the log.
    Raises: UserError: if it cannot be read, is of another model, or something is missing or unknown.
    """
    weights, ignored, step = _weights_in(prefix, scopes)
    shapes = {name: value.shape for name, value in weights.items()}
    encoder = encoder_sizes(prefix, shapes.get, num_heads=num_heads)
    has_generator = any(name.startswith("generator/encoder/") for name in weights)
    generator, expected = None, encoder_shapes(encoder, "electra")
    if has_generator:
        tables = "generator" if "generator/embeddings/word_embeddings" in weights else "electra"
        if generator_num_heads is None and _width(shapes) == encoder.hidden_size:
            generator_num_heads = encoder.num_heads
        generator = encoder_sizes(prefix, shapes.get, "generator", tables, num_heads=generator_num_heads)
        expected |= encoder_shapes(generator, "generator", with_embeddings=tables == "generator")
    has_discriminator = any(name.startswith("discriminator_predictions/") for name in weights)
    if has_discriminator:
        expected |= replaced_token_shapes(encoder)
    if any(name.startswith("generator_predictions/") for name in weights):
        if generator is None and has_discriminator:
            generator = encoder  # one network in both roles
        expected |= masked_lm_shapes(generator or encoder)
    require_shapes(prefix, expected, shapes)
    model = StoredModel(
        source=prefix,
        encoder=encoder,
        generator=generator,
        weights={name: weights[name] for name in expected},
        vocabulary_file=vocabulary_file,
        lower_case=lower_case,
        strip_accents=lower_case and strip_accents,
        objective=_objective(has_discriminator, "generator_predictions/output_bias" in weights),
        step=step,
    )
    notes = [f"{prefix} is a fine-tuned model; its encoder alone is read, not {list_briefly(ignored)}"]
    return model, notes if ignored else []


def write_tf1(model: StoredModel, output_dir: str) -> list[str]:
    """Writes a checkpoint that the authors' code reads: `model.ckpt-STEP`, with their `global_step`, and vocab.txt.

    Args:
        output_dir: a directory, empty or new.
    Returns: lines for the log.
    """
    tensors = {name: value for name, value in model.weights.items() if not name.startswith(_TASK_HEADS)}
    notes = []
    heads = _heads_of_authors(model)
    if any("/hidden/" in name for name in heads):
        notes.append("the authors' code has no head with a hidden layer on [CLS]: the encoder alone is written")
    else:
        tensors |= heads
    prefix = os.path.join(output_dir, f"model.ckpt-{model.step}")
    values = [tf.convert_to_tensor(value) for value in tensors.values()]
    names = [*tensors, "global_step"]
    # By the file `checkpoint` their code, and TensorFlow, find the newest one of a directory, wherever that is moved.
    state = f'model_checkpoint_path: "{os.path.basename(prefix)}"\n'
    with store_errors(output_dir, "cannot be written"):
        tf.io.gfile.makedirs(output_dir)
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[*values, tf.constant(model.step, tf.int64)],
        )
    for name, content in (("checkpoint", state.encode()), ("vocab.txt", model.vocabulary_file)):
        write_atomically(os.path.join(output_dir, name), content)
    return [f"wrote {prefix}: {len(tensors)} variables", *notes, *_unsaid(model)]


def _weights_in(prefix: str, scopes: tuple[str, ...]) -> tuple[dict[str, np.ndarray], list[str], int]:
    """The weights of a checkpoint, the names of its heads of tasks, and its step; 0 where it does not say."""
    try:
        reader = tf.train.load_checkpoint(prefix)
        stored = sorted(reader.get_variable_to_shape_map())
        if any(name.startswith("task/") for name in stored):
            raise UserError(
                f"{prefix} is a checkpoint of this program without its run; put it back into checkpoints/ beside the "
                "run's config.yaml"
            )
        names = [name for name in stored if not TF1_STATE.match(name) and name.startswith(scopes or "")]
        heads = [name for name in names if name.startswith(_TASK_HEADS)]
        weights = {name: np.asarray(reader.get_tensor(name)) for name in names if name not in heads}
        step = int(reader.get_tensor("global_step")) if reader.has_tensor("global_step") else 0
    except (tf.errors.OpError, ValueError, IndexError, RuntimeError, TypeError, OverflowError) as error:
        # The reader has no class of its own; the last two are of a step that is none.
        raise UserError(
            f"{prefix} is no readable TensorFlow checkpoint: {first_line(error)}; give another one"
        ) from None
    return weights, heads, step


def _heads_of_authors(model: StoredModel) -> dict[str, np.ndarray]:
    """The head of a fine-tuned model under their task's name, its columns in their order of labels.

    Source: finetune/classification/classification_tasks.py and finetune/qa/qa_tasks.py of the authors' code.
    """
    heads = {}
    for name, value in model.part(_TASK_HEADS).items():
        scope, task, layer = name.split("/", 2)
        if task in _AUTHORS_LABELS:
            value = value[..., [model.finetuned.task.labels.index(label) for label in _AUTHORS_LABELS[task]]]
        heads[f"{scope}/{_AUTHORS_TASKS.get(task, task)}/{layer}"] = value
    return heads


def _width(shapes: Shapes) -> int | None:
    """The hidden size of the generator."""
    return (shapes.get("generator/encoder/layer_0/intermediate/dense/kernel") or (None,))[0]


def _objective(has_discriminator: bool, has_masked_lm: bool) -> str:
    if has_discriminator:
        return "electra"
    return "bert_mlm" if has_masked_lm else ""


def _unsaid(model: StoredModel) -> Sequence[str]:
    """What a reader of the checkpoint has to be told, as it does not follow from shapes."""
    unusual = {
        flag: config.num_heads
        for flag, config in (("num_heads", model.encoder), ("generator_num_heads", model.generator))
        if config is not None and _is_unusual(config, model.encoder)
    }
    notes = []
    if unusual:
        flags = " ".join(f"--{flag}={number}" for flag, number in unusual.items())
        groups = {"num_heads": "encoder.num_heads", "generator_num_heads": "objective.generator.num_heads"}
        settings = " ".join(f"--set {groups[flag]}={number}" for flag, number in unusual.items())
        notes.append(
            f"it has not one head for {HEAD_SIZE} units, which no checkpoint says: convert_checkpoint reads it with "
            f"{flags}, training with {settings} (of these run_finetuning takes encoder.num_heads)"
        )
    epsilon = model.encoder.layer_norm_epsilon
    if epsilon != EncoderConfig.model_fields["layer_norm_epsilon"].default:
        notes.append(
            f"its layer_norm_epsilon is {epsilon}, which no checkpoint says and the authors' code has not: train from "
            f"it with --set encoder.layer_norm_epsilon={epsilon}; the converter does not get it back"
        )
    if not model.lower_case:
        notes.append("its text is cased, which no checkpoint says: read it with --cased")
    elif not model.strip_accents:
        notes.append(
            "its text keeps accents, which no checkpoint says and the authors' code has not: it is read as one that "
            "strips them; keep the run, or convert it to hugging_face"
        )
    return notes


def _is_unusual(config: EncoderConfig, encoder: EncoderConfig) -> bool:
    if config is not encoder and config.hidden_size == encoder.hidden_size:
        return config.num_heads != encoder.num_heads
    return config.num_heads != default_num_heads(config.hidden_size)
