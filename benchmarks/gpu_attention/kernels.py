"""Flash attention with our dropout, as Triton kernels that TensorFlow's XLA compiles into a step.

    JAX/bin/python -m benchmarks.gpu_attention.kernels KERNELS.json --shapes 64,12,512,64 64,4,512,64 --rate=0.1

Pallas writes the kernels; nothing is run, and no GPU is needed. KERNELS.json has for each shape (examples, heads,
tokens, numbers of a head) what XLA's custom call `__gpu$xla.gpu.triton` takes. JAX/ is an environment of its own with
jax==0.7.0, which writes Triton's IR as of the XLA in TensorFlow 2.20.

The forward pass keeps two numbers of each query, the largest score and the total of the powers. The gradient computes
scores, probabilities and dropout again, once for keys and values and once for queries, so that no sum depends on the
order of blocks. Source: Dao 2023, "FlashAttention-2"; the dropout is `electra_tf.ops.random.hashed`.
"""

import argparse
import functools
import json
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from benchmarks.gpu_attention.layout import FACTORS, SHIFTS, entry_name

_TARGET = "__gpu$xla.gpu.triton"


class Blocks(NamedTuple):
    """How one kernel is divided: queries and keys at once, warps, and stages of the loop's pipeline."""

    queries: int
    keys: int
    warps: int
    stages: int

    @classmethod
    def of_text(cls, text: str) -> "Blocks":
        return cls(*map(int, text.split(",")))


# For an H100: compiled without spilled registers (docs/notes/accelerators.md).
DEFAULTS = {
    "forward": Blocks(128, 64, 4, 3),
    "keys": Blocks(64, 64, 4, 2),
    "queries": Blocks(64, 64, 4, 2),
}


def forward(shape, blocks: Blocks, rate: float, dtype, interpret: bool = False):
    """(query, key, value, bias [B, K] float32, words [B, 2] uint32) -> output, largest and total [B, A, Q] float32."""
    batch, heads, length, size = shape

    def kernel(query_ref, key_ref, value_ref, bias_ref, words_ref, output_ref, largest_ref, total_ref):
        first_query, head = pl.program_id(0) * blocks.queries, pl.program_id(1)
        query = query_ref[...]

        def add_keys(number, carry):
            output, largest, total = carry
            keys = pl.ds(number * blocks.keys, blocks.keys)
            scores = pl.dot(query, key_ref[keys, :].T) + bias_ref[keys][None, :]
            new_largest = jnp.maximum(largest, scores.max(axis=1))
            powers, scale = jnp.exp(scores - new_largest[:, None]), jnp.exp(largest - new_largest)
            keep = _keep(words_ref, length, head, first_query, number * blocks.keys, powers.shape, rate)
            dropped = _drop(powers, keep, rate).astype(dtype)
            output = output * scale[:, None] + pl.dot(dropped, value_ref[keys, :])
            return output, new_largest, total * scale + powers.sum(axis=1)

        start = (
            jnp.zeros([blocks.queries, size], jnp.float32),
            jnp.full([blocks.queries], -jnp.inf, jnp.float32),
            jnp.zeros([blocks.queries], jnp.float32),
        )
        output, largest_ref[...], total_ref[...] = lax.fori_loop(0, _count(length, blocks.keys), add_keys, start)
        output_ref[...] = (output / total_ref[...][:, None]).astype(dtype)

    rows, numbers = _tile(blocks.queries, size), _tile(blocks.queries)
    every = _whole(length, size)
    of_query = jax.ShapeDtypeStruct((batch, heads, length), jnp.float32)
    return _call(
        kernel,
        grid=(_count(length, blocks.queries), heads, batch),
        in_specs=[rows, every, every, _of_example(length), _of_example(2)],
        out_specs=[rows, numbers, numbers],
        out_shape=[jax.ShapeDtypeStruct(shape, dtype), of_query, of_query],
        blocks=blocks,
        interpret=interpret,
        name="attention_forward",
    )


