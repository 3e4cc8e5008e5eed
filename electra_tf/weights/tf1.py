"""Checkpoints of the authors' code (TensorFlow 1), read and written."""

import os
import re

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig
from electra_tf.files import make_directory, store_errors, write_atomically
from electra_tf.text.vocabulary import (
    BERT_TEXT,
    StoredTokenizer,
    Vocabulary,
    find_vocabulary_file,
    kind_of_vocabulary,
)
from electra_tf.text.vocabulary_settings import require_possible_tokens
from electra_tf.train.checkpoints import damage
from electra_tf.weights import names
from electra_tf.weights.stored_model import FLAGS_OF_SETTINGS, NO_OVERRIDES, SourceOverrides, StoredModel, sound_weights

# Entries beside the weights, of the authors' code and of other optimizers of TensorFlow 1.
_TRAINING_STATE = re.compile(r"global_step$|.*/(adam_[mv]|lamb_[mv]|Adam(_1)?)$")
_TASK_HEADS = "task_specific/"
# The scopes of the heads of pre-training, and the objectives that they tell, the first one of a model with both.
_HEADS = {"discriminator_predictions/": "electra", "generator_predictions/": "bert_mlm"}


def read_tf1(prefix: str, overrides: SourceOverrides = NO_OVERRIDES) -> StoredModel:
    """Reads one of the authors' checkpoints: of pre-training, with or without a generator, or of fine-tuning.

    Sizes follow from the shapes. The head of a fine-tuned model is not read.

    Args:
        prefix: the path of its files without their endings; the vocabulary is beside them.
        overrides: the vocabulary, casing and numbers of heads, which the checkpoint does not state.
    Raises: UserError: it is a checkpoint of another model, or weights are missing.
    """
    if (reason := damage(prefix)) is not None:
        raise UserError(f"{prefix} is damaged: {reason}; copy it again")
    reader = tf.train.load_checkpoint(prefix)
    stored = sorted(name for name in reader.get_variable_to_shape_map() if not _TRAINING_STATE.match(name))
    tensors = {name: reader.get_tensor(name) for name in stored}
    unread = [name for name in tensors if not name.startswith(names.AUTHORS_SCOPES) or name.startswith(_TASK_HEADS)]
    weights = sound_weights(prefix, {name: value for name, value in tensors.items() if name not in unread})
    shapes = {name: value.shape for name, value in weights.items()}
    encoder, generator, expected = _networks(prefix, shapes, overrides)
    names.require_shapes(prefix, expected, shapes)
    unread += sorted(weights.keys() - expected)
    vocab_file, content = find_vocabulary_file(os.path.dirname(prefix))
    tokenizer = StoredTokenizer.of(overrides.vocabulary or content or b"", overrides.text_settings or BERT_TEXT)
    place = "vocab_file" if overrides.vocabulary else vocab_file
    if tokenizer.content:
        require_possible_tokens(tokenizer, place, FLAGS_OF_SETTINGS)
    notes = [f"{prefix}: not read: {names.list_briefly(unread)}"] if unread else []
    if overrides.num_heads is None:
        notes.append(f"{prefix} does not state its attention heads: {encoder.num_heads}, one for 64 units, are assumed")
    return StoredModel(
        source=prefix,
        encoder=encoder,
        generator=generator,
        weights={name: weights[name] for name in expected},
        stored_tokenizer=tokenizer,
        objective=next((name for head, name in _HEADS.items() if f"{head}dense/kernel" in expected), ""),
        step=int(reader.get_tensor("global_step")) if reader.has_tensor("global_step") else 0,
        states_settings=False,
        facts={"is_assumed": True},
        notes=tuple(notes),
    )


