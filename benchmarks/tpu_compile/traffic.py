"""Where the bytes go: the optimised program of a TPU, read instruction by instruction.

    python -m benchmarks.tpu_compile_traffic STEP.hlo.gz [--rows=N]

Counts what each instruction moves between the chip's memory (HBM) and its core. What the compiler keeps in the core's
own memory (VMEM) costs no such traffic, though the compiler's own sum of bytes accessed counts it too. Instructions
that stem from the same source operation, in whatever layer, are one row.
"""

import gzip
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.tpu_compile_program import Instruction, Program, read_program
from electra_tf.cli.flags import flag_parser, run_command

# They name or regroup values that others have moved.
_MOVE_NOTHING = frozenset(
    ("parameter", "constant", "bitcast", "tuple", "get-tuple-element", "while", "conditional", "call", "after-all")
    + ("copy-done", "slice-done", "all-reduce-done", "async-done", "partition-id", "replica-id", "iota")
    + ("ConcatBitcast", "X64SplitLow", "X64SplitHigh", "X64Combine")  # targets of custom calls
)
_READ_A_PART = ("slice", "dynamic-slice", "gather")
_PRODUCTS = frozenset(("convolution", "dot"))
_REARRANGE = frozenset(("copy", "transpose", "reshape", "slice", "concatenate", "pad", "convert", "bitcast", "fusion"))
_NAME_VALUES = frozenset(("parameter", "constant", "tuple", "get-tuple-element"))


@dataclass
class Traffic:
    """What a group of instructions moves in one step: bytes to and from HBM, and those of VMEM with them."""

    read: int = 0
    written: int = 0
    accessed: int = 0
    cycles: int = 0
    count: int = 0
    shapes: Counter = field(default_factory=Counter)

    def add(self, other: "Traffic", times: int) -> None:
        self.read += other.read * times
        self.written += other.written * times
        self.accessed += other.accessed * times
        self.cycles += other.cycles * times
        self.count += other.count * times
        self.shapes.update(other.shapes)

    @property
    def hbm(self) -> int:
        return self.read + self.written


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("program", metavar="STEP.hlo.gz", help="as benchmarks.tpu_compile wrote it")
    parser.add_argument("--rows", type=int, default=30, metavar="N", help="of each table")
    parser.add_argument("--by", default="hbm", choices=["hbm", "accessed"], help="bytes of HBM, or of VMEM too")
    arguments = parser.parse_args(argv)
    return run_command(lambda: print(report(Path(arguments.program), arguments.rows, arguments.by)))


def report(path: Path, rows: int, by: str = "hbm") -> str:
    """The tables of a program as text: by operation that moves, by tensor that is moved, and by kind of operation."""
    with gzip.open(path, "rt") as file:
        program = read_program(file)
    return "\n".join([*_by_operation(program, rows, by), "", *_by_tensor(program, rows), "", *_by_kind(program)])


def total(program: Program) -> Traffic:
    """What one step moves."""
    everything = Traffic()
    for instruction, times in executed(program):
        everything.add(traffic_of(program, instruction), times)
    return everything


def count(program: Program, opcode: str) -> int:
    """How often an operation runs in a step, in whole or as the start of an asynchronous one."""
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
    """What one run of an instruction moves."""
    if instruction.opcode in _MOVE_NOTHING:
        return Traffic()
    moved = Traffic(count=1, cycles=instruction.cycles)
    reads = list(_reads(program, instruction))
    writes = list(_writes(program, instruction))
    moved.read = sum(size for in_hbm, size, _ in reads if in_hbm)
    moved.written = sum(size for in_hbm, size, _ in writes if in_hbm)
    moved.accessed = sum(size for _, size, _ in reads + writes)
    largest = max(reads + writes, key=lambda entry: (entry[0], entry[1]), default=None)
    if largest:
        moved.shapes[largest[2]] = moved.hbm
    return moved


def _reads(program: Program, instruction: Instruction) -> Iterator[tuple[bool, int, str]]:
    """(whether from HBM, bytes, type) of what an instruction reads."""
    for index, name in enumerate(instruction.operands):
        for shape in program.shapes_of(name):
            size = _bytes_read(program, instruction, index, shape.bytes)
            if size:
                yield shape.in_hbm, size, shape.text


def _bytes_read(program: Program, instruction: Instruction, index: int, whole: int) -> int:
    if instruction.opcode in (*_READ_A_PART, "slice-start") and index == 0:
        return min(whole, min(shape.bytes for shape in instruction.shapes if shape.bytes > 4))
    if instruction.opcode == "dynamic-update-slice" and index == 0:
        return 0
    if instruction.opcode != "fusion":
        return whole
    # Of a fusion's operand that is only sliced inside, no more is read than the slices.
    users = program.users_of_parameter(instruction.calls[0], index)
    if users and all(user.opcode in (*_READ_A_PART, "dynamic-update-slice") for user, _ in users):
        parts = [
            0 if user.opcode == "dynamic-update-slice" and place == 0 else user.shapes[0].bytes for user, place in users
        ]
        return min(whole, sum(parts))
    return whole


