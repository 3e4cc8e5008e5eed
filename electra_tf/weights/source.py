"""The one loader: reads a trained model of any format, and of the Hugging Face Hub.

Training from it (`--init_from`), converting, serving, predicting and `electra_tf.load` all begin with `load_trained`.
An adapter for each format reads names, sizes and weights; the `StoredModel` builds the Keras model.
"""

import dataclasses
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from electra_tf.config.errors import UserError, wrong_contents
from electra_tf.files import absolute_path, is_directory, is_hub, names_in, read_bytes
from electra_tf.text.vocabulary import CASED_TEXT, Vocabulary, read_vocabulary_file
from electra_tf.text.vocabulary_settings import stated_settings
from electra_tf.train.checkpoints import checkpoint_prefix_of, find_checkpoint
from electra_tf.weights.hub import download
from electra_tf.weights.hugging_face.reader import is_hugging_face, read_hugging_face
from electra_tf.weights.run import read_checkpoint
from electra_tf.weights.stored_model import NO_OVERRIDES, SourceOverrides, StoredModel
from electra_tf.weights.tf1 import read_tf1


def load_trained(
    source: str | os.PathLike[str],
    overrides: SourceOverrides = NO_OVERRIDES,
    flag: str = "from",
    *,
    unstated: SourceOverrides = NO_OVERRIDES,
    token: str | bool | None = None,
) -> StoredModel:
    """Reads a trained model with all weights of its training; for other uses than pre-training call `finished` of it.

    Args:
        source: a run or a checkpoint of one, see `electra_tf.train.checkpoints.find_checkpoint`; the prefix of a
            TensorFlow 1 checkpoint, a file of it, or a directory with TensorFlow's file `checkpoint`; a Hugging Face
            folder, or a directory with `discriminator/` and `generator/`; `hf://OWNER/NAME[@REVISION]` of the Hub.
        overrides: settings of the source that the user gives; none for a run.
        flag: the flag of the source, for messages.
        unstated: settings for a TensorFlow 1 checkpoint, which does not state them, where `overrides` has none.
        token: an access token of the Hub, see `electra_tf.weights.hub.download`.
    Raises: UserError: there is no such model, its files cannot be read, or weights are missing.
    """
    path = os.fspath(source)
    if is_hub(path):
        folder, name = download(path, flag, token)
        with wrong_contents(name):
            return dataclasses.replace(read_hugging_face(folder, overrides), source=name)
    place = f"{flag}={path}"
    prefix = checkpoint_prefix_of(path)
    if (checkpoint := find_checkpoint(path, flag)) is not None:
        if overrides != NO_OVERRIDES:
            raise UserError(
                f"{place} is a run, which states its vocabulary, casing and numbers of heads: remove vocab_file, "
                "cased, num_heads, generator_num_heads and encoder.num_heads"
            )
        return read_checkpoint(checkpoint)
    path = absolute_path(path)
    with wrong_contents(path):
        if prefix is None and is_hugging_face(path):
            return read_hugging_face(path, overrides)
        if prefix is None and (named := tf.train.latest_checkpoint(path)) is not None:  # by its file `checkpoint`
            prefix = os.path.join(path, os.path.basename(named))  # also of a copy, whose file may name the original
        if prefix is None:
            seeds = sorted(name for name in names_in(path) if name.startswith("seed_")) if is_directory(path) else []
            remedy = f"one of its seeds, for example {path}/{seeds[0]}" if seeds else "the path of one of these"
            raise UserError(
                f"{place}: there is no run, no checkpoint and no Hugging Face folder (with config.yaml, TensorFlow's "
                f"file `checkpoint` or config.json); give {remedy}"
            )
        missing = {name: value for name, value in unstated._asdict().items() if getattr(overrides, name) is None}
        return read_tf1(prefix, overrides._replace(**missing))


def load_pretrained(path: str | os.PathLike[str], values: Mapping[str, Any] = MappingProxyType({})) -> StoredModel:
    """The model whose encoder a fine-tuning starts from.

    Args:
        path: see `load_trained`.
        values: the settings of the fine-tuning. `data.vocab_file`, `data.cased` and, for a TensorFlow 1 checkpoint,
            `encoder.num_heads` are for sources that do not state them; the user gives `data.segment`.
    Raises: UserError: see `load_trained` and `StoredModel.finished`.
    """
    data, encoder = (each if isinstance(each := values.get(group), Mapping) else {} for group in ("data", "encoder"))
    overrides = source_overrides(data.get("vocab_file"), bool(data.get("cased")))
    unstated = SourceOverrides(num_heads=encoder.get("num_heads"))
    model = load_trained(absolute_path(path), overrides, "init_from", unstated=unstated).finished()
    return dataclasses.replace(model, segment=data.get("segment"))


def source_overrides(
    vocab_file: str | None = None,
    cased: bool = False,
    num_heads: int | None = None,
    generator_num_heads: int | None = None,
) -> SourceOverrides:
    """The settings of a source that flags of a command give.

    Raises: UserError: the vocabulary cannot be read, or its own settings contradict `cased`.
    """
    vocabulary, settings = None, CASED_TEXT if cased else None
    if vocab_file is not None:
        vocabulary = read_vocabulary_file(vocab_file)
        own = stated_settings(Vocabulary.from_bytes(vocabulary, vocab_file), vocab_file, read_bytes)
        if cased and own is not None and own.lower_case:
            raise UserError(f"cased: the vocabulary {vocab_file} was built with lower_case true; remove it")
        settings = own or settings
    return SourceOverrides(vocabulary, settings, num_heads, generator_num_heads)
