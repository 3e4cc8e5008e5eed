"""Hugging Face's names for the authors' variables, literally."""

import pytest

from electra_tf.convert.hugging_face_names import hugging_face_tensor


@pytest.mark.parametrize(
    ("name", "tensor", "transposed"),
    [
        ("electra/embeddings/word_embeddings", "electra.embeddings.word_embeddings.weight", False),
        ("electra/embeddings/LayerNorm/gamma", "electra.embeddings.LayerNorm.weight", False),
        ("generator/embeddings_project/kernel", "electra.embeddings_project.weight", True),
        (
            "electra/encoder/layer_11/attention/self/query/bias",
            "electra.encoder.layer.11.attention.self.query.bias",
            False,
        ),
        (
            "generator/encoder/layer_2/output/LayerNorm/beta",
            "electra.encoder.layer.2.output.LayerNorm.bias",
            False,
        ),
        ("discriminator_predictions/dense/kernel", "discriminator_predictions.dense.weight", True),
        ("discriminator_predictions/dense_1/kernel", "discriminator_predictions.dense_prediction.weight", True),
        ("generator_predictions/LayerNorm/gamma", "generator_predictions.LayerNorm.weight", False),
        ("generator_predictions/output_bias", "generator_lm_head.bias", False),
    ],
)
def test_the_tensor_of_a_variable(name, tensor, transposed):
    assert hugging_face_tensor(name) == (tensor, transposed)
