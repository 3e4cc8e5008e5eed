"""A model of the user's own on the encoders of two models, as a file of Keras."""

import subprocess
import sys

import keras
import numpy as np
import pytest

import electra_tf
from tests.docs.commands import PROJECT

SCRIPT = """
import sys, numpy, electra_tf, keras
layers = {"EncoderLayer": electra_tf.EncoderLayer}
classifier = keras.models.load_model(sys.argv[1], custom_objects=layers)
print(classifier.predict(numpy.array([[2, 5, 6, 3], [2, 7, 3, 0]]), verbose=0).tolist())
"""


@pytest.mark.slow
def test_a_new_process_that_reads_the_file_predicts_the_same(tiny_pretrained, tmp_path):
    ids = keras.Input([None], dtype="int32")
    vectors = [electra_tf.load(tiny_pretrained).encoder(ids).pooled_output for _ in range(2)]
    classifier = keras.Model(ids, keras.layers.Dense(2)(keras.layers.Concatenate()(vectors)))
    classifier.save(path := tmp_path / "classifier.keras")
    command = [sys.executable, "-c", SCRIPT, path]
    answer = subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True)
    expected = classifier.predict(np.array([[2, 5, 6, 3], [2, 7, 3, 0]]), verbose=0)
    np.testing.assert_allclose(eval(answer.stdout.splitlines()[-1]), expected, atol=1e-6)
