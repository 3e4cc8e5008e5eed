"""From a `tf.function` to portable StableHLO, and what its arguments and results are."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tensorflow as tf
from tensorflow.compiler.mlir.stablehlo import stablehlo

# What TensorFlow's exporter writes that is no StableHLO, and how StableHLO says it: the mark of a returned variable is
# an identity, which compilers remove; the error function is a custom call, which XLA takes back.
_TENSORS = r"tensor<[^>]*>"
_COPY = (rf"mhlo\.copy (%\w+) : ({_TENSORS})", r"stablehlo.reshape \1 : (\2) -> \2")
_ERF = (
    rf"mhlo\.erf (%\w+) : ({_TENSORS})",
    r"stablehlo.custom_call @mhlo.erf(\1) {mhlo.attributes = {}, mhlo.version = 1 : i64} : (\2) -> \2",
)
_ALIAS = re.compile(r"parameter_number = (\d+) : i64\}, output_index = array<i64: (\d+)>")
_TYPES = {"float32": "f32", "int32": "i32", "int64": "i64", "uint32": "ui32", "bool": "i1"}


@dataclass(frozen=True)
class Lowered:
    """A program for XLA.

    Attributes:
        program: a portable artifact of StableHLO, which later versions of XLA read too.
        variables: whose values follow the function's own arguments, in this order.
        outputs: for each variable the index of the result that is its new value; None if the function only reads it.
            The function's own results come first, in the order of `tf.nest.flatten`.
    """

    program: bytes
    variables: tuple[tf.Variable, ...]
    outputs: tuple[int | None, ...]


def lower(function: Callable, specs: Sequence[tf.TensorSpec], variables: Sequence[tf.Variable] = ()) -> Lowered:
    """Lowers a `tf.function` of plain tensors that compiles under XLA.

    Args:
        specs: of its arguments, fully defined.        variables: all that it may use.
    """
    captured = function.get_concrete_function(*specs).captured_inputs
    by_handle = {id(variable.handle): variable for variable in variables}
    used = tuple(by_handle[id(handle)] for handle in captured)
    text = function.experimental_get_compiler_ir(*specs)(stage="stablehlo")
    _require_arguments(text, [*specs, *used])
    outputs = {int(parameter): int(output) for parameter, output in _ALIAS.findall(text)}
    artifact = stablehlo.serialize_portable_artifact_str(in_stablehlo_alone(text), stablehlo.get_current_version())
    return Lowered(artifact, used, tuple(outputs.get(len(specs) + index) for index in range(len(used))))


def in_stablehlo_alone(text: str) -> str:
    """The text of a program of TensorFlow's exporter without operations of the dialect MHLO."""
    for pattern, replacement in (_COPY, _ERF):
        text = re.sub(pattern, replacement, text)
    left = sorted(set(re.findall(r"= \"?(mhlo\.\w+|chlo\.\w+)", text)))
    assert not left, f"StableHLO has no {', '.join(left)}"
    return text


def _require_arguments(text: str, expected: Sequence[tf.TensorSpec | tf.Variable]) -> None:
    """The program takes what its manifest will say, in that order."""
    (signature,) = re.findall(r"func\.func @main\((.*?)\) -> ", text)
    wanted = ["x".join([*map(str, each.shape), _TYPES[each.dtype.name]]) for each in expected]
    assert re.findall(r"%arg\d+: tensor<([^>]*)>", signature) == wanted, "arguments in another order"
