"""The custom calls for cuDNN's attention equal those that JAX writes; cuDNN itself needs a GPU."""

import json
import re
from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.ops.cudnn_attention import fits_cudnn
from electra_tf.ops.fused import FusedOps
from electra_tf.ops.random import RandomStream

JAX_CALLS = json.loads(Path(__file__).with_name("cudnn_calls.json").read_text(encoding="utf-8"))["calls"]
OPS = FusedOps("gpu", whole_step=True, cudnn=True)
_CALL = re.compile(r'custom_call @(__cudnn\S+?)\(.*backend_config = "((?:[^"\\]|\\.)*)"(.*)\} : \((.*)\) -> (.*)')


def attention_calls(rate: float, attention_mask: str) -> list[dict]:
    """The custom calls of attention and its gradient, as in `cudnn_calls.json`."""

    @tf.function(jit_compile=True, autograph=False)
    def gradients(key_mask, step, upstream, *inputs):
        dropout_key = RandomStream(3, step, 0).dropout_key() if rate else None
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = OPS.attention(*inputs, key_mask, rate=rate, dropout_key=dropout_key, attention_mask=attention_mask)
        return [output, *tape.gradient(output, inputs, upstream)]

    heads = tf.TensorSpec([3, 2, 24, 16], tf.bfloat16)
    specs = [tf.TensorSpec([3, 24], tf.int32), tf.TensorSpec([], tf.int64), *[heads] * 4]
    text = gradients.experimental_get_compiler_ir(*specs)(stage="stablehlo")
    calls = []
    for target, config, layouts, operands, results in _CALL.findall(text):
        config = json.loads(re.sub(r"\\([0-9A-F]{2})", lambda code: chr(int(code[1], 16)), config))
        shapes = {
            name: re.findall(r"tensor<(.*?)>", types) for name, types in (("operands", operands), ("results", results))
        }
        shapes["layouts"] = re.findall(r"dense<(.*?)>", layouts)
        calls.append({"target": target, **shapes, "backend_config": config})
    return calls


def seed_of(call: dict) -> int:
    return call["backend_config"]["cudnn_fmha_backend_config"]["seed"]


def test_calls_with_padding_and_dropout_are_those_of_jax():
    calls = attention_calls(0.1, "bidirectional")
    assert [seed_of(call) for call in calls] == [seed_of(calls[0])] * 2
    for call in calls:
        call["backend_config"]["cudnn_fmha_backend_config"]["seed"] = 5  # that of JAX's calls
    assert calls == JAX_CALLS[:2]


def test_causal_calls_without_dropout_are_those_of_jax():
    assert attention_calls(0.0, "left_to_right") == JAX_CALLS[2:]


def test_the_seed_depends_on_the_runs_seed_and_the_layer_alone():
    @tf.function(autograph=False)
    def seeds(step):
        streams = [RandomStream(seed, step, step + 4).fold_in(name) for seed, name in ((1, "a"), (1, "b"), (2, "a"))]
        return [stream.dropout_key().constant_seed for stream in streams]

    first = [int(each) for each in seeds(tf.constant(0, tf.int64))]
    assert len(set(first)) == 3
    assert [int(each) for each in seeds(tf.constant(7, tf.int64))] == first


@pytest.mark.parametrize(
    ("shape", "dtype", "options", "expected"),
    [
        ([3, 2, 24, 64], tf.bfloat16, {}, True),
        ([3, 2, 24, 64], tf.float32, {}, False),
        ([3, 2, 24, 12], tf.bfloat16, {}, False),
        ([3, 2, 24, 136], tf.bfloat16, {}, False),
        ([None, 2, 24, 64], tf.bfloat16, {}, False),
        ([3, 2, 24, 64], tf.bfloat16, {"attention_mask": "right_to_left"}, False),
        ([3, 2, 24, 64], tf.bfloat16, {"window": 8}, False),
    ],
)
def test_cudnn_computes_what_it_has_kernels_for(shape, dtype, options, expected):
    query = tf.TensorSpec(shape, dtype)
    assert fits_cudnn(query, **{"attention_mask": "bidirectional", "window": None, **options}) is expected
