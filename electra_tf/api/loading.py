"""`load`: a trained model from a path, or of the Hugging Face Hub; `push`: to the Hub, with a run's milestones."""

import dataclasses
import logging
import os
from collections.abc import Sequence
from typing import Any

from electra_tf.api.model import Model
from electra_tf.api.process import users_process
from electra_tf.config.errors import UserError
from electra_tf.files import absolute_path, is_hub
from electra_tf.train.checkpoints import checkpoint_prefix, steps_in
from electra_tf.train.run_directory import RunDirectory
from electra_tf.weights.hub import hub_source
from electra_tf.weights.source import load_trained, source_overrides

logger = logging.getLogger(__name__)


@users_process()
def load(
    path: str | os.PathLike[str],
    *,
    layers: int | None = None,
    max_seq_length: int | None = None,
    batch_size: int = 32,
    vocab_file: str | None = None,
    cased: bool = False,
    num_heads: int | None = None,
    text_columns: Sequence[str] | None = None,
    segment: str | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
) -> Model:
    """Loads a trained model.

    Args:
        path: a run, one of its checkpoints or milestones, the directory of a fine-tuned seed, a Hugging Face folder, a
            checkpoint of the authors' code, or `OWNER/NAME` of a model on the Hugging Face Hub. A local path of this
            name wins. Only for a model of the Hub the network is used, unless it is in the cache and HF_HUB_OFFLINE=1.
        layers: keep the encoder's first layers alone; None: the whole model.
        max_seq_length: tokens of a text that are read, with [CLS] and [SEP]; None: as many as in its training, or
            all positions if the source does not state its training.
        batch_size: texts in one forward pass.
        vocab_file: the vocabulary, for a source without one.
        cased: True if `vocab_file` is cased: text is not lower-cased.
        num_heads: the attention heads, for a checkpoint of the authors' code, which does not state them; None: one for
            64 hidden units.
        text_columns: the columns of text that `predict` reads from tables, two of a model for pairs; None: as in
            training, or `text` and, where a table has it, `text_pair` if the source does not state it.
        segment: the program that cut the vocabulary's text into words, to run it on texts (once a call); `none` for
            texts that it has cut; None: refuse texts, if there is one.
        revision: a branch, a tag or a commit of the Hub; None: its newest commit.
        token: an access token of the Hub; None: that of `hf auth login` or HF_TOKEN, if there is one.

    Returns:
        The model, ready for texts.

    Raises:
        UserError: there is no such model, access to it is not granted, or it lacks weights.
    """
    source = hub_source(path, revision)
    flag = f"{path} is no local path; path" if is_hub(source) and not is_hub(os.fspath(path)) else "path"
    overrides = source_overrides(vocab_file, cased, num_heads)
    stored = dataclasses.replace(load_trained(source, overrides, flag, token=token).finished(), segment=segment)
    if text_columns is not None:
        stored = stored.with_text_columns(text_columns)
    return Model(stored if layers is None else stored.truncated(layers), max_seq_length, batch_size)


def push(
    source: str | os.PathLike[str],
    name: str,
    *,
    milestones: bool = False,
    revision: str | None = None,
    private: bool | None = None,
    token: str | None = None,
    format: str = "hugging_face",
) -> str:
    """Uploads a trained model to the Hugging Face Hub, as `electra-tf push` does; see `Model.push_to_hub`.

    Args:
        source: see `load`.
        name: `OWNER/NAME`, or `NAME` of your own.
        milestones: first upload each milestone of a run to a branch `step-N`. A branch that has it already stays.
        revision: the branch of the model itself; None: `main`.
        private: whether a new repository is private; None: as the owner's settings say.
        token: an access token; None: that of `hf auth login` or HF_TOKEN.
        format: `hugging_face`, `bert` or `sentence_transformers`.

    Returns:
        The URL of the model's commit.

    Raises:
        UserError: the source is no model, or has no milestones; a branch has another model; see `Model.push_to_hub`.
    """
    options: dict[str, Any] = {"private": private, "token": token, "format": format}
    if milestones:
        directory = RunDirectory(absolute_path(source)).milestones
        if not (steps := steps_in(directory)):
            raise UserError(f"{directory} has no checkpoints; remove milestones, or give a run")
        for step in steps:
            model = load(checkpoint_prefix(directory, step))
            url = model.push_to_hub(name, revision=f"step-{step}", overwrite=False, **options)
            logger.info("step-%d: %s", step, url)
    return load(source).push_to_hub(name, revision=revision, **options)
