"""Memory traffic of an optimised TPU program, instruction by instruction.

    python -m benchmarks.tpu_compile.traffic STEP.hlo.gz [--rows=N]

Counts the bytes that each instruction moves between the chip's memory (HBM) and its core. What the compiler keeps in
the core's own memory (VMEM) causes no such traffic, but the compiler's own sum of bytes accessed includes it.
Instructions of the same source operation, in whatever layer, are one row.
"""

import gzip
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.tpu_compile.program import Instruction, Program, read_program
from electra_tf.cli.flags import flag_parser, run_command

# They rename or regroup values that other instructions have moved.
_MOVE_NOTHING = frozenset(
    ("parameter", "constant", "bitcast", "tuple", "get-tuple-element", "while", "conditional", "call", "after-all")
    + ("copy-done", "slice-done", "all-reduce-done", "async-done", "partition-id", "replica-id", "iota")
    + ("ConcatBitcast", "X64SplitLow", "X64SplitHigh", "X64Combine")  # targets of custom calls
)
_READ_A_PART = ("slice", "dynamic-slice", "gather")
_PRODUCTS = frozenset(("convolution", "dot"))
_REARRANGE = frozenset(
    ("copy", "transpose", "reshape", "slice", "concatenate", "pad", "convert", "bitcast", "fusion")
    + ("parameter", "constant", "tuple", "get-tuple-element")
)


@dataclass
class Traffic:
    """Bytes that a group of instructions moves in one step: from and to HBM, and with VMEM (`accessed`)."""

    read: int = 0
    written: int = 0
    accessed: int = 0
    cycles: int = 0
    count: int = 0

    def add(self, other: "Traffic", times: int) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value * times)

    @property
    def hbm(self) -> int:
        return self.read + self.written


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("program", type=Path, metavar="STEP.hlo.gz", help="as benchmarks.tpu_compile wrote it")
    parser.add_argument("--rows", type=int, default=30, metavar="N", help="of the table of operations")
    parser.add_argument("--by", default="hbm", choices=["hbm", "accessed", "cycles"], help="order of the rows")
    arguments = parser.parse_args(argv)
    return run_command(lambda: print(report(load(arguments.program), arguments.rows, arguments.by)))


def load(path: Path) -> Program:
    """Reads a program from a .hlo.gz file."""
    with gzip.open(path, "rt") as file:
        return read_program(file)


def report(program: Program, rows: int, by: str = "hbm") -> str:
    """Tables of a program: by source operation, and by kind of operation."""
    everything = total(program)
    heading = " ".join([*(f"{name:>7}" for name in ("GB", "read", "write", "+VMEM", "Mcycle")), " count", " operation"])
    lines = [
        f"one step moves {everything.hbm / 1e9:.2f} GB between HBM and core ({everything.accessed / 1e9:.2f} GB with "
        f"VMEM); the compiler estimates {everything.cycles / 1e6:.1f} Mcycles",
        heading,
    ]
    operations = _grouped(program, lambda instruction: f"{source(program, instruction)} [{instruction.opcode}]")
    lines += [_row(*item) for item in sorted(operations.items(), key=lambda item: -getattr(item[1], by))[:rows]]
    kinds = _grouped(program, lambda instruction: kind(program, instruction))
    lines += ["", heading, *(_row(*item) for item in sorted(kinds.items(), key=lambda item: -getattr(item[1], by)))]
    return "\n".join(lines)


def _grouped(program: Program, key: Callable[[Instruction], str]) -> dict[str, Traffic]:
    groups: dict[str, Traffic] = defaultdict(Traffic)
    for instruction, times in executed(program):
        if instruction.opcode not in _MOVE_NOTHING:
            groups[key(instruction)].add(traffic_of(program, instruction), times)
    return groups


def _row(name: str, moved: Traffic) -> str:
    columns = " ".join(f"{size / 1e9:7.3f}" for size in (moved.hbm, moved.read, moved.written, moved.accessed))
    return f"{columns} {moved.cycles / 1e6:7.2f} {moved.count:6d}  {name}"


def total(program: Program) -> Traffic:
    """The traffic of one step."""
    everything = Traffic()
    for instruction, times in executed(program):
        everything.add(traffic_of(program, instruction), times)
    return everything


def count(program: Program, opcode: str) -> int:
    """How often an operation runs in a step, also as the start of an asynchronous one."""
    return sum(times for instruction, times in executed(program) if instruction.opcode in (opcode, f"{opcode}-start"))


