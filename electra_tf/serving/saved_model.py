"""Exports a run as a SavedModel in TensorFlow Serving's layout, with warm-up requests."""

import itertools
import logging
import math
import os
from collections.abc import Mapping
from typing import Any, Literal

import absl.logging
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.files import UNFINISHED, is_remote, make_directory, names_in, remove, store_errors, write_atomically
from electra_tf.serving.text_encoder import TextEncoder
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.tasks.pretrain import Objective
from electra_tf.tasks.served import ServedModel, ServingShapes
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.weights.source import load_trained
from electra_tf.weights.stored_model import sound_weights

logger = logging.getLogger(__name__)

Precision = Literal["float32", "bfloat16"]

_VERSION = "1"
# The server's files (examples/serving), which may stand beside a version that is replaced.
_SERVER_FILES = ("models.config", "batching.config", "monitoring.config")
# The path of TF Serving's warm-up requests below the version's directory.
WARMUP_FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")
# Beside it, if a program cut the text of the training into words.
SEGMENT_FILE = os.path.join("assets.extra", "README.md")
_SEGMENT = "Text must come with spaces between its words, from the program `{}`: a SavedModel does not run it."
# Warm-up: the first batch is one short text, the second has texts of two lengths. U+01C6 is outside the tokenizer's
# fast path.
_TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "\u01c6 ELECTRA learns from every token.",
    "A discriminator tells which of the tokens in a text were replaced.",
)
_BATCH_SIZES = (1, 2)
_NUM_CHOICES = 2  # of a context
_WIDTH = 16  # the number of tokens in rows of ids


def load_served_model(
    model_dir: str | os.PathLike[str],
    max_seq_length: int | None = None,
    batch_size: int | None = None,
    pad_to_max_length: bool = False,
    precision: Precision | None = None,
) -> ServedModel:
    """Loads a trained model for serving.

    Args:
        model_dir: a run, a checkpoint of one, a Hugging Face folder, or a model of the Hub.
        max_seq_length: None for the model's own.        batch_size, pad_to_max_length: see `ServingShapes`.
        precision: the dtype of matrix products and activations; None for the model's own.
    Raises: UserError: there is no such model or no whole checkpoint of it, it is a TensorFlow 1 checkpoint, or it does
        not allow the length.
    """
    model = load_trained(model_dir, flag="model_dir")
    if not model.states_settings:
        raise UserError(
            f"model_dir={model_dir} is a TensorFlow 1 checkpoint, which does not state its heads and casing; make a "
            "folder of it by electra-tf convert --to=hugging_face, with --num_heads and --cased if they are unusual"
        )
    model = model.finished()
    if model.finetuned is None and "sentence_transformers" in model.facts:
        logger.warning("%s: its encoder alone is served, without the pooling, %s", model.source, model.pooling)
    return served_model(model.build_task(precision), model.tokenizer, max_seq_length, batch_size, pad_to_max_length)


def served_model(
    task: Objective | FinetuningTask,
    tokenizer: Tokenizer,
    max_seq_length: int | None = None,
    batch_size: int | None = None,
    pad_to_max_length: bool = False,
) -> ServedModel:
    """A trained task for serving. Args, Raises: see `load_served_model`; a weight is NaN or infinite."""
    weights = [variable for layer in task.layers for variable in layer.variables]
    sound_weights("the model", {variable.path: variable.numpy() for variable in weights})
    if command := tokenizer.settings.segment:
        logger.warning(_SEGMENT.format(command))
    longest = task.config.data.max_seq_length if max_seq_length is None else max_seq_length
    shapes = ServingShapes(longest, batch_size, pad_to_max_length)
    served = KINDS[task.config.task.kind].served if isinstance(task, FinetuningTask) else TextEncoder
    return served(task, tokenizer, shapes)


