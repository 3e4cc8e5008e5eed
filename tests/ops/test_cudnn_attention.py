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


def attention_calls(attention_mask: str) -> list[dict]:
    """The custom calls of attention and its gradient, as in `cudnn_calls.json`."""

    @tf.function(jit_compile=True, autograph=False)
    def gradients(key_mask, upstream, *inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = OPS.attention(*inputs, key_mask, rate=0.0, dropout_key=None, attention_mask=attention_mask)
        return [output, *tape.gradient(output, inputs, upstream)]

    heads = tf.TensorSpec([3, 2, 24, 16], tf.bfloat16)
    specs = [tf.TensorSpec([3, 24], tf.int32), *[heads] * 4]
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


def test_calls_with_padding_are_those_of_jax_without_their_dropout():
    expected = json.loads(json.dumps(JAX_CALLS[:2]).replace("SoftmaxDropout", "Softmax"))
    for call in expected:
        call["backend_config"]["cudnn_fmha_backend_config"] |= {"dropout_rate": 0.0, "seed": 0}
    assert attention_calls("bidirectional") == expected


def test_causal_calls_are_those_of_jax():
    assert attention_calls("left_to_right") == JAX_CALLS[2:]


def test_attention_with_dropout_is_not_cudnns():
    """TensorFlow 2.20 crashes in it, on a GPU."""

    @tf.function(jit_compile=True, autograph=False)
    def attention(query, key_mask, step):
        return OPS.attention(
            query, query, query, key_mask, rate=0.1, dropout_key=RandomStream(3, step, 0).dropout_key()
        )

    specs = [tf.TensorSpec(s, d) for s, d in (([3, 2, 24, 16], tf.bfloat16), ([3, 24], tf.int32), ([], tf.int64))]
    assert "cudnn" not in attention.experimental_get_compiler_ir(*specs)(stage="stablehlo")


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
