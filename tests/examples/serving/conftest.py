"""What the tests of examples/serving share: its modules, a toy model of every dtype, and a running server."""

import sys
from pathlib import Path

import pytest
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples" / "serving"))  # as where scripts run

from batching import BatchedModel
from serve_locally import Server


class Words(tf.Module):
    """Signatures: `words` of texts, padded to the longest; `weigh` with two inputs."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def words(self, text):
        words = tf.strings.split(text)
        return {
            "words": words.to_tensor(""),
            "num_words": tf.cast(words.row_lengths(), tf.int32),
            "whole_bytes": text,
            "rows_of_batch": tf.fill([tf.size(text)], tf.size(text)),
        }

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name="text"), tf.TensorSpec([None, None], tf.int32, "ids")]
    )
    def weigh(self, text, ids):
        with tf.control_dependencies([tf.debugging.assert_non_negative(ids, "ids below 0")]):
            return {"weight": tf.cast(tf.strings.length(text) + tf.reduce_sum(ids, axis=1), tf.float32)}


@pytest.fixture(scope="session")
def toy_export(tmp_path_factory) -> str:
    """Versions 1, which is empty, and 3."""
    path = tmp_path_factory.mktemp("toy")
    (path / "1").mkdir()
    module = Words()
    signatures = {"serving_default": module.words, "weigh": module.weigh}
    tf.saved_model.save(module, str(path / "3"), signatures=signatures)
    return str(path)


@pytest.fixture(scope="session")
def toy(toy_export) -> BatchedModel:
    return BatchedModel("toy", toy_export, max_batch_size=6, batch_timeout=0.02)


@pytest.fixture(scope="session")
def server(toy):
    with Server(toy, port=0, rest_api_port=0) as running:
        yield running