def export_saved_model(model: ServedModel, output_dir: str | os.PathLike[str], overwrite: bool = False) -> str:
    """Writes `output_dir/1/`, the layout of TF Serving, with warm-up requests for every signature.

    On a local disk the version appears when it is complete, and an older one stays until then. A remote store cannot
    rename a directory, so the version is written in its place there and cannot be replaced. An export that fails leaves
    nothing.

    Args:
        output_dir: a directory on any filesystem that TensorFlow can write.
        overwrite: whether to replace an existing version 1; local only.
    Returns: the version's directory.
    Raises: UserError: `output_dir` already holds something, or cannot be written.
    """
    output_dir = os.fspath(output_dir)
    version_dir = os.path.join(output_dir, _VERSION)
    names = _replaced_names(output_dir, overwrite)
    unfinished = os.path.join(output_dir, UNFINISHED)
    target = version_dir if is_remote(output_dir) else os.path.join(unfinished, "new")
    with store_errors(version_dir, "cannot be written"):
        try:
            remove(unfinished)
            # At every save TensorFlow logs the temporary directory, and warnings about names that it changed.
            absl.logging.set_verbosity(absl.logging.ERROR)
            tf.get_logger().setLevel("ERROR")
            signatures = model.signatures()
            tf.saved_model.save(model, target, signatures=signatures)
            _write_warmup_requests(target, signatures)
            if command := model.tokenizer.settings.segment:
                write_atomically(os.path.join(target, SEGMENT_FILE), _SEGMENT.format(command).encode())
        except BaseException:
            for name in set(names_in(output_dir)) - names:
                remove(os.path.join(output_dir, name))
            raise
        if target != version_dir:
            if os.path.lexists(version_dir):
                os.rename(version_dir, os.path.join(unfinished, "old"))
            os.rename(target, version_dir)
            remove(unfinished)
    return version_dir


def _replaced_names(output_dir: str, overwrite: bool) -> set[str]:
    """Makes the directory. Returns: what it holds of an older export. Raises: UserError: it must not be replaced."""
    if overwrite and is_remote(output_dir):
        raise UserError(
            f"overwrite: {output_dir} is on a remote store, which cannot replace a version at once; export to a new "
            f"output_dir and copy its {_VERSION}/ to a new version number, for example {output_dir}/2"
        )
    with store_errors(f"output_dir={output_dir}", "cannot be written"):
        make_directory(output_dir)
        names = set(names_in(output_dir)) - {UNFINISHED}
    if names and not (overwrite and names <= {_VERSION, *_SERVER_FILES}):
        listed = ", ".join(sorted(names))
        raise UserError(f"output_dir={output_dir} already holds {listed}; give a new directory, or overwrite")
    return names


def _write_warmup_requests(version_dir: str, signatures: Mapping[str, tf.types.experimental.ConcreteFunction]) -> None:
    """Writes warm-up requests for each signature.

    Source: the SavedModel warm-up page of TensorFlow Serving's documentation.
    """
    try:
        from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2
    except ImportError:
        logger.warning('no warm-up requests; to have them: pip install "electra-tf[serving]"')
        return
    file = os.path.join(version_dir, WARMUP_FILE)
    make_directory(os.path.dirname(file))
    with tf.io.TFRecordWriter(file) as writer:
        for (name, function), batch_size in itertools.product(sorted(signatures.items()), _BATCH_SIZES):
            specs = tf.nest.flatten(function.structured_input_signature)
            inputs = {spec.name: tf.make_tensor_proto(_values(spec, batch_size)) for spec in specs}
            request = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec(signature_name=name), inputs=inputs)
            log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
            writer.write(log.SerializeToString(deterministic=True))


def _values(spec: tf.TensorSpec, batch_size: int) -> npt.NDArray[np.int32] | list[Any]:
    """A batch for an input: texts, or ones, which are a valid id, mask and segment."""
    is_text, rank = spec.dtype == tf.string, len(spec.shape)
    inner = [_NUM_CHOICES][: rank - 1] if is_text else [_NUM_CHOICES, _WIDTH][1 - rank :]
    sizes = [given or default for given, default in zip(spec.shape, [batch_size, *inner], strict=True)]
    if is_text:
        texts = itertools.islice(itertools.cycle(_TEXTS[batch_size - 1 :]), math.prod(sizes))
        return np.reshape(list(texts), sizes).tolist()
    return np.ones(sizes, np.int32)