def keys_gradient(shape, blocks: Blocks, rate: float, dtype, interpret: bool = False):
    """(query, key, value, bias, words, upstream, largest, total, d_total [B, A, Q]) -> d_key, d_value."""
    _, heads, length, size = shape

    def kernel(query_ref, key_ref, value_ref, bias_ref, words_ref, upstream_ref, *others):
        largest_ref, total_ref, d_total_ref, d_key_ref, d_value_ref = others
        first_key, head = pl.program_id(0) * blocks.keys, pl.program_id(1)
        key, value, bias = key_ref[...], value_ref[...], bias_ref[...]

        def add_queries(number, carry):
            d_key, d_value = carry
            queries = pl.ds(number * blocks.queries, blocks.queries)
            query, upstream = query_ref[queries, :], upstream_ref[queries, :]
            scores = pl.dot(key, query.T) + bias[:, None]  # [keys, queries], so that no probabilities are transposed
            probs = jnp.exp(scores - largest_ref[queries][None, :]) / total_ref[queries][None, :]
            keep = _keep(
                words_ref, length, head, number * blocks.queries, first_key, probs.shape, rate, keys_first=True
            )
            dropped = _drop(probs, keep, rate)
            d_value += pl.dot(dropped.astype(dtype), upstream)
            d_dropped = pl.dot(value, upstream.T)
            d_scores = dropped * d_dropped - probs * d_total_ref[queries][None, :]
            return d_key + pl.dot(d_scores.astype(dtype), query), d_value

        zeros = jnp.zeros([blocks.keys, size], jnp.float32)
        d_key, d_value = lax.fori_loop(0, _count(length, blocks.queries), add_queries, (zeros, zeros))
        d_key_ref[...], d_value_ref[...] = d_key.astype(dtype), d_value.astype(dtype)

    rows, every, numbers = _tile(blocks.keys, size), _whole(length, size), _whole(length)
    bias = pl.BlockSpec((None, blocks.keys), lambda tile, head, example: (example, tile))
    result = jax.ShapeDtypeStruct(shape, dtype)
    return _call(
        kernel,
        grid=(_count(length, blocks.keys), heads, shape[0]),
        in_specs=[every, rows, rows, bias, _of_example(2), every, *[numbers] * 3],
        out_specs=[rows, rows],
        out_shape=[result, result],
        blocks=blocks,
        interpret=interpret,
        name="attention_keys_gradient",
    )


def queries_gradient(shape, blocks: Blocks, rate: float, dtype, interpret: bool = False):
    """The arguments of `keys_gradient` -> d_query."""
    _, heads, length, size = shape

    def kernel(query_ref, key_ref, value_ref, bias_ref, words_ref, upstream_ref, *others):
        largest_ref, total_ref, d_total_ref, d_query_ref = others
        first_query, head = pl.program_id(0) * blocks.queries, pl.program_id(1)
        query, upstream = query_ref[...], upstream_ref[...]
        largest, total, d_total = largest_ref[...], total_ref[...], d_total_ref[...]

        def add_keys(number, d_query):
            keys = pl.ds(number * blocks.keys, blocks.keys)
            key = key_ref[keys, :]
            scores = pl.dot(query, key.T) + bias_ref[keys][None, :]
            probs = jnp.exp(scores - largest[:, None]) / total[:, None]
            keep = _keep(words_ref, length, head, first_query, number * blocks.keys, probs.shape, rate)
            d_dropped = pl.dot(upstream, value_ref[keys, :].T)
            d_scores = _drop(probs, keep, rate) * d_dropped - probs * d_total[:, None]
            return d_query + pl.dot(d_scores.astype(dtype), key)

        zeros = jnp.zeros([blocks.queries, size], jnp.float32)
        d_query_ref[...] = lax.fori_loop(0, _count(length, blocks.keys), add_keys, zeros).astype(dtype)

    rows, every, numbers = _tile(blocks.queries, size), _whole(length, size), _tile(blocks.queries)
    return _call(
        kernel,
        grid=(_count(length, blocks.queries), heads, shape[0]),
        in_specs=[rows, every, every, _of_example(length), _of_example(2), rows, *[numbers] * 3],
        out_specs=rows,
        out_shape=jax.ShapeDtypeStruct(shape, dtype),
        blocks=blocks,
        interpret=interpret,
        name="attention_queries_gradient",
    )


KERNELS = {"forward": forward, "keys": keys_gradient, "queries": queries_gradient}


# --- parts of a kernel: one program has a block of queries or keys of one head of one example


def _tile(*sizes: int) -> pl.BlockSpec:
    rest = (0,) * (len(sizes) - 1)
    return pl.BlockSpec((None, None, *sizes), lambda tile, head, example: (example, head, tile, *rest))