def _networks(
    prefix: str, shapes: names.Shapes, overrides: SourceOverrides
) -> tuple[EncoderConfig, EncoderConfig | None, names.Shapes]:
    """The sizes of the encoder and of a generator, and the shapes of all weights that they have."""
    detector, masked_lm = ((head,) * any(name.startswith(head) for name in shapes) for head in _HEADS)
    encoder = names.encoder_sizes(prefix, shapes, num_heads=overrides.num_heads)
    if not any(name.startswith("generator/encoder/") for name in shapes):
        is_both = detector and masked_lm  # one network in both roles
        return encoder, encoder if is_both else None, names.network_shapes(encoder, detector + masked_lm)
    has_tables = "generator/embeddings/word_embeddings" in shapes
    tables = "generator" if has_tables else "electra"
    generator = names.encoder_sizes(prefix, shapes, "generator", tables, overrides.generator_num_heads)
    if overrides.generator_num_heads is None and generator.hidden_size == encoder.hidden_size:
        generator = generator.model_copy(update={"num_heads": encoder.num_heads})
    of_generator = names.network_shapes(generator, masked_lm, "generator", with_embeddings=has_tables)
    return encoder, generator, {**names.network_shapes(encoder, detector), **of_generator}


def write_tf1(model: StoredModel, output_dir: str) -> list[str]:
    """Writes a checkpoint of the authors' code, `model.ckpt-STEP`, with their `global_step`, and the vocabulary.

    Returns: lines for the log.
    """
    model, notes = model.of_authors()
    left_out = _TASK_HEADS, names.POOLER
    tensors = {name: value for name, value in model.weights.items() if not name.startswith(left_out)}
    if model.part(names.POOLER):
        notes.append("the authors' code has no pooler: it is left out")
    if model.finetuned:
        notes.append("the head of a fine-tuned model is left out: the encoder alone is written")
    prefix = os.path.join(output_dir, f"model.ckpt-{model.step}")
    entries = tensors | {"global_step": np.int64(model.step)}
    # TensorFlow and their code find the newest checkpoint of a directory by this file. The path in it is relative, so
    # the directory can be moved.
    state = f'model_checkpoint_path: "{os.path.basename(prefix)}"\n'
    with store_errors(output_dir, "cannot be written"):
        make_directory(output_dir)
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=list(entries),
            shape_and_slices=[""] * len(entries),
            tensors=[tf.convert_to_tensor(value) for value in entries.values()],
        )
    vocabulary = Vocabulary.from_bytes(model.stored_tokenizer.content, model.source)
    for name, content in (("checkpoint", state.encode()), (vocabulary.file_name, vocabulary.content)):
        write_atomically(os.path.join(output_dir, name), content)
    return [f"wrote {prefix}: {len(tensors)} variables", *notes, *_limitations(model)]


def _limitations(model: StoredModel) -> list[str]:
    """Lines for the log: unusual settings that the format does not keep."""
    notes, flags = [], []
    usual = names.default_num_heads(model.encoder.hidden_size)
    if model.encoder.num_heads != usual:
        flags.append(f"num_heads={model.encoder.num_heads}")
    if model.generator is not None:
        is_as_wide = model.generator.hidden_size == model.encoder.hidden_size
        usual = model.encoder.num_heads if is_as_wide else names.default_num_heads(model.generator.hidden_size)
        if model.generator.num_heads != usual:
            flags.append(f"generator_num_heads={model.generator.num_heads}")
    if flags:
        notes.append(
            f"a TF1 checkpoint does not keep the number of heads: to convert it, give {' '.join(flags)}; to train from "
            f"it, set encoder.num_heads to {model.encoder.num_heads}"
        )
    content, settings = model.stored_tokenizer
    if (kind := kind_of_vocabulary(content)).text_settings is not None:
        notes.append(f"the authors' code reads no {kind.file_name}")
    elif not settings.lower_case:
        notes.append("a TF1 checkpoint does not keep the casing: to read it, give cased")
    elif settings != BERT_TEXT:
        notes.append(f"the authors' code normalizes text with other settings than {settings}")
    return notes
