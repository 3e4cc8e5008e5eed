"""Attention by cuDNN's fused kernels, which write no scores or probabilities to memory.

XLA's compiler for NVIDIA GPUs recognises custom calls by their names and replaces them by cuDNN's graphs. Targets,
operands and configuration are those that JAX 0.11.2 writes for the layout BNTH; JAX's own names are the source.

There is no dropout: of cuDNN's, XLA counts the executions for each of the devices that its caller has told it of.
TensorFlow 2.20 tells of none, and the first step ends with a segmentation fault (seen on an H200). The calls equal
JAX's (commit d44b54e2 has the test).
"""

import functools
import json

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from electra_tf.ops.gradients import custom_gradient

# Axes of the two sides of each product: contracted, and batch.
_BOTH_HEADS = {"lhs_batch_dimensions": ["0", "1"], "rhs_batch_dimensions": ["0", "1"]}
_FORWARD_PRODUCTS = {"bmm1": (3, 3), "bmm2": (3, 2)}
_BACKWARD_PRODUCTS = {"bmm1_grad_gemm1": (2, 2), "bmm1_grad_gemm2": (3, 2), "bmm2_grad_gemm1": (2, 2)}
_BACKWARD_PRODUCTS |= {"bmm2_grad_gemm2": (3, 3)}
_WORKSPACE = tf.TensorSpec([0], tf.uint8)  # XLA gives it its size


def cudnn_attention(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    key_mask: tf.Tensor,
) -> tf.Tensor:
    """As `ReferenceOps.attention` in bfloat16, in both directions and without dropout.

    Masks are 1 for the first keys of a sequence and 0 for others. A sequence of padding alone attends to
    its first key. The gradient keeps log-sum-exp of each query's scores.
    """
    batch, heads, queries, _ = query.shape
    # All queries are computed, as elsewhere.
    lengths = [tf.fill([batch], queries), tf.maximum(tf.reduce_sum(key_mask, axis=1), 1)]
    call = functools.partial(_call, sizes=(batch, heads, queries, key.shape[2]))
    like = [tf.TensorSpec(each.shape, each.dtype) for each in (query, key, value)]

    @custom_gradient
    def operation(query, key, value):
        log_totals = tf.TensorSpec([batch, heads, queries], tf.float32)
        results = [like[0], log_totals, _WORKSPACE]
        output, log_totals, _ = call("", [query, key, value, *lengths], results, _FORWARD_PRODUCTS)

        def backward(upstream):
            operands = [query, key, value, log_totals, upstream, output, *lengths]
            return call("Backward", operands, [*like, _WORKSPACE], _BACKWARD_PRODUCTS)[:3]

        return output, backward

    return operation(query, key, value)


def _call(suffix: str, operands, results, products, *, sizes) -> list[tf.Tensor]:
    configuration = {
        "algorithm": {
            "algo_id": "0",
            "math_type": "TENSOR_OP_MATH",
            "tuning_knobs": {"17": "1", "24": "0"},
            "is_cudnn_frontend": True,
            "workspace_size": "0",
        },
        "fmha_scale": 1.0,  # queries are scaled
        "intermediate_tensor_shape": _described_scores(sizes),
        "is_flash_attention": True,
        "mask_type": "PADDING",
        "dropout_rate": 0.0,
        "seed": 0,
        "sliding_window_length": 0,
        "max_seg_per_batch": 1,
        "is_paged_attention": False,
    }
    for name, (left, right) in products.items():
        contracted = {"lhs_contracting_dimensions": [str(left)], "rhs_contracting_dimensions": [str(right)]}
        configuration[f"{name}_dot_dimension_numbers"] = contracted | _BOTH_HEADS
    backend_config = {"operation_queue_id": "0", "cudnn_fmha_backend_config": configuration}
    target = f"__cudnn$fmhaSoftmax{suffix}"
    return xla.custom_call_v2(target, operands, results, backend_config=json.dumps(backend_config))


def _described_scores(sizes: tuple[int, ...]) -> dict:
    """The scores, [B, A, Q, K] in bfloat16, as XLA describes a shape."""
    layout = {
        **{name: [] for name in ("dim_level_types", "dim_unique", "dim_ordered", "tiles")},
        "minor_to_major": ["3", "2", "1", "0"],
        "element_size_in_bits": "0",
        "memory_space": "0",
        "index_primitive_type": "PRIMITIVE_TYPE_INVALID",
        "pointer_primitive_type": "PRIMITIVE_TYPE_INVALID",
        "dynamic_shape_metadata_prefix_bytes": "0",
    }
    dimensions = {"dimensions": [str(size) for size in sizes], "is_dynamic_dimension": [False] * 4}
    return {"element_type": "BF16", "tuple_shapes": [], "layout": layout, **dimensions}
