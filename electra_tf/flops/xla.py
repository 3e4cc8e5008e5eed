"""XLA's cost analysis of a program, by the rules of its `HloCostAnalysis`: TensorFlow has no call for it.

Two operations for each multiplication of a matrix product; one for each element of an elementwise operation, whatever
its type, and for each element that a reduction takes in. Transcendental functions are listed apart, as XLA lists them.
What XLA adds up further is kept apart here: integers, running sums, and conversions of a type to itself, which
TensorFlow writes around every sum and XLA removes. The program is the one before any optimisation.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

# fmt: off
_TRANSCENDENTAL = {
    "atan2", "cbrt", "cosine", "erf", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic",
    "power", "rsqrt", "sine", "sqrt", "tan", "tanh",
}
_ELEMENTWISE = {
    "abs", "add", "and", "bitcast-convert", "ceil", "clamp", "compare", "convert", "divide", "floor", "is-finite",
    "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "remainder", "round-nearest-afz",
    "round-nearest-even", "select", "shift-left", "shift-right-arithmetic", "shift-right-logical", "sign",
    "subtract", "xor",
}
_FREE = {
    "after-all", "bitcast", "broadcast", "concatenate", "constant", "copy", "dynamic-slice",
    "dynamic-update-slice", "gather", "get-tuple-element", "iota", "opt-barrier", "pad", "parameter",
    "partition-id", "replica-id", "reshape", "reverse", "set-dimension-size", "slice", "transpose", "tuple",
}
_CALLS = {"call", "conditional", "fusion", "while"}
# fmt: on


class XlaCount(NamedTuple):
    """Operations of one execution of a program.

    Attributes:
        products: of matrix products.
        elementwise: on floating-point numbers, comparisons and conversions of them included.
        reductions: of sums and maxima.
        transcendental: exponentials, error functions, roots, random bits.
        integer: on integers and truth values, such as indices.
        running_sums: sums over a window of all elements before, as XLA writes a cumulative sum; devices compute fewer.
        idle_conversions: of a type to itself.
        uncounted: the other opcodes, for which there is no rule here; sorted.
    """

    products: int
    elementwise: int
    reductions: int
    transcendental: int
    integer: int
    running_sums: int = 0
    idle_conversions: int = 0
    uncounted: tuple[str, ...] = ()

    @property
    def flops(self) -> int:
        """XLA's own figure of this name: everything but the transcendental functions."""
        floating = self.products + self.elementwise + self.reductions + self.running_sums
        return floating + self.integer + self.idle_conversions


def count_program(program: bytes) -> XlaCount:
    """Counts an `HloModuleProto`, as `experimental_get_compiler_ir(...)(stage="hlo_serialized")` gives it.

    A loop counts once, as in XLA where the number of iterations is unknown; all branches of a conditional count.

    Raises: ValueError: if it is no such program.
    """
    try:
        module = hlo_pb2.HloModuleProto.FromString(program)
    except DecodeError:
        raise ValueError(f"not a serialized HloModuleProto: it begins with {program[:60]!r}") from None
    computations = {computation.id: computation for computation in module.computations}
    uncounted = set()

    @functools.cache
    def total(computation_id: int) -> Counter:
        counts: Counter = Counter()
        instructions = {each.id: each for each in computations[computation_id].instructions}
        for each in instructions.values():
            operands = [_array(instructions[operand].shape) for operand in each.operand_ids]
            if each.opcode in _CALLS or each.opcode == "scatter":
                # A scatter calls its computation for each number that it writes.
                times = math.prod(operands[-1].dimensions) if each.opcode == "scatter" else 1
                for called in each.called_computation_ids:
                    counts.update({kind: times * count for kind, count in total(called).items()})
            elif kind := _kind(each, operands):
                counts[kind] += _operations(each, operands)
            elif each.opcode not in _FREE:
                uncounted.add(each.opcode)
        return counts

    counts = total(module.entry_computation_id)
    return XlaCount(**{kind: counts[kind] for kind in XlaCount._fields[:-1]}, uncounted=tuple(sorted(uncounted)))


def _kind(instruction: hlo_pb2.HloInstructionProto, operands: Sequence[xla_data_pb2.ShapeProto]) -> str | None:
    """The field of `XlaCount` that an instruction counts in; None if no rule here counts it."""
    opcode, kinds = instruction.opcode, {"dot": "products", "rng-bit-generator": "transcendental"}
    if opcode in kinds:
        return kinds[opcode]
    if opcode in _TRANSCENDENTAL:
        return "transcendental"
    result = _array(instruction.shape)
    if opcode == "convert" and operands[0].element_type == result.element_type:
        return "idle_conversions"
    kinds = {"reduce": "reductions", "reduce-window": "running_sums", "sort": "elementwise"}
    kinds |= dict.fromkeys(_ELEMENTWISE, "elementwise")
    # The result of a comparison has no number type.
    counted = operands[0] if opcode == "compare" else result
    is_integer = re.fullmatch(r"[SU]\d+|PRED", xla_data_pb2.PrimitiveType.Name(counted.element_type))
    return "integer" if is_integer and opcode in kinds else kinds.get(opcode)


def _operations(instruction: hlo_pb2.HloInstructionProto, operands: Sequence[xla_data_pb2.ShapeProto]) -> int:
    opcode, size = instruction.opcode, math.prod(_array(instruction.shape).dimensions)
    if opcode == "dot":
        summed = instruction.dot_dimension_numbers.lhs_contracting_dimensions
        return 2 * size * math.prod(operands[0].dimensions[index] for index in summed)
    if opcode == "reduce":
        return max(0, math.prod(operands[0].dimensions) - size)
    if opcode == "reduce-window":
        return size * (math.prod(dimension.size for dimension in instruction.window.dimensions) - 1)
    if opcode == "sort":
        return size * (size - 1).bit_length()
    if opcode == "rng-bit-generator":  # the generator's new state, and the random bits
        return sum(math.prod(part.dimensions) for part in instruction.shape.tuple_shapes or [instruction.shape])
    return size


def _array(shape: xla_data_pb2.ShapeProto) -> xla_data_pb2.ShapeProto:
    """The shape of an array, or of the first array of a tuple."""
    return _array(shape.tuple_shapes[0]) if shape.tuple_shapes else shape
