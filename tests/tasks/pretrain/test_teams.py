"""TEAMS: the candidates, the selection's loss, the detection's own layer, and the layers that are shared."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.layers import ForwardContext
from electra_tf.ops.random import RandomStream
from tests.toy import gelu, log_softmax, logits_of, training_values

# The first layer attends to near tokens and the others to all: so does the detection's layer, as the last one.
BLOCKS = {"bert": {}, "modern": {"block": "modern", "global_attention_every_n_layers": 1}}


def test_the_selection_equals_its_formula_over_the_masked_tokens(build, batch, sampling):
    objective = build("teams", num_candidates=3)
    forward = objective.forward(batch, sampling)
    candidates = objective.candidates(batch, forward.generated, sampling.fold_in("candidates")).numpy()
    assert candidates.shape == (2, 2, 3) and candidates[..., 0].tolist() == batch["masked_lm_ids"].numpy().tolist()
    head = objective.word_selection_head
    kernel, bias = (value.numpy().astype(np.float64) for value in head.transform.weights)
    hidden = forward.discriminator_output.sequence_output.numpy()[[0, 0, 1], [4, 1, 2]]  # where 13, 11 and 22 were
    inner = gelu(hidden @ kernel + bias)
    inner = (inner - inner.mean(-1, keepdims=True)) / inner.std(-1, keepdims=True)  # gamma is 1, beta 0
    rows = objective.discriminator.embeddings.word_embeddings.numpy()[candidates[[0, 0, 1], [0, 1, 0]]]  # [3, 3, E]
    logits = np.einsum("nke,ne->nk", rows, inner)
    terms = training_values(objective, batch, sampling)
    assert terms["word_selection"] == pytest.approx(-log_softmax(logits)[:, 0].mean(), rel=1e-5)
    assert terms["word_selection_accuracy"] == pytest.approx((logits.argmax(-1) == 0).mean())
    assert objective.loss_weights == {"masked_lm": 1.0, "replaced_token": 5.0, "word_selection": 2.0}


def test_the_candidates_are_the_original_and_other_tokens_all_different(build, batch, sampling):
    objective = build("teams", num_candidates=9)
    generated = objective.generate(batch, sampling)._replace(
        distribution=logits_of(20.0 * tf.one_hot([[13, 12], [22, 5]], 47))
    )
    candidates = objective.candidates(batch, generated, sampling).numpy()
    assert candidates[..., 0].tolist() == [[13, 11], [22, 0]]
    assert {len(set(row)) for row in candidates.reshape(-1, 9).tolist()} == {9}
    # The generator's favourite is drawn first, unless it is the original.
    assert candidates[[0, 1], [1, 1], 1].tolist() == [12, 5]
    again = objective.candidates(batch, generated, ForwardContext(random=RandomStream(4, 1, 0))).numpy()
    assert (again != candidates).any()


@pytest.mark.parametrize("block", BLOCKS)
def test_the_detections_layer_takes_the_place_of_the_encoders_last(build, batch, sampling, block):
    objective = build("teams", {"encoder": BLOCKS[block]}, fresh=True, sampling="greedy")
    forward = objective.forward(batch, sampling)

    def of_last() -> np.ndarray:
        return objective.replaced_token_head.head(forward.discriminator_output.sequence_output).numpy()

    assert np.abs(forward.replaced_token_logits.numpy() - of_last()).max() > 1e-2
    own, last = objective.replaced_token_head.layer, objective.discriminator.transformer_layers[-1]
    for variable, value in zip(own.weights, last.weights, strict=True):
        variable.assign(value)
    logits = objective.replaced_token_logits(forward.discriminator_output, batch, sampling).numpy()
    np.testing.assert_allclose(logits, of_last(), atol=1e-5)
    inputs = {**batch, "input_ids": forward.corrupted.input_ids}
    np.testing.assert_allclose(objective.detection_logits(inputs), logits, atol=1e-5)


@pytest.mark.parametrize(("fraction", "num_shared"), [(0.0, 0), (0.4, 1), (1.0, 2)])
def test_generator_and_discriminator_share_their_lowest_layers_and_the_projection(build, fraction, num_shared):
    objective = build("teams", {"encoder": {"num_layers": 3}}, shared_layers_fraction=fraction)
    generator, discriminator = objective.generator.encoder, objective.discriminator
    pairs = zip(generator.transformer_layers, discriminator.transformer_layers, strict=True)
    assert [one is other for one, other in pairs] == [index < num_shared for index in range(3)]
    assert (generator.embeddings_project is discriminator.embeddings_project) == (num_shared > 0)
