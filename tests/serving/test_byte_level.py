"""A model with a byte-level BPE is served with token ids, which the caller makes with its tokenizer.json."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.serving.saved_model import export_saved_model
from electra_tf.tasks.finetune.features import text_features
from electra_tf.tasks.finetune.kinds import KINDS, build_finetuning_task
from electra_tf.text.kinds import create_tokenizer
from electra_tf.text.vocabulary import Vocabulary
from tests.byte_level import byte_level
from tests.serving.conftest import SHAPES, TASKS, config_of


@pytest.mark.slow
@pytest.mark.parametrize(("task", "own"), [("classification", "classify_ids"), ("squad_v2", "answer_ids")])
def test_the_signatures_take_ids(task, own, tmp_path):
    tokenizer = create_tokenizer(Vocabulary.from_bytes(byte_level(), "a test"))
    config = config_of(TASKS[task], tokenizer.vocabulary.size)
    keras.utils.set_random_seed(3)
    model = build_finetuning_task(config)
    served = KINDS[config.task.kind].served(model, tokenizer, SHAPES)
    loaded = tf.saved_model.load(export_saved_model(served, tmp_path / "export")).signatures
    assert set(loaded) == {"serving_default", own, "embed_ids"}
    features = text_features([["the cat"]], {}, tokenizer, 16, None).features
    ids = tf.constant([features.input_ids])
    batch = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    outputs = loaded["serving_default"](**batch)
    for name, value in loaded[own](**batch).items():
        np.testing.assert_array_equal(outputs[name], value)
    vectors = model.encoder(**batch).sequence_output
    np.testing.assert_allclose(loaded["embed_ids"](**batch)["sequence_output"], vectors, atol=1e-5)
