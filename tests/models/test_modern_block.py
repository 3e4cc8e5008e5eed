"""The modern block equals transformers' ModernBERT; local attention in blocks equals a masked square."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.networks import EncoderConfig
from electra_tf.models.encoder import build_encoder
from electra_tf.models.heads import MaskedLmHead
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.fused import FusedOps
from electra_tf.ops.local_attention import local_attention
from electra_tf.ops.random import RandomStream
from electra_tf.ops.reference import REFERENCE, AttentionOptions
from tests.models.modernbert_names import ENCODER, assign_weight, encoder_places, head_places, is_transposed

RESULTS = np.load(Path(__file__).parents[1] / "fixtures" / "modernbert.npz")
# float32 rounds at 6e-8; a wrong window, half, angle or GELU changes these numbers by 5e-4 and more.
TOLERANCE = 1e-5


def settings(has_biases: bool = False, **changes) -> EncoderConfig:
    biases = dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), has_biases)
    return EncoderConfig(**ENCODER | biases | changes)


@pytest.fixture(scope="module", params=["plain", pytest.param("biases", marks=pytest.mark.slow)])
def modern(request) -> dict:
    """An encoder and a head with the fixture's weights, the variables by name, and transformers' results."""
    config = settings(request.param == "biases")
    encoder = build_encoder(config, "float32")
    head = MaskedLmHead(config, encoder.embeddings)
    results = {name.split("|", 1)[1]: RESULTS[name] for name in RESULTS if name.startswith(request.param)}
    ids, mask = (tf.constant(results[name], tf.int32) for name in ("input_ids", "input_mask"))
    head(encoder(ids, mask, tf.zeros_like(ids)).sequence_output)
    named = dict([*encoder_places(encoder), *head_places(head)])
    assert {id(each) for each in named.values()} == {id(each) for each in (*encoder.variables, *head.variables)}
    for name, variable in named.items():
        assign_weight(name, variable)
    return {"encoder": encoder, "head": head, "named": named, "results": results, "ids": ids, "mask": mask}


def of_real_tokens(modern, values) -> np.ndarray:
    return np.asarray(values)[modern["results"]["input_mask"] > 0]


def test_hidden_states_and_logits_are_those_of_transformers(modern):
    output = modern["encoder"](modern["ids"], modern["mask"], tf.zeros_like(modern["ids"]))
    logits = modern["head"](output.sequence_output).logits
    for name, values in (("hidden", output.sequence_output), ("logits", logits)):
        expected = of_real_tokens(modern, modern["results"][name])
        assert of_real_tokens(modern, values) == pytest.approx(expected, abs=TOLERANCE), name


def test_segments_change_nothing_and_lengths_may_be_unknown(modern):
    encoder, ids, mask = modern["encoder"], modern["ids"], modern["mask"]
    of_any_length = tf.function(
        lambda ids, mask: encoder(ids, mask, tf.ones_like(ids)).sequence_output,
        input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2,
    )
    for length in (15, 5):  # in blocks, and in one square
        expected = encoder(ids[:, :length], mask[:, :length], tf.zeros_like(ids[:, :length])).sequence_output
        assert of_any_length(ids[:, :length], mask[:, :length]).numpy() == pytest.approx(
            expected.numpy(), abs=TOLERANCE
        )


def gradients_of(modern, variables, **options) -> list[tf.Tensor]:
    context = ForwardContext(training=True, random=RandomStream(0, 0, 0), **options)
    with tf.GradientTape() as tape:
        output = modern["encoder"](modern["ids"], modern["mask"], tf.zeros_like(modern["ids"]), context=context)
        loss = tf.reduce_sum(output.sequence_output * modern["results"]["upstream"])
    return [tf.convert_to_tensor(each) for each in tape.gradient(loss, variables)]


def test_gradients_are_those_of_transformers(modern):
    expected = {name: value for name, value in modern["results"].items() if name.startswith("gradient|")}
    variables = [modern["named"][name.split("|")[1]] for name in expected]
    compute = tf.function(lambda: gradients_of(modern, variables, ops=FusedOps("cpu", False)), autograph=False)
    for (name, desired), gradient in zip(expected.items(), compute(), strict=True):
        actual = gradient.numpy().T if is_transposed(name, gradient) else gradient.numpy()
        assert actual == pytest.approx(desired, abs=TOLERANCE * float(np.abs(desired).max())), name


def test_rematerialized_layers_give_the_same_gradient(modern):
    variables = [modern["named"]["model.layers.1.attn.Wqkv.weight"]]
    (kept,), (again,) = (gradients_of(modern, variables, rematerialize=each) for each in (False, True))
    assert again.numpy() == pytest.approx(kept.numpy(), abs=1e-6)


@pytest.mark.parametrize("attention_mask", ["bidirectional", "left_to_right", "right_to_left"])
@pytest.mark.parametrize(("length", "window"), [(7, 2), (12, 3), (14, 3)])
def test_attention_in_blocks_equals_a_square_with_a_window(length, window, attention_mask):
    random = np.random.default_rng(length)
    query, key, value = (tf.constant(random.normal(size=[2, 3, length, 4]), tf.float32) for _ in range(3))
    key_mask = tf.constant([[1] * length, [1] * (length - 4) + [0] * 4])
    options = AttentionOptions(attention_mask=attention_mask, window=window)
    blocks = local_attention(REFERENCE, query, key, value, key_mask, options)
    probs = REFERENCE.attention_probs(tf.matmul(query, key, transpose_b=True), key_mask, options)
    square = tf.matmul(probs, value).numpy()
    assert np.count_nonzero(probs[0, 0, length // 2]) == (
        2 * window + 1 if attention_mask == "bidirectional" else window + 1
    )
    assert blocks.numpy()[0] == pytest.approx(square[0], abs=1e-6)
    assert blocks.numpy()[1, :, : length - 4] == pytest.approx(square[1, :, : length - 4], abs=1e-6)


def test_local_attention_computes_twice_as_much_for_twice_the_length():
    def largest_tensor(length: int) -> int:
        spec, options = tf.TensorSpec([2, 3, length, 4]), AttentionOptions(window=5)
        attend = tf.function(
            lambda *values: local_attention(REFERENCE, *values, tf.ones([2, length], tf.int32), options)
        )
        operations = attend.get_concrete_function(spec, spec, spec).graph.get_operations()
        return max(output.shape.num_elements() or 0 for operation in operations for output in operation.outputs)

    assert largest_tensor(640) == 2 * largest_tensor(320)


def gradients_of_local_attention(whole_step: bool, rate: float, inputs: tuple) -> list[tf.Tensor]:
    ops = FusedOps("gpu" if whole_step else "cpu", whole_step=whole_step)
    dropout_key = RandomStream(5, 1, 0).dropout_key(rate)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        mask = tf.ones([2, tf.shape(inputs[0])[2]], tf.int32)
        mixed = local_attention(ops, *inputs, mask, AttentionOptions(dropout_key, window=3))
        loss = tf.reduce_sum(tf.cast(mixed, tf.float32) ** 2)
    return tape.gradient(loss, inputs)


# Compiled as a whole, short sequences are cut into blocks too, so that dropout draws other bits for them.
@pytest.mark.parametrize(
    ("length", "dtype", "tolerance", "whole_step", "rate"),
    [
        (6, "float32", 1e-6, False, 0.4),
        (14, "bfloat16", 2**-8, False, 0.4),
        (3, "float32", 1e-6, True, 0.0),
    ],
)
def test_gradients_do_not_depend_on_whether_the_length_is_known(length, dtype, tolerance, whole_step, rate):
    random = np.random.default_rng(length)
    inputs = [tf.cast(random.normal(size=[2, 3, length, 4]), dtype) for _ in range(3)]

    @tf.function(jit_compile=whole_step, autograph=False)
    def gradients(*inputs):
        return gradients_of_local_attention(whole_step, rate, inputs)

    shapes = ([2, 3, length, 4], [None, 3, None, 4])
    known, unknown = (
        tf.function(gradients, input_signature=[tf.TensorSpec(shape, dtype)] * 3, autograph=False)(*inputs)
        for shape in shapes
    )
    for first, second in zip(known, unknown, strict=True):
        first, second = (tf.cast(each, tf.float32).numpy() for each in (first, second))
        assert second == pytest.approx(first, abs=tolerance * float(np.abs(first).max()))


def test_training_computes_the_same_for_an_example_in_any_part_of_a_batch():
    encoder = build_encoder(settings(hidden_dropout=0.4, attention_dropout=0.4), "float32")
    ids = tf.constant(np.random.default_rng(0).integers(5, 23, [4, 15]), tf.int32)
    mask = tf.sequence_mask([15, 15, 7, 1], 15, tf.int32)

    def encode(rows: slice, step: int = 1) -> np.ndarray:
        context = ForwardContext(training=True, random=RandomStream(5, step, rows.start))
        return encoder(ids[rows], mask[rows], tf.zeros_like(ids[rows]), context=context).sequence_output.numpy()

    together = encode(slice(0, 4))
    assert np.concatenate([encode(slice(0, 2)), encode(slice(2, 4))]) == pytest.approx(together, abs=TOLERANCE)
    assert np.abs(encode(slice(0, 4), step=2) - together).max() > 0.1
