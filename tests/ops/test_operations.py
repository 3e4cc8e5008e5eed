"""The plain operations equal literals and NumPy; fused ones and their custom gradients equal the plain ones."""

import math
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.embeddings import Embeddings
from electra_tf.models.encoder import Encoder
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.fused import FusedOps
from electra_tf.ops.random import DropoutKey, RandomStream
from electra_tf.ops.reference import NEG_INF, REFERENCE, AttentionOptions, float32, gelu

EPSILON = 1e-12
BFLOAT16_ROUNDING = 2.0**-8


def normal(*shape: int, seed: int = 0, dtype=tf.float32) -> tf.Tensor:
    return tf.cast(np.random.default_rng(seed).normal(size=shape), dtype)


def test_gelu_is_exact():
    values = [-6.0, -1.0, -0.1, 0.0, 0.5, 2.0, 7.0]
    expected = [value * 0.5 * math.erfc(-value / math.sqrt(2)) for value in values]
    # 1 + erf rounds at 2^-24 for large negative values.
    assert gelu(tf.constant(values)).numpy() == pytest.approx(expected, rel=1e-6, abs=6 * 2**-24)


def test_gelu_of_bfloat16_is_rounded_once():
    actual = REFERENCE.bias_gelu(tf.zeros([1, 1, 1], tf.bfloat16), tf.constant([-3.0], tf.bfloat16))
    assert actual.dtype == tf.bfloat16
    assert float(actual[0, 0, 0]) == pytest.approx(-0.00404969, rel=BFLOAT16_ROUNDING)


@pytest.mark.parametrize(("operation", "slope"), [(REFERENCE.add_bias, 1.0), (REFERENCE.bias_gelu, 0.5)])
def test_the_gradient_of_a_bfloat16_bias_is_summed_in_float32(operation, slope):
    """In bfloat16 a sum of ones ends at 256."""
    bias = tf.zeros([2], tf.bfloat16)
    with tf.GradientTape() as tape:
        tape.watch(bias)
        output = operation(tf.zeros([8, 512, 2], tf.bfloat16), bias)
    assert tape.gradient(output, bias).numpy().tolist() == [4096 * slope] * 2


def test_layer_norm_of_bfloat16_computes_in_float32():
    """In bfloat16 neither the mean of 256 and 258 nor their difference from it is exact."""
    values = tf.constant([[256.0, 258.0] * 12], tf.bfloat16)
    normalized = REFERENCE.layer_norm(values, tf.ones([24]), tf.zeros([24]), epsilon=EPSILON)
    assert tf.cast(normalized, tf.float32).numpy()[0].tolist() == [-1.0, 1.0] * 12


def test_dropout_comes_before_the_residual_and_the_normalisation():
    dropout_key = RandomStream(3, 0, 0).dropout_key(0.4)
    product, bias, residual = normal(2, 5, 24), normal(24, seed=1), normal(2, 5, 24, seed=2)
    actual = REFERENCE.dropout_add_layer_norm(
        product, bias, residual, tf.ones([24]), tf.zeros([24]), epsilon=EPSILON, dropout_key=dropout_key
    )
    keep = dropout_key.keep_mask(2, (5, 24)).numpy()
    summed = np.where(keep, (product + bias).numpy() / (1 - 0.4), 0.0) + residual.numpy()
    expected = (summed - summed.mean(-1, keepdims=True)) / summed.std(-1, keepdims=True)
    assert actual.numpy() == pytest.approx(expected, abs=1e-5)