def executed(program: Program) -> Iterator[tuple[Instruction, int]]:
    """Each instruction that runs by itself (a fusion is one), and how often in a step."""
    waiting = [(program.entry, 1)]
    while waiting:
        name, times = waiting.pop()
        for instruction in program.computations[name]:
            yield instruction, times
            if instruction.opcode in ("while", "call", "conditional"):
                waiting += [(inner, times * instruction.trips) for inner in instruction.calls]


def traffic_of(program: Program, instruction: Instruction) -> Traffic:
    """The traffic of one run of an instruction."""
    if instruction.opcode in _MOVE_NOTHING:
        return Traffic()
    reads, writes = list(_reads(program, instruction)), list(_writes(program, instruction))
    return Traffic(
        read=sum(size for in_hbm, size in reads if in_hbm),
        written=sum(size for in_hbm, size in writes if in_hbm),
        accessed=sum(size for _, size in reads + writes),
        cycles=instruction.cycles,
        count=1,
    )


def _reads(program: Program, instruction: Instruction) -> Iterator[tuple[bool, int]]:
    """(whether from HBM, bytes) of each array that an instruction reads."""
    for index, name in enumerate(instruction.operands):
        for shape in program.shapes_of(name):
            yield shape.in_hbm, _bytes_read(program, instruction, index, shape.bytes)


def _bytes_read(program: Program, instruction: Instruction, index: int, whole: int) -> int:
    if instruction.opcode in (*_READ_A_PART, "slice-start") and index == 0:
        return min(whole, min(shape.bytes for shape in instruction.shapes if shape.bytes > 4))
    if instruction.opcode == "dynamic-update-slice" and index == 0:
        return 0
    if instruction.opcode != "fusion":
        return whole
    # An operand that the fusion only slices is read only in these slices.
    users = program.users_of_parameter(instruction.calls[0], index)
    if users and all(user.opcode in (*_READ_A_PART, "dynamic-update-slice") for user, _ in users):
        parts = [
            0 if user.opcode == "dynamic-update-slice" and place == 0 else user.shapes[0].bytes for user, place in users
        ]
        return min(whole, sum(parts))
    return whole


def _writes(program: Program, instruction: Instruction) -> Iterator[tuple[bool, int]]:
    """(whether to HBM, bytes) of each array that an instruction writes."""
    shapes = instruction.shapes
    if instruction.opcode in ("copy-start", "all-reduce-start"):  # (destination, source, context)
        shapes = shapes[:1]
    if instruction.opcode == "slice-start":  # (source, destination, context)
        shapes = shapes[1:2]
    roots = program.roots(instruction.calls[0]) if instruction.opcode == "fusion" else [instruction]
    for shape, root in zip(shapes, roots if len(roots) == len(shapes) else [instruction] * len(shapes), strict=True):
        size = shape.bytes
        if root.opcode == "dynamic-update-slice":
            update = program.find(root.operands[1])
            size = min(size, update.shapes[0].bytes if update else size)
        yield shape.in_hbm, size


def kind(program: Program, instruction: Instruction) -> str:
    """The kind of an operation: matrix product, sum over cores, copy between memories or layouts, or loop."""
    if instruction.opcode.startswith("all-reduce"):
        return "sum over cores"
    if instruction.opcode.endswith("-start"):
        return "copy between HBM and VMEM ahead of use"
    opcodes = {inner.opcode for inner in _inside(program, instruction)}
    if opcodes & _PRODUCTS:
        return "matrix product, with what is computed from its output"
    if opcodes <= _REARRANGE:
        return "copy into another layout, slice or concatenation"
    return "loop: sums, exponentials, random bits, updates"


def _inside(program: Program, instruction: Instruction) -> Iterator[Instruction]:
    """An instruction and, if it is a fusion, everything in it."""
    yield instruction
    if instruction.opcode == "fusion":
        for inner in program.computations[instruction.calls[0]]:
            yield from _inside(program, inner)


def source(program: Program, instruction: Instruction) -> str:
    """The source operation's name without layer numbers; of a fusion without one, that of its largest part."""
    named = [inner for inner in _inside(program, instruction) if inner.op_name and inner.shapes]
    if instruction.op_name:
        name = instruction.op_name
    else:
        name = max(named, key=lambda inner: inner.shapes[0].bytes).op_name if named else instruction.opcode
    return re.sub(r"_\d+(?=/|$)", "_*", name)


if __name__ == "__main__":
    sys.exit(main())