def _whole(*sizes: int) -> pl.BlockSpec:
    return pl.BlockSpec((None, None, *sizes), lambda tile, head, example: (example, head, *[0] * len(sizes)))


def _of_example(size: int) -> pl.BlockSpec:
    return pl.BlockSpec((None, size), lambda tile, head, example: (example, 0))


def _call(kernel, *, blocks: Blocks, **options):
    parameters = triton.CompilerParams(num_warps=blocks.warps, num_stages=blocks.stages)
    return pl.pallas_call(kernel, compiler_params=parameters, **options)


def _count(length: int, block: int) -> int:
    """How many blocks there are. Raises: ValueError: they do not fill the length."""
    if length % block:
        raise ValueError(f"{length} tokens are no multiple of a block of {block}")
    return length // block


def _keep(words_ref, length: int, head, first_query, first_key, shape, rate: float, keys_first: bool = False):
    """The mask of a block, whose elements have the numbers of `DropoutKey.bits` for [heads, queries, keys]."""
    if not rate:
        return None
    query, key = (lax.broadcasted_iota(jnp.int32, shape, axis ^ keys_first) for axis in (0, 1))
    row = head * length + first_query + query
    word = (row * length + first_key + key).astype(jnp.uint32) + words_ref[0]
    for shift, factor in zip(SHIFTS, FACTORS, strict=False):
        word = (word ^ (word >> np.uint32(shift))) * np.uint32(factor)
        word = word ^ words_ref[1] if factor == FACTORS[0] else word
    word = word ^ (word >> np.uint32(SHIFTS[-1]))
    return word >= np.uint32(round(rate * 2**32))


def _drop(values, keep, rate: float):
    return values if keep is None else jnp.where(keep, values * (1.0 / (1.0 - rate)), 0.0)


# --- what TensorFlow gets


def arguments(shape, dtype, kernel: str) -> list[jax.ShapeDtypeStruct]:
    """The shapes and dtypes of a kernel's arguments."""
    batch, heads, length, _ = shape
    rows, of_query = jax.ShapeDtypeStruct(shape, dtype), jax.ShapeDtypeStruct((batch, heads, length), jnp.float32)
    bias, words = (jax.ShapeDtypeStruct((batch, size), kind) for size, kind in ((length, jnp.float32), (2, jnp.uint32)))
    return [rows, rows, rows, bias, words] + ([] if kernel == "forward" else [rows, *[of_query] * 3])


def backend_config(kernel: str, shape, blocks: Blocks, rate: float) -> str:
    """The configuration of the custom call that runs a kernel in bfloat16, as XLA reads it."""
    function = jax.jit(KERNELS[kernel](shape, blocks, rate, jnp.bfloat16))
    lowered = function.trace(*arguments(shape, jnp.bfloat16, kernel)).lower(lowering_platforms=("cuda",))
    (call,) = _custom_calls(lowered.compiler_ir("stablehlo").operation)
    return str(call.attributes["mhlo.backend_config"])


def _custom_calls(operation) -> list:
    inner = [each for region in operation.regions for block in region for each in block.operations]
    found = [each for child in inner for each in _custom_calls(child.operation)]
    is_call = operation.name == "stablehlo.custom_call" and operation.attributes["call_target_name"].value == _TARGET
    return [operation, *found] if is_call else found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flag = functools.partial(parser.add_argument, metavar="")
    flag("file", type=Path, metavar="KERNELS.json")
    flag("--shapes", nargs="+", required=True, help="examples,heads,tokens,numbers of a head; several")
    flag("--rate", type=float, default=0.1, help="share that dropout drops (default: 0.1)")
    for name, blocks in DEFAULTS.items():
        default = ",".join(map(str, blocks))
        flag(f"--{name}", type=Blocks.of_text, default=blocks, help=f"queries,keys,warps,stages (default: {default})")
    flags = parser.parse_args()
    entries = {}
    for text in flags.shapes:
        shape = tuple(map(int, text.split(",")))
        calls = {name: backend_config(name, shape, getattr(flags, name), flags.rate) for name in KERNELS}
        entries[entry_name(shape, flags.rate)] = calls
    flags.file.write_text(json.dumps(entries), encoding="utf-8")


if __name__ == "__main__":
    main()
