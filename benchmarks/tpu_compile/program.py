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
        bytes: with the padding of its tiles.
        in_hbm: whether it is in the chip's memory (HBM); else it is in the core's own (VMEM).
    """

    text: str
    bytes: int
    in_hbm: bool


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        opcode: for a custom call, its target.        trips: how often a loop's body runs.
        cycles: the compiler's estimate for one run.        index: of a parameter.
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

    def roots(self, computation: str) -> list[Instruction]:
        """The instructions that compute the outputs of a computation, one for each output."""
        root = next(instruction for instruction in self.computations[computation] if instruction.is_root)
        roots = [self._by_name[name] for name in root.operands] if root.opcode == "tuple" else [root]
        return [self._behind_bitcasts(instruction) for instruction in roots]

    def users_of_parameter(self, computation: str, index: int) -> list[tuple[Instruction, int]]:
        """The instructions that use a computation's parameter, bitcasts skipped, with the index of the operand."""
        if computation not in self._users:
            self._users[computation] = self._find_users(computation)
        return self._users[computation].get(index, [])

    def _behind_bitcasts(self, instruction: Instruction) -> Instruction:
        while instruction.opcode == "bitcast":
            instruction = self._by_name[instruction.operands[0]]
        return instruction

    def _find_users(self, computation: str) -> dict[int, list[tuple[Instruction, int]]]:
        parameter_of, users = {}, {}
        for instruction in self.computations[computation]:
            if instruction.opcode == "parameter":
                parameter_of[instruction.name] = instruction.index
            for index, name in enumerate(instruction.operands):
                if name in parameter_of and instruction.opcode == "bitcast":
                    parameter_of[instruction.name] = parameter_of[name]
                elif name in parameter_of:
                    users.setdefault(parameter_of[name], []).append((instruction, index))
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
    calls = [call.lstrip("%") for group in _CALLS.findall(rest) for call in group.split(", ")]
    op_name, cycles, trips, target = (pattern.search(rest) for pattern in (_OP_NAME, _CYCLES, _TRIPS, _TARGET))
    return Instruction(
        name=name,
        opcode=target[1] if target else opcode,
        shapes=read_shapes(kind),
        operands=tuple(re.findall(r"%([\w.-]+)", inside)),
        calls=tuple(calls),
        op_name=op_name[1] if op_name else "",
        cycles=int(cycles[1]) if cycles else 0,
        trips=int(trips[1]) if trips else 1,
        index=int(inside) if opcode == "parameter" else 0,
        is_root=line.lstrip().startswith("ROOT"),
    )


def _shape(kind: str, dimensions: str, order: str, layout: str) -> Shape:
    sizes = [int(size) for size in dimensions.split(",") if size]
    digits = re.search(r"\d+", kind)
    bits = _BITS[kind] if kind in _BITS else int(digits[0]) if digits else 8
    physical = [sizes[int(axis)] for axis in reversed(order.split(","))] if order and sizes else sizes
    tile = re.search(r"T\(([\d,]+)\)", layout)
    if tile and physical:
        tiles = [int(size) for size in tile[1].split(",")]
        physical = [1] * (len(tiles) - len(physical)) + physical
        for axis, size in zip(range(-len(tiles), 0), tiles, strict=True):
            physical[axis] = -(-physical[axis] // size) * size
    return Shape(f"{kind}[{dimensions}]", math.prod(physical) * bits // 8, "S(" not in layout)
