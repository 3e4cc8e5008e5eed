"""Reads the tensors in a file of torch, such as `pytorch_model.bin`, without torch.

Such a file holds a pickle, which is a program, and the numbers. Python's unpickler would import and call whatever the
program names. This one knows only the instructions that build a dictionary of tensors, imports nothing, and calls only
three functions of its own.
Source: torch 2.13, torch/serialization.py and torch/_utils.py.
"""

import copy
import io
import math
import pickle
import pickletools
import zipfile
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


def read_torch_file(content: bytes) -> dict[str, npt.NDArray[Any]]:
    """The tensors in a file, by name: floating-point ones as float32, others as they are stored.

    Tensors that share a storage share memory: do not write to them.

    Raises: ValueError, or one of NumPy and zipfile: the file is damaged, or it is more than a dictionary of tensors.
    """
    if not content.startswith((b"PK", pickle.PROTO)):
        raise ValueError("it is not a file of torch; is it a pointer of Git LFS?")
    read = _read_zip if content.startswith(b"PK") else _read_legacy
    tensors = read(content)
    if not isinstance(tensors, dict) or not all(isinstance(tensor, _Tensor) for tensor in tensors.values()):
        raise ValueError("it holds other things than a dictionary of tensors")
    return {name: tensor.values() for name, tensor in tensors.items()}


def _read_zip(content: bytes) -> Any:
    """The object in a file of torch 1.6 or later: an archive with `data.pkl`, and a file for each storage."""
    archive = zipfile.ZipFile(io.BytesIO(content))
    entries = archive.infolist()
    # torch compresses nothing. The sum is too large if a size is false, or if files overlap.
    if any(entry.compress_type for entry in entries) or sum(entry.file_size for entry in entries) > len(content):
        raise ValueError("a file in the archive is compressed, or larger than the archive")
    (folder,) = {name.removesuffix("data.pkl") for name in archive.namelist() if name.endswith("/data.pkl")}
    if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder") != b"little":
        raise ValueError("its numbers are big-endian")
    storages: dict[str, _Storage] = {}
    loaded = _unpickle(io.BytesIO(archive.read(f"{folder}data.pkl")), storages)
    for key, storage in storages.items():
        storage.fill(archive.read(f"{folder}data/{key}"))
    return loaded


def _read_legacy(content: bytes) -> Any:
    """The object in a file of an earlier torch: five pickles, of which it is the fourth, and the storages."""
    stream = io.BytesIO(content)
    storages: dict[str, _Storage] = {}
    magic, _, system, loaded, keys = (_unpickle(stream, storages) for _ in range(5))
    if magic != _LEGACY_MAGIC or system["little_endian"] is not True:
        raise ValueError("it is not a file of torch, or its numbers are big-endian")
    for key in map(_require_key, keys):
        storage, size = storages[key], int.from_bytes(stream.read(8), "little")
        storage.fill(stream.read(size * storage.dtype.itemsize))
    return loaded


@dataclass
class _Storage:
    """The numbers of one or several tensors."""

    dtype: np.dtype[Any]
    size: int
    numbers: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, np.float32))

    def fill(self, content: bytes) -> None:
        numbers = np.frombuffer(content, self.dtype)
        if len(numbers) != self.size:
            raise ValueError("a storage has another size than its pickle states")
        self.numbers = numbers.astype(np.float32, copy=False) if tf.as_dtype(self.dtype).is_floating else numbers


