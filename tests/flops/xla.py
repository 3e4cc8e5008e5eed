"""Counts the operations of an XLA program by the rules of `HloCostAnalysis`, which TensorFlow does not expose.

It counts two operations for each multiplication of a matrix product, and one for each element of an elementwise
operation of any type and for each input of a reduction. XLA adds other kinds of operations to these; here they are
separate. The program is the one before XLA's optimisations.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Sequence

from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

# fmt: off
_TRANSCENDENTAL = {
    "atan2", "cbrt", "cosine", "erf", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic",
    "power", "rng-bit-generator", "rsqrt", "sine", "sqrt", "tan", "tanh",
}
_ELEMENTWISE = {
    "abs", "add", "and", "bitcast-convert", "ceil", "clamp", "compare", "convert", "divide", "floor", "is-finite",
    "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "remainder", "round-nearest-afz",
    "round-nearest-even", "select", "shift-left", "shift-right-arithmetic", "shift-right-logical", "sign", "sort",
    "subtract", "xor",
}
_FREE = {
    "after-all", "bitcast", "broadcast", "concatenate", "constant", "copy", "dynamic-slice", "dynamic-update-slice",
    "gather", "get-tuple-element", "iota", "opt-barrier", "pad", "parameter", "partition-id", "replica-id", "reshape",
    "reverse", "set-dimension-size", "slice", "transpose", "tuple",
}
# fmt: on
_CALLS = {"call", "conditional", "fusion", "scatter", "while"}
_KIND_OF = {
    **dict.fromkeys(_TRANSCENDENTAL, "transcendental"),
    **dict.fromkeys(_ELEMENTWISE, "elementwise"),
    "dot": "products",
    "reduce": "reductions",
    "reduce-window": "running_sums",
}


def count_program(program: bytes) -> Counter:
    """Counts an `HloModuleProto`, as `experimental_get_compiler_ir(...)(stage="hlo_serialized")` returns it.

    A loop counts once, as in XLA where the number of iterations is unknown; all branches of a conditional count.

    Returns: operations by kind:
        `products`, `reductions` (sums and maxima), `transcendental` (exponentials, roots, random bits, ...);
        `elementwise`: on floating-point numbers, comparisons and conversions included;
        `integer`: on integers and truth values, such as indices;
        `running_sums`: over a window, as XLA writes a cumulative sum; devices compute fewer;
        `idle_conversions`: of a type to itself; TensorFlow writes them around every sum, and XLA removes them;
        and the opcode of each instruction without a rule here.
    """
    module = hlo_pb2.HloModuleProto.FromString(program)
    computations = {computation.id: computation for computation in module.computations}

    @functools.cache
    def total(computation_id: int) -> Counter:
        counts: Counter = Counter()
        instructions = {each.id: each for each in computations[computation_id].instructions}
        for each in instructions.values():
            operands = [_array(instructions[operand].shape) for operand in each.operand_ids]
            if each.opcode in _CALLS:
                # A scatter calls its computation for each number that it writes.
                times = math.prod(operands[-1].dimensions) if each.opcode == "scatter" else 1
                for called in each.called_computation_ids:
                    counts.update({kind: times * count for kind, count in total(called).items()})
            elif each.opcode not in _FREE:
                counts[_kind(each, operands)] += _operations(each, operands)
        return counts

    return total(module.entry_computation_id)


def _kind(instruction: hlo_pb2.HloInstructionProto, operands: Sequence[xla_data_pb2.ShapeProto]) -> str:
    """The kind of an instruction's operations, or its opcode if there is no rule for it."""
    kind, result = _KIND_OF.get(instruction.opcode, instruction.opcode), _array(instruction.shape)
    if kind not in ("elementwise", "reductions", "running_sums"):
        return kind
    if instruction.opcode == "convert" and operands[0].element_type == result.element_type:
        return "idle_conversions"
    # The result of a comparison is a truth value, whatever is compared.
    counted = operands[0] if instruction.opcode == "compare" else result
    is_integer = re.fullmatch(r"[SU]\d+|PRED", xla_data_pb2.PrimitiveType.Name(counted.element_type))
    return "integer" if is_integer else kind


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