MASK = tf.constant([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
SIDES = {
    "bidirectional": np.ones([5, 5]),
    "left_to_right": np.tril(np.ones([5, 5])),
    "right_to_left": np.triu(np.ones([5, 5])),
}


@pytest.mark.parametrize("attention_mask", SIDES)
def test_attention_is_a_softmax_over_the_visible_keys(attention_mask):
    scores, side = normal(2, 3, 5, 5), SIDES[attention_mask]
    probs = REFERENCE.attention_probs(scores, MASK, AttentionOptions(attention_mask=attention_mask))
    # Where all visible keys are padding, they are attended to.
    padded = scores.numpy() + np.where(MASK[:, tf.newaxis, tf.newaxis] > 0, np.float32(0), np.float32(-10000))
    visible = np.where(side > 0, padded, -np.inf)
    powers = np.exp(visible - visible.max(-1, keepdims=True))
    assert probs.numpy() == pytest.approx(powers / powers.sum(-1, keepdims=True), abs=1e-6)
    assert not probs.numpy()[:, :, side == 0].any()


def test_dropout_scales_the_probabilities_that_it_keeps():
    dropout_key = RandomStream(3, 0, 0).dropout_key(0.4)
    scores = normal(2, 3, 5, 5)
    dropped = REFERENCE.attention_probs(scores, tf.ones([2, 5]), AttentionOptions(dropout_key))
    keep = dropout_key.keep_mask(2, (3, 5, 5)).numpy()
    assert dropped.numpy() == pytest.approx(np.where(keep, tf.nn.softmax(scores).numpy() / 0.6, 0.0), rel=1e-6)


FUSED = FusedOps("cpu", whole_step=False)
# A few roundings of sums of up to 24 float32 terms of size 1; bfloat16 keeps eight bits.
TOLERANCE = {tf.float32: 5e-6, tf.bfloat16: 4e-2}


def draw_at(rate: float):
    return RandomStream(3, 0, 0).dropout_key(rate) if rate else None


def with_gradients(function, inputs, upstream):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output = function(*inputs)
    return [output, *tape.gradient(output, inputs, tf.cast(upstream, output.dtype))]


def assert_alike(operation, inputs, upstream, dtype, ops=FUSED):
    """`operation(ops, *inputs)`: fused in the dtype of the inputs, and plain in float32."""
    exact = [tf.cast(value, tf.float32) for value in inputs]
    expected = with_gradients(lambda *values: operation(REFERENCE, *values), exact, upstream)
    actual = with_gradients(lambda *values: operation(ops, *values), inputs, upstream)
    assert actual[0].dtype == dtype
    for index, (value, other) in enumerate(zip(actual, expected, strict=True)):
        scale = max(1.0, float(np.abs(other).max()))
        assert np.abs(tf.cast(value, tf.float32) - other).max() < TOLERANCE[dtype] * scale, index
        assert np.abs(other).max() > 0.01, index


# The operation, of ops, a rate and tensors; the shapes of its inputs, of which the result has the first one's.
OPERATIONS = {
    "bias_gelu": (lambda ops, _, *values: ops.bias_gelu(*values), [(2, 5, 12), (12,)]),
    "dropout": (lambda ops, rate, values: ops.dropout(values, draw_at(rate)), [(2, 5, 24)]),
    "add_layer_norm": (
        lambda ops, rate, *values: ops.dropout_add_layer_norm(*values, epsilon=1e-12, dropout_key=draw_at(rate)),
        [(2, 5, 24), (24,), (2, 5, 24), (24,), (24,)],
    ),
    "attention": (
        lambda ops, rate, scores: ops.attention_probs(scores, MASK, AttentionOptions(draw_at(rate))),
        [(2, 3, 5, 5)],
    ),
    "left_to_right": (
        lambda ops, rate, scores: ops.attention_probs(scores, MASK, AttentionOptions(draw_at(rate), "left_to_right")),
        [(2, 3, 5, 5)],
    ),
}


@pytest.mark.parametrize(("dtype", "rate"), [(tf.float32, 0.4), (tf.bfloat16, 0.4), (tf.bfloat16, 0.0)])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_and_its_gradients_equal_the_reference(name, dtype, rate):
    operation, shapes = OPERATIONS[name]
    inputs = [normal(*shape, seed=number, dtype=dtype) for number, shape in enumerate(shapes[:3])]
    inputs += [normal(*shape, seed=number) for number, shape in enumerate(shapes[3:], start=3)]  # gamma and beta
    upstream = normal(*shapes[0], seed=5)
    assert_alike(lambda ops, *values: operation(ops, rate, *values), inputs, upstream, dtype)


@pytest.mark.parametrize(
    ("dtype", "rate", "attention_mask", "window", "lengths"),
    [
        pytest.param(tf.float32, 0.0, "left_to_right", None, (130, 130), id="left_to_right"),
        # The last queries see padding alone.
        pytest.param(tf.bfloat16, 0.4, "right_to_left", None, (133, 133), id="right_to_left"),
        pytest.param(tf.float32, 0.4, "bidirectional", 45, (45, 135), id="block_with_neighbours"),
    ],
)
def test_attention_that_keeps_no_probabilities_equals_the_reference(dtype, rate, attention_mask, window, lengths):
    queries, keys = lengths
    mask = tf.constant([[1] * keys, [1] * (keys - keys // 4) + [0] * (keys // 4)])
    options = AttentionOptions(draw_at(rate), attention_mask, window)
    shapes = [(2, 3, length, 8) for length in (queries, keys, keys)]
    inputs = [normal(*shape, seed=index, dtype=dtype) for index, shape in enumerate(shapes)]
    upstream = normal(2, 3, queries, 8, seed=3)
    plain = with_gradients(
        lambda *values: REFERENCE.attention(*values, mask, options), [float32(each) for each in inputs], upstream
    )
    ops = FusedOps("gpu", whole_step=True)

    @tf.function(jit_compile=True, autograph=False)
    def compute(*inputs):
        return with_gradients(lambda *values: ops.attention(*values, mask, options), inputs, upstream)

    # Float32: 16 roundings.
    tolerance = 1e-6 if dtype == tf.float32 else TOLERANCE[dtype]
    for actual, expected in zip(compute(*inputs), plain, strict=True):
        assert actual.dtype == dtype
        scale = max(1.0, float(np.abs(expected).max()))
        assert float32(actual).numpy() == pytest.approx(expected.numpy(), abs=tolerance * scale)


def test_what_attention_keeps_for_its_gradient_grows_with_the_length_and_not_with_its_square():
    """Nor may XLA keep it: all that the second computation reads passes through a barrier."""
    ops = FusedOps("gpu", whole_step=True)
    attend = tf.function(
        lambda words, *values: ops.attention(*values, tf.ones([2, 131]), AttentionOptions(DropoutKey(words, 0.1))),
        autograph=False,
    )

    def gradient(words, *values):
        return tf.gradients(attend(words, *values), values)

    lengths = [tf.TensorSpec([2, 5, length, 3], tf.bfloat16) for length in (7, 131, 131)]
    graph = tf.function(gradient, autograph=False).get_concrete_function(tf.TensorSpec([3], tf.uint32), *lengths).graph
    forward, backward = (each for each in graph.get_operations() if each.type == "PartitionedCall")
    kept = [each.shape.as_list() for each in forward.outputs]
    assert [2, 5, 7, 1] in kept and [2, 5, 7, 131] not in kept
    body = graph._get_function(backward.get_attr("f").name).graph
    (barrier,) = (each for each in body.get_operations() if each.type == "XlaOptimizationBarrier")
    assert len(barrier.outputs) == 8


def test_cross_entropy_equals_the_reference():
    bias = tf.concat([normal(200, seed=1), tf.fill([56], NEG_INF)], axis=0)  # 56 entries that cannot be drawn
    ids = tf.constant([0, 7, 199, 128, 3, 3])

    def losses(ops, products, bias):
        sums = ops.max_and_sumexp(tf.stop_gradient(products), tf.stop_gradient(bias), None)
        return ops.cross_entropy(products, bias, ids, sums)

    assert_alike(losses, [normal(6, 256, seed=0), bias], normal(6, seed=2), tf.float32)


TILES = pytest.mark.parametrize("num_vectors", [24, 6, 5], ids=["whole_tiles", "parts_of_tiles", "odd"])


@TILES
@pytest.mark.parametrize("ops", [REFERENCE, FusedOps("tpu", whole_step=True)], ids=["reference", "tpu"])
def test_exponential_sums_are_right_for_any_number_of_rows(ops, num_vectors):
    products, bias = normal(num_vectors, 384, seed=0), normal(384, seed=1)
    sums = tf.function(ops.max_and_sumexp, jit_compile=ops is not REFERENCE, autograph=False)
    largest, totals = sums(products, bias, None)
    logits = (products + bias).numpy()
    assert largest.numpy()[:, 0].tolist() == logits.max(axis=1).tolist()
    expected = sum(np.exp(logits[:, first : first + 128] - largest) for first in (0, 128, 256))
    assert totals.numpy() == pytest.approx(expected, rel=1e-6)


@TILES
@pytest.mark.parametrize("device", ["cpu", "tpu"])
def test_column_logits_are_the_same_on_every_device(device, num_vectors):
    products = normal(num_vectors, 384, seed=0)
    bias = tf.concat([normal(300, seed=1), tf.fill([84], NEG_INF)], axis=0)
    column = tf.range(num_vectors) * 53 % 128
    actual = FusedOps(device, whole_step=True).column_logits(products, bias, column)
    logits = (products + bias).numpy()
    assert actual.numpy().tolist() == [row[at::128].tolist() for row, at in zip(logits, column.numpy(), strict=True)]


# --- in a step that is compiled as a whole


@pytest.fixture(scope="module")
def build_encoder(tiny_config):
    def build(num_layers: int) -> Encoder:
        config = tiny_config(encoder={"num_layers": num_layers, "initializer_range": 0.5}).encoder
        encoder, ids = Encoder(config, Embeddings(config)), tf.ones([2, 9], tf.int32)
        encoder(ids, input_mask=ids, segment_ids=ids)
        return encoder

    return build


def gradients_of(encoder: Encoder, ops, **options):
    """A function of ids [2, 9]: the encoder's output and its gradients."""

    @tf.function(autograph=False, **options)
    def compute(ids):
        context = ForwardContext(training=True, random=RandomStream(0, 0, 0), ops=ops)
        mask = tf.constant([[1] * 9, [1] * 7 + [0] * 2])
        with tf.GradientTape() as tape:
            output = encoder(ids, input_mask=mask, segment_ids=tf.zeros_like(ids), context=context).sequence_output
        gradients = tape.gradient(output, encoder.trainable_variables, normal(2, 9, 16, seed=2))
        return [output, *map(tf.convert_to_tensor, gradients)]

    return compute


@pytest.mark.slow
def test_an_encoder_compiled_for_a_tpu_gives_the_same_output_and_gradients(build_encoder):
    """tests/train/test_trajectories.py has one with the operations of a CPU."""
    encoder, ids = build_encoder(1), tf.constant([[2, 9, 8, 7, 31, 3, 5, 6, 3]] * 2)
    expected = gradients_of(encoder, REFERENCE)(ids)
    actual = gradients_of(encoder, FusedOps("tpu", whole_step=True), jit_compile=True)(ids)
    names = ["output", *(variable.path for variable in encoder.trainable_variables)]
    for name, ours, desired in zip(names, actual, expected, strict=True):
        assert np.abs(ours - desired).max() < 1e-5 * max(1.0, np.abs(desired).max()), name
        # The softmax cancels what is added to all keys alike.
        assert "key/bias" in name or np.abs(desired).max() > 1e-3, name


def test_all_layers_of_an_encoder_call_one_function(build_encoder):
    graph = gradients_of(build_encoder(3), FUSED).get_concrete_function(tf.ones([2, 9], tf.int32)).graph
    calls = Counter(node.attr["f"].func.name for node in graph.as_graph_def().node if node.op == "PartitionedCall")
    assert [count for _, count in calls.most_common(2)] == [3, 3]  # forward and backward


@pytest.mark.slow
def test_the_size_of_the_compiled_program_is_linear_in_the_depth(build_encoder):
    def compiled_lines(num_layers: int) -> int:
        compute = gradients_of(build_encoder(num_layers), FusedOps("cpu", whole_step=True), jit_compile=True)
        return compute.experimental_get_compiler_ir(tf.ones([2, 9], tf.int32))(stage="optimized_hlo").count("\n")

    two, four, six = map(compiled_lines, (2, 4, 6))
    # If layers were computed again in the loops of the layers above, the ratio would be 1.6.
    assert 0 < six - four < 1.1 * (four - two)


def traced_gradient(function, *specs: tf.TensorSpec) -> list[tf.Operation]:
    """The operations of a function and of its gradient."""
    traced = tf.function(lambda *inputs: tf.gradients(function(*inputs), inputs), autograph=False)
    return traced.get_concrete_function(*specs).graph.get_operations()


def test_a_step_compiled_as_a_whole_contains_no_programs_of_single_operations():
    """XLA would have to inline them. Nor are sums computed as products there."""
    compute = FusedOps("cpu", whole_step=True).bias_gelu
    kinds = {each.type for each in traced_gradient(compute, tf.TensorSpec([2, 4, 3]), tf.TensorSpec([3]))}
    assert "Sum" in kinds and not kinds & {"PartitionedCall", "StatefulPartitionedCall", "MatMul"}


def test_a_step_compiled_as_a_whole_keeps_dropped_probabilities_in_its_own_dtype():
    """Without the barrier a GPU keeps them in float32: a third more memory for ELECTRA-Base at length 512."""

    def probs(scores, words):
        ops, options = FusedOps("gpu", whole_step=True), AttentionOptions(DropoutKey(words, 0.1))
        return ops.attention_probs(scores, tf.ones([2, 3]), options)

    operations = traced_gradient(probs, tf.TensorSpec([2, 5, 4, 3], tf.bfloat16), tf.TensorSpec([3], tf.uint32))
    barriers = [each for each in operations if each.type == "XlaOptimizationBarrier"]
    assert [each.outputs[0].dtype for each in barriers] == [tf.bool, tf.bfloat16]
    assert "Cast" in {each.type for each in barriers[1].outputs[0].consumers()}  # the gradient reads it