@dataclass
class _Tensor:
    """A part of a storage: the number at [i, j] is that at offset + i * strides[0] + j * strides[1]."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def values(self) -> npt.NDArray[Any]:
        numbers = self.storage.numbers
        # In Python's integers, which do not overflow as NumPy's do. A stride of 0 would repeat numbers without end.
        end = self.offset + 1 + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        are_sound = all(n >= 0 for n in (self.offset, *self.shape, *self.strides))
        size = math.prod(self.shape[:64])  # NumPy has no more dimensions
        if not are_sound or size > len(numbers) or (size and end > len(numbers)):
            raise ValueError("a tensor reaches beyond its storage")
        strides = [stride * numbers.itemsize for stride in self.strides]
        return np.ndarray(self.shape, numbers.dtype, numbers[self.offset :], strides=strides)


def _find_storage(
    storages: dict[str, _Storage], kind: Any, dtype: Any, key: Any, device: Any, size: Any, view: None = None
) -> _Storage:
    """The storage that a persistent id names."""
    if kind != "storage" or not isinstance(dtype, np.dtype) or view is not None:
        raise ValueError("a persistent id does not name a storage")
    _require_integers(size)
    storage = storages.setdefault(_require_key(key), _Storage(dtype, size))
    if (storage.dtype, storage.size) != (dtype, size):
        raise ValueError("a storage has two types or sizes")
    return storage


def _require_key(key: Any) -> str:
    # Other objects must not be keys of a dictionary: the hash of a deeply nested tuple overflows the C stack.
    if not isinstance(key, str) or not key.isdecimal():
        raise ValueError("the key of a storage is not a number")
    return key


def _require_integers(*numbers: Any) -> None:
    # A tuple times an integer may fill the memory, and to compare two tuples may take years.
    if not all(isinstance(number, int) for number in numbers):
        raise ValueError("a size or a place is not an integer")


def _rebuild_tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any = False, hooks: Any = None
) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise ValueError("a tensor has no storage")
    _require_integers(offset, *shape, *strides)
    return _Tensor(storage, offset, shape, strides)


_STORAGES = {
    **{"Double": np.float64, "Float": np.float32, "Half": np.float16, "BFloat16": tf.bfloat16.as_numpy_dtype},
    **{"Long": np.int64, "Int": np.int32, "Short": np.int16, "Char": np.int8, "Byte": np.uint8, "Bool": np.bool_},
}
# What a pickle may name. Of these, it can call the functions; the others are no classes, but objects of one.
_GLOBALS = {
    **{f"torch {name}Storage": np.dtype(dtype) for name, dtype in _STORAGES.items()},
    "torch._utils _rebuild_tensor": _rebuild_tensor,
    "torch._utils _rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils _rebuild_parameter": lambda tensor, requires_grad, hooks: tensor,
    "collections OrderedDict": lambda: {},
}
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_CONSTANTS |= {"EMPTY_TUPLE": (), "EMPTY_LIST": [], "EMPTY_DICT": {}}


def _unpickle(stream: io.BytesIO, storages: dict[str, _Storage]) -> Any:
    """Runs the pickle at the position of a stream, and adds the storages that it names, still empty.

    Raises: ValueError, LookupError, TypeError: it has another instruction, names another function or is damaged.
    """
    stack: list[Any] = []
    below: list[list[Any]] = []  # the stacks under the marks
    memo: dict[Any, Any] = {}
    for opcode, argument, _ in pickletools.genops(stream):
        match opcode.name:
            case "PROTO":
                pass
            case "STOP":
                return stack.pop()
            case "MARK":
                below.append(stack)
                stack = []
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINUNICODE":
                stack.append(argument)
            case constant if constant in _CONSTANTS:
                stack.append(copy.copy(_CONSTANTS[constant]))
            case "TUPLE":
                items, stack = stack, below.pop()
                stack.append(tuple(items))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                size = int(opcode.name[-1])
                stack[-size:] = [tuple(stack[-size:])]
            case "APPEND":
                items = [stack.pop()]
                _add(stack[-1], items)
            case "SETITEM":
                items = [stack.pop(-2), stack.pop()]
                _add(stack[-1], items)
            case "APPENDS" | "SETITEMS":
                items, stack = stack, below.pop()
                _add(stack[-1], items)
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "GLOBAL" if argument in _GLOBALS:
                stack.append(_GLOBALS[argument])
            case "GLOBAL":
                raise ValueError(f"its pickle names {argument!r:.80}, but only tensors are read; nothing was run")
            case "REDUCE":
                arguments = stack.pop()
                stack.append(stack.pop()(*arguments))
            case "BINPERSID":
                stack.append(_find_storage(storages, *stack.pop()))
            case "BUILD" if isinstance(stack[-2], dict):
                stack.pop()  # the versions of modules, which torch sets as an attribute of the dictionary
            case other:
                raise ValueError(f"its pickle has the instruction {other}, but only tensors are read; nothing was run")
    raise ValueError("its pickle has no end")


def _add(target: Any, items: list[Any]) -> None:
    """Adds items to a list, or names and values in turn to a dictionary."""
    if isinstance(target, list):
        target.extend(items)
    elif isinstance(target, dict) and all(isinstance(name, str) for name in items[::2]):  # see `_require_key`
        target.update(zip(items[::2], items[1::2], strict=True))
    else:
        raise ValueError("its pickle adds to other things than a list or a dictionary of names")
