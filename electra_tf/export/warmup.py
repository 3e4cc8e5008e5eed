"""Requests that TF Serving plays when it loads a model, so that the first real one of each signature is not slow."""

import itertools
import os
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2

# Where TF Serving looks for them, below the version's directory.
WARMUP_FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")
# A batch of one short text, and one of two unlike lengths. The letter is outside the tokenizer's fast path.
_TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "\u01c6 ELECTRA learns from every token.",
    "A discriminator tells which of the tokens in a text were replaced.",
)
_BATCH_SIZES = (1, 2)
_WIDTH = 16  # of rows of ids


def write_warmup_requests(version_dir: str, signatures: Mapping[str, tf.types.experimental.ConcreteFunction]) -> None:
    """Writes requests for each signature.

    Source: the SavedModel warm-up page of TensorFlow Serving's documentation.
    """
    file = os.path.join(version_dir, WARMUP_FILE)
    tf.io.gfile.makedirs(os.path.dirname(file))
    with tf.io.TFRecordWriter(file) as writer:
        for name, function in sorted(signatures.items()):
            for batch_size in _BATCH_SIZES:
                inputs = {spec.name: _values(spec, batch_size) for spec in _inputs(function)}
                request = predict_pb2.PredictRequest(
                    model_spec=model_pb2.ModelSpec(signature_name=name),
                    inputs={key: tf.make_tensor_proto(values) for key, values in inputs.items()},
                )
                log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
                writer.write(log.SerializeToString(deterministic=True))


def _inputs(function: tf.types.experimental.ConcreteFunction) -> list[tf.TensorSpec]:
    return tf.nest.flatten(function.structured_input_signature)


def _values(spec: tf.TensorSpec, batch_size: int) -> np.ndarray | list[str]:
    """A batch for an input: texts, or ones: an id that there is, a mask of real tokens, a segment."""
    size = spec.shape[0] or batch_size
    if spec.dtype == tf.string:
        return list(itertools.islice(itertools.cycle(_TEXTS[batch_size - 1 :]), size))
    return np.ones([size, spec.shape[1] or _WIDTH], np.int32)