def _writes(program: Program, instruction: Instruction) -> Iterator[tuple[bool, int, str]]:
    """(whether to HBM, bytes, type) of what an instruction writes."""
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
        yield shape.in_hbm, size, shape.text


def _by_operation(program: Program, rows: int, by: str) -> Iterator[str]:
    groups: dict[tuple[str, str], Traffic] = defaultdict(Traffic)
    everything = Traffic()
    for instruction, times in executed(program):
        moved = traffic_of(program, instruction)
        groups[_source(program, instruction), instruction.opcode].add(moved, times)
        everything.add(moved, times)
    gigabytes = f"{everything.hbm / 1e9:.2f} GB between HBM and core ({everything.accessed / 1e9:.2f} GB with VMEM)"
    yield f"one step moves {gigabytes}"
    yield _heading("operation [instruction] largest tensor")
    for (source, opcode), moved in sorted(groups.items(), key=lambda item: -getattr(item[1], by))[:rows]:
        yield _row(moved, f"{source} [{opcode}] {moved.shapes.most_common(1)[0][0] if moved.shapes else ''}")
    yield f"by the compiler's estimate {everything.cycles / 1e6:.1f} Mcycles; the operations of most:"
    for (source, opcode), moved in sorted(groups.items(), key=lambda item: -item[1].cycles)[: rows // 2]:
        yield _row(moved, f"{source} [{opcode}] {moved.shapes.most_common(1)[0][0] if moved.shapes else ''}")


def _heading(text: str) -> str:
    return " ".join([*(f"{name:>7}" for name in ("GB", "read", "write", "+VMEM", "Mcycle")), " count", f" {text}"])


def _row(moved: Traffic, text: str) -> str:
    sizes = (moved.hbm, moved.read, moved.written, moved.accessed)
    columns = " ".join(f"{size / 1e9:7.3f}" for size in sizes)
    return f"{columns} {moved.cycles / 1e6:7.2f} {moved.count:6d}  {text}"


def _by_tensor(program: Program, rows: int) -> Iterator[str]:
    """Tables by the tensor: what made it, and how often it crosses."""
    groups: dict[tuple[str, str], Traffic] = defaultdict(Traffic)
    for instruction, times in executed(program):
        if instruction.opcode in _MOVE_NOTHING:
            continue
        for index, name in enumerate(instruction.operands):
            maker = program.maker(name)
            for shape in program.shapes_of(name):
                size = _bytes_read(program, instruction, index, shape.bytes)
                if shape.in_hbm and maker:
                    groups[_source(program, maker), shape.text].add(Traffic(read=size, count=1, accessed=size), times)
        for in_hbm, size, text in _writes(program, instruction):
            if in_hbm:
                groups[_source(program, instruction), text].add(Traffic(written=size, count=1, accessed=size), times)
    yield f"{'GB':>7} {'read':>7} {'write':>7} {'':>7} {'':>7} {'moves':>6}  tensor, by the operation that made it"
    for (source, shape), moved in sorted(groups.items(), key=lambda item: -item[1].hbm)[:rows]:
        yield _row(moved, f"{shape} of {source}")


def _by_kind(program: Program) -> Iterator[str]:
    groups: dict[str, Traffic] = defaultdict(Traffic)
    for instruction, times in executed(program):
        if instruction.opcode not in _MOVE_NOTHING:
            groups[kind(program, instruction)].add(traffic_of(program, instruction), times)
    yield _heading("kind of operation")
    for name, moved in sorted(groups.items(), key=lambda item: -item[1].accessed):
        yield _row(moved, name)


def kind(program: Program, instruction: Instruction) -> str:
    """What an instruction is for: to multiply matrices, to have a value elsewhere, to have it otherwise, or else."""
    if instruction.opcode.startswith("all-reduce"):
        return "sum over cores"
    if instruction.opcode.endswith("-start"):
        return "fetched to VMEM ahead of its use, or put away"
    opcodes = {inner.opcode for inner in _inside(program, instruction)}
    if opcodes & _PRODUCTS:
        return "product, with what is computed from its output"
    if opcodes <= _REARRANGE | _NAME_VALUES:
        return "copy into another layout, cut or joined"
    return "loop: sums, exponentials, random bits, updates"


def _inside(program: Program, instruction: Instruction) -> Iterator[Instruction]:
    """An instruction and, if it is a fusion, all that is in it."""
    yield instruction
    if instruction.opcode == "fusion":
        for inner in program.computations[instruction.calls[0]]:
            yield from _inside(program, inner)


def _source(program: Program, instruction: Instruction) -> str:
    """The source operation's name, layers taken together; a fusion without one has that of its largest part."""
    name = instruction.op_name or program.name_inside(instruction) or instruction.opcode
    return re.sub(r"_\d+(?=/|$)", "_*", name)


if __name__ == "__main__":
    sys.exit(main())
