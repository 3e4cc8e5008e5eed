"""The text of an XLA program, as `HloModule.to_string` prints it after the TPU's passes, as objects."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_BITS = {"pred": 8, "bf16": 16, "f16": 16, "token": 0, "opaque": 0}
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\](?:\{([\d,]*)((?::[^{}]*)?)\})?")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%(\S+) = (.*?) ([a-z][\w-]*)\((.*)")
_HEADER = re.compile(r"(ENTRY )?%(\S+) \(.*\{\s*$")
_CALLS = re.compile(r"(?:calls|body|condition|to_apply|branch_computations)=\{?(%[\w.-]+(?:, %[\w.-]+)*)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_OP_NAME = re.compile(r'op_name="([^"]*)"')


@dataclass(frozen=True)
class Shape:
    """One array of an instruction's type.

    Attributes:
        text: element type and dimensions, such as `bf16[8,128]`.
        bytes: what it takes with the padding of its tiles.
        in_hbm: whether it lies in the chip's memory; else in the core's own.
    """

    text: str
    bytes: int
    in_hbm: bool


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        opcode: of a custom call its target.        trips: how often a loop's body runs.
        cycles: the compiler's estimate for one run.        index: of a parameter, or of a tuple's element.
    """

    name: str
    opcode: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    calls: tuple[str, ...]
    op_name: str
    cycles: int
    trips: int
    index: int
    is_root: bool


@dataclass
class Program:
    """Computations by name; `entry` is the one that runs."""

    entry: str = ""
    computations: dict[str, list[Instruction]] = field(default_factory=dict)
    _by_name: dict[str, Instruction] = field(default_factory=dict)
    _users: dict[str, dict[int, list]] = field(default_factory=dict)

    def add(self, computation: str, instruction: Instruction) -> None:
        self.computations[computation].append(instruction)
        self._by_name[instruction.name] = instruction

    def find(self, name: str) -> Instruction | None:
        return self._by_name.get(name)

    def shapes_of(self, name: str) -> tuple[Shape, ...]:
        instruction = self.find(name)
        return instruction.shapes if instruction else ()

    def maker(self, name: str) -> Instruction | None:
        """The instruction whose work a value is, behind names, views and copies."""
        instruction = self.find(name)
        while instruction and instruction.opcode in (
            "bitcast",
            "get-tuple-element",
            "copy-done",
            "copy-start",
            "ConcatBitcast",
        ):
            instruction = self.find(instruction.operands[0])
        return instruction

    def roots(self, computation: str) -> list[Instruction]:
        """The instructions that give the outputs of a computation, one for each."""
        root = next(instruction for instruction in self.computations[computation] if instruction.is_root)
        roots = [self._by_name[name] for name in root.operands] if root.opcode == "tuple" else [root]
        return [self._behind_bitcasts(instruction) for instruction in roots]

    def users_of_parameter(self, computation: str, index: int) -> list[tuple[Instruction, int]]:
        """What uses a computation's parameter, views apart, and as which of its operands."""
        if computation not in self._users:
            self._users[computation] = self._find_users(computation)
        return self._users[computation].get(index, [])

    def name_inside(self, instruction: Instruction) -> str:
        """A source operation's name from within a fusion, or from what an instruction reads, where it has none."""
        inside = self.computations.get(instruction.calls[0], []) if instruction.calls else []
        named = [inner for inner in inside if inner.op_name and inner.shapes]
        if named:
            return max(named, key=lambda inner: inner.shapes[0].bytes).op_name
        maker = self.maker(instruction.operands[0]) if instruction.operands else None
        return f"of {maker.op_name or maker.opcode}" if maker else ""

    def _behind_bitcasts(self, instruction: Instruction) -> Instruction:
        while instruction.opcode == "bitcast":
            instruction = self._by_name[instruction.operands[0]]
        return instruction

    def _find_users(self, computation: str) -> dict[int, list[tuple[Instruction, int]]]:
        parameter_of, users = {}, {}
        for instruction in self.computations[computation]:
            if instruction.opcode == "parameter":
                parameter_of[instruction.name] = instruction.index
            for place, name in enumerate(instruction.operands):
                if name in parameter_of and instruction.opcode == "bitcast":
                    parameter_of[instruction.name] = parameter_of[name]
                elif name in parameter_of:
                    users.setdefault(parameter_of[name], []).append((instruction, place))
        return users


def read_program(lines: Iterable[str]) -> Program:
    """Reads a program's text."""
    program, computation = Program(), ""
    for line in lines:
        if header := _HEADER.match(line):
            computation = header[2]
            program.computations[computation] = []
            program.entry = computation if header[1] else program.entry
        elif computation and (match := _INSTRUCTION.match(line)):
            program.add(computation, _instruction(match, line))
    return program


def read_shapes(text: str) -> tuple[Shape, ...]:
    """The arrays of a type such as `(f32[8,128]{1,0:T(8,128)S(1)}, u32[])`."""
    return tuple(_shape(*match) for match in _SHAPE.findall(text))


def _instruction(match: re.Match, line: str) -> Instruction:
    name, kind, opcode, rest = match.groups()
    inside = rest.split(")", 1)[0]
    name_of_source, index = _OP_NAME.search(rest), re.search(r"index=(\d+)", rest.split(")", 1)[-1])
    calls = [call.lstrip("%") for group in _CALLS.findall(rest) for call in group.split(", ")]
    cycles, trips, target = _CYCLES.search(rest), _TRIPS.search(rest), _TARGET.search(rest)
    return Instruction(
        name=name,
        opcode=target[1] if target else opcode,
        shapes=read_shapes(kind),
        operands=tuple(re.findall(r"%([\w.-]+)", inside)),
        calls=tuple(calls),
        op_name=name_of_source[1] if name_of_source else "",
        cycles=int(cycles[1]) if cycles else 0,
        trips=int(trips[1]) if trips else 1,
        index=int(inside) if opcode == "parameter" else int(index[1]) if index else 0,
        is_root=line.lstrip().startswith("ROOT"),
    )


def _shape(kind: str, dimensions: str, order: str, layout: str) -> Shape:
    sizes = [int(size) for size in dimensions.split(",") if size]
    bits = _BITS.get(kind) if kind in _BITS else int(re.search(r"\d+", kind)[0]) if re.search(r"\d", kind) else 8
    physical = [sizes[int(place)] for place in reversed(order.split(","))] if order and sizes else sizes
    tile = re.search(r"T\(([\d,]+)\)", layout)
    if tile and physical:
        tiles = [int(size) for size in tile[1].split(",")]
        physical = [1] * (len(tiles) - len(physical)) + physical
        for place, size in zip(range(-len(tiles), 0), tiles, strict=True):
            physical[place] = -(-physical[place] // size) * size
    return Shape(f"{kind}[{dimensions}]", math.prod(physical) * bits // 8, "S(" not in layout)
