"""Requests that TF Serving plays to a model when it loads it, so that the first real one is not the slow one."""

import os

import tensorflow as tf
from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2

# Where TF Serving looks, below the version's directory.
WARMUP_FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")

# One short text and a batch of unlike lengths.
_TEXT_BATCHES = (
    ["The quick brown fox jumps over the lazy dog."],
    ["ELECTRA learns from every token.", "A discriminator tells which of the tokens in a text were replaced."],
)


def write_warmup_requests(version_dir: str, signature_names: list[str]) -> str:
    """Writes requests for each signature, all of which take `text`, [N] string. Returns the file.

    Source: the SavedModel warm-up page of TensorFlow Serving's documentation.
    """
    file = os.path.join(version_dir, WARMUP_FILE)
    tf.io.gfile.makedirs(os.path.dirname(file))
    with tf.io.TFRecordWriter(file) as writer:
        for signature_name in signature_names:
            for texts in _TEXT_BATCHES:
                request = predict_pb2.PredictRequest(
                    model_spec=model_pb2.ModelSpec(signature_name=signature_name),
                    inputs={"text": tf.make_tensor_proto(texts)},
                )
                log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
                writer.write(log.SerializeToString(deterministic=True))
    return file
