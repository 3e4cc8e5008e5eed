"""What XLA counts in a program, from the program's text as it is before any optimisation.

The rules are those of XLA's own cost analysis (`HloCostAnalysis`): two operations for each multiplication of a product
of matrices, one for each element of an elementwise operation, whatever its type, and for each element that a reduction
takes in. Its transcendental functions, which XLA lists apart, are listed apart here too. Where XLA has one sum for all
the rest, integers and running sums are kept apart, and so are conversions of a type to itself, which TensorFlow writes
around every sum and no program keeps. `benchmarks/xla_count.py` holds all of it against XLA's own analysis.
"""

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

# fmt: off
_TRANSCENDENTAL = frozenset(
    {
        "atan2", "cbrt", "cosine", "erf", "exponential", "exponential-minus-one", "log", "log-plus-one",
        "logistic", "power", "rsqrt", "sine", "sqrt", "tan", "tanh",
    }
)
_ELEMENTWISE = frozenset(
    {
        "abs", "add", "and", "bitcast-convert", "ceil", "clamp", "compare", "convert", "divide", "floor", "is-finite",
        "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "remainder", "round-nearest-afz",
        "round-nearest-even", "select", "shift-left", "shift-right-arithmetic", "shift-right-logical", "sign",
        "subtract", "xor",
    }
)
# What moves or names numbers, and computes none.
_FREE = frozenset(
    {
        "after-all", "bitcast", "broadcast", "concatenate", "constant", "copy", "dynamic-slice",
        "dynamic-update-slice", "gather", "get-tuple-element", "iota", "opt-barrier", "pad", "parameter",
        "partition-id", "replica-id", "reshape", "reverse", "set-dimension-size", "slice", "transpose", "tuple",
    }
)
# fmt: on
_INTEGER = re.compile(r"[su]\d+|pred")
_SHAPE = re.compile(r"([a-z]+[0-9]*[a-z0-9]*)\[([0-9,]*)\]")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (?P<result>\(?[^=]*?) (?P<opcode>[a-z][\w\-]*)\((?P<rest>.*)$")
_COMMENT = re.compile(r"/\*.*?\*/")  # of the places in a long tuple: /*index=5*/
_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) (?:\(.*\) -> .* )?\{$")
_CALLED = re.compile(r"(?:to_apply|body|condition|calls)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")


class XlaCount(NamedTuple):
    """Operations of one run of a program.

    Attributes:
        products: of matrix products.
        elementwise: on floating-point numbers, comparisons and conversions of them included.
        reductions: of sums and maxima.
        transcendental: exponentials, error functions, roots.
        integer: on integers and truth values: random bits and indices, for the most part.
        running_sums: as XLA writes them, each a sum over a window of all that comes before. No device computes so many.
        idle_conversions: of a type to itself.
        uncounted: the names of other instructions that compute something, for which there is no rule here; sorted.
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
        """What XLA's own analysis calls so: all but the transcendental functions."""
        floating = self.products + self.elementwise + self.reductions + self.running_sums
        return floating + self.integer + self.idle_conversions


_KINDS = tuple(name for name in XlaCount._fields if name != "uncounted")


@dataclass(frozen=True)
class _Computation:
    counts: Counter
    called: tuple[tuple[str, int], ...]  # by name, and how often
    uncounted: frozenset[str]


def count_program(text: str) -> XlaCount:
    """Counts a program given as HLO text, such as `experimental_get_compiler_ir(...)(stage="hlo")` gives.

    A loop counts once, as XLA does where it does not know the number of rounds; of branches all count.

    Raises: ValueError: if that is no such text.
    """
    computations, entry = _computations(text)
    if entry is None:
        raise ValueError(f"no HLO: the text begins with {text[:60]!r}")
    total: Counter = Counter()
    uncounted: set[str] = set()
    waiting = [(entry, 1)]
    while waiting:
        name, times = waiting.pop()
        computation = computations[name]
        for kind, count in computation.counts.items():
            total[kind] += times * count
        uncounted |= computation.uncounted
        waiting += [(called, times * calls) for called, calls in computation.called]
    return XlaCount(**{name: total[name] for name in _KINDS}, uncounted=tuple(sorted(uncounted)))


def _computations(text: str) -> tuple[dict[str, _Computation], str | None]:
    found: dict[str, _Computation] = {}
    entry, name, counts, called, uncounted = None, "", Counter(), [], set()
    for line in _COMMENT.sub("", text).splitlines():
        if start := _COMPUTATION.match(line):
            name, counts, called, uncounted = start["name"], Counter(), [], set()
            entry = name if start["entry"] else entry
        elif line.startswith("}"):
            found[name] = _Computation(counts, tuple(called), frozenset(uncounted))
        elif instruction := _INSTRUCTION.match(line):
            if not _count(instruction, counts, called):
                uncounted.add(instruction["opcode"])
        elif line.startswith(" "):
            raise ValueError(f"no HLO instruction: {line.strip()[:200]!r}")
    return found, entry


def _count(instruction: re.Match, counts: Counter, called: list[tuple[str, int]]) -> bool:
    """Returns: whether there is a rule for it."""
    opcode, rest = instruction["opcode"], instruction["rest"]
    type_name, size = _first_shape(instruction["result"])
    if opcode == "dot":
        counts["products"] += 2 * size * _contracted(rest)
    elif opcode in ("reduce", "reduce-window"):
        taken_in = _first_shape(rest)[1] if opcode == "reduce" else size * _window(rest)
        kind = "reductions" if opcode == "reduce" else "running_sums"
        counts["integer" if _INTEGER.fullmatch(type_name) else kind] += max(0, taken_in - size)
    elif opcode == "scatter":
        # What each number does to the table: an addition, or, where it overwrites, nothing.
        called += [(name, _last_shape(rest)[1]) for name in _CALLED.findall(rest)]
    elif opcode == "sort":
        type_name, size = _first_shape(rest)
        counts["integer" if _INTEGER.fullmatch(type_name) else "elementwise"] += size * (size - 1).bit_length()
    elif opcode == "rng-bit-generator":
        counts["transcendental"] += _numbers_in(instruction["result"])
    elif opcode in _TRANSCENDENTAL:
        counts["transcendental"] += size
    elif opcode in _ELEMENTWISE:
        operand_type = _first_shape(rest)[0]
        if opcode == "convert" and operand_type == type_name:
            counts["idle_conversions"] += size
            return True
        # A comparison gives truth values; what it compares says what it is.
        kind = operand_type if opcode == "compare" else type_name
        counts["integer" if _INTEGER.fullmatch(kind) else "elementwise"] += size
    elif opcode in ("call", "while", "conditional", "fusion"):
        branches = (name.strip(" %") for names in _BRANCHES.findall(rest) for name in names.split(","))
        called += [(name, 1) for name in (*_CALLED.findall(rest), *branches)]
    else:
        return opcode in _FREE
    return True


def _first_shape(text: str) -> tuple[str, int]:
    found = _SHAPE.search(text)
    return (found[1], math.prod(_numbers(found[2]))) if found else ("", 0)


def _numbers_in(text: str) -> int:
    """Of all shapes together, as those of a tuple."""
    return sum(math.prod(_numbers(found[2])) for found in _SHAPE.finditer(text))


def _last_shape(text: str) -> tuple[str, int]:
    """That of the last operand."""
    *_, last = _SHAPE.finditer(text.partition("), ")[0])
    return last[1], math.prod(_numbers(last[2]))


def _contracted(operands: str) -> int:
    """The product of the sizes that a product of matrices sums over."""
    dimensions = re.search(r"lhs_contracting_dims=\{([0-9,]*)\}", operands)
    sizes = _numbers(_SHAPE.search(operands)[2])
    return math.prod(sizes[index] for index in _numbers(dimensions[1])) if dimensions else 1


def _window(rest: str) -> int:
    """How many elements each window of a reduction holds."""
    return math.prod(int(size) for size in re.search(r"window=\{size=([0-9x]+)", rest)[1].split("x"))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]
