"""Files of torch, read without torch: those of three versions, and hostile ones, of which nothing is run."""

import functools
import io
import json
import pickle
import random
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from electra_tf.config.errors import UserError
from electra_tf.weights.hugging_face.tensors import read_tensors
from electra_tf.weights.hugging_face.torch_file import read_torch_file
from tests.weights import conftest

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torch"
NUMBERS = np.arange(6, dtype=np.float32)


def literal(value) -> bytes:
    """The instructions of a pickle for a value of plain Python, without the first and the last one."""
    return pickle.dumps(value, 2)[2:-1]


def name_of(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


ORDERED_DICT = name_of("collections", "OrderedDict")
REBUILD = name_of("torch._utils", "_rebuild_tensor_v2")


def tensor(dtype="Float", key="0", size=6, offset=0, shape=(2, 3), strides=(3, 1), kind="storage", view=None) -> bytes:
    """The instructions for a tensor, by default NUMBERS in two rows."""
    storage = literal(kind) + name_of("torch", f"{dtype}Storage") + b"".join(map(literal, (key, "cpu", size, view)))
    layout = literal(offset) + literal(shape) + literal(strides)
    no_gradient = literal(False) + ORDERED_DICT + b")R"
    return REBUILD + b"((" + storage + b"tQ" + layout + no_gradient + b"tR"


def program(tensors: dict[str, bytes]) -> bytes:
    """The pickle of a dictionary of tensors."""
    items = b"".join(literal(name) + instructions for name, instructions in tensors.items())
    versions = b"}" + literal("_metadata") + ORDERED_DICT + b")Rsb"
    return b"\x80\x02" + ORDERED_DICT + b")R(" + items + b"u" + versions + b"."


def archive(pickled: bytes, files: dict[str, bytes] | None = None, compression: int = zipfile.ZIP_STORED) -> bytes:
    """A file of torch 1.6 or later."""
    contents = {"data.pkl": pickled, "data/0": NUMBERS.tobytes(), "byteorder": b"little"} | (files or {})
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", compression) as file:
        for name, content in contents.items():
            file.writestr(f"any/{name}", content)
    return written.getvalue()


def legacy(
    pickled: bytes, magic: int = 0x1950A86A20F9469CFC6C, little_endian: bool = True, keys: bytes = literal(["0"])
) -> bytes:
    """A file of torch 1.5 or earlier."""
    before = b"".join(pickle.dumps(each, 2) for each in (magic, 1001, {"little_endian": little_endian}))
    return before + pickled + b"\x80\x02" + keys + b"." + struct.pack("<q", 6) + NUMBERS.tobytes()


def refusal(folder: Path, content: bytes) -> str:
    """The rest of the line that refuses a file."""
    (folder / "pytorch_model.bin").write_bytes(content)
    message = conftest.refusal(read_tensors, str(folder))
    begin = f"{folder}/pytorch_model.bin cannot be read: "
    assert message.startswith(begin) and "\n" not in message and len(message) < len(begin) + 200
    return message.removeprefix(begin)


@pytest.mark.parametrize("version", ["1.4", "1.6", "2.13"])
def test_what_torch_has_written_is_read(version):
    found = read_torch_file((FIXTURES / f"{version}.bin").read_bytes())
    assert {name: (values.dtype.name, values.tolist()) for name, values in found.items()} == {
        "table": ("float32", [[0, 1, 2], [3, 4, 5]]),
        "transposed": ("float32", [[0, 3], [1, 4], [2, 5]]),
        "part": ("float32", [2, 3]),  # of five in float64
        "parameter": ("float32", [1]),
        "half": ("float32", [1.5, -2]),
        "bfloat16": ("float32", [1.5, -2]),
        "scalar": ("float32", 7),
        "ids": ("int64", [[0, 1, 2]]),
        "flag": ("bool", [True, False]),
    }
    assert np.shares_memory(found["table"], found["transposed"])


def test_old_names_are_renamed_and_position_ids_are_left_out(tmp_path):
    ids = tensor("Long", key="1", size=3, shape=(1, 3))
    names = {"electra.embeddings.LayerNorm.gamma": tensor(), "electra.embeddings.position_ids": ids}
    content = archive(program(names), {"data/1": np.arange(3).tobytes()})
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    file, found = read_tensors(str(tmp_path))
    assert file == f"{tmp_path}/pytorch_model.bin"
    assert {name: each.tolist() for name, each in found.items()} == {
        "electra.embeddings.LayerNorm.weight": [[0, 1, 2], [3, 4, 5]]
    }


def test_a_model_in_parts_is_read(tmp_path):
    parts = {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}
    for name, part in parts.items():
        (tmp_path / part).write_bytes(legacy(program({name: tensor()})))
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": parts}))
    assert read_tensors(str(tmp_path))[1].keys() == {"a", "b"}


SYSTEM = name_of("posix", "system")
RUN = b"(" + literal("touch ran") + b"tR"
DEEP = b")" + b"\x85" * 1000  # a tuple in a tuple in a tuple
WIDE = functools.reduce(lambda pair, _: (pair, pair), range(60), 1)  # 2**60 numbers, in 60 tuples


@pytest.mark.parametrize(
    ("pickled", "problem"),
    [
        (b"\x80\x02" + SYSTEM + RUN + b".", "names 'posix system', but only tensors are read; nothing was run"),
        (program({"a": name_of("builtins", "eval") + RUN}), "'builtins eval'"),
        (program({"a": name_of("torch._utils", "_rebuild_qtensor") + RUN}), "'torch._utils _rebuild_qtensor'"),
        (program({"a": b"\x8c\x05posix\x8c\x06system\x93" + RUN}), "the instruction SHORT_BINUNICODE"),
        (program({"a": literal("posix") + literal("system") + b"\x93" + RUN}), "the instruction STACK_GLOBAL"),
        (program({"a": b"(" + literal("touch ran") + b"iposix\nsystem\n"}), "the instruction INST"),
        (program({"a": b"(" + ORDERED_DICT + b"o"}), "the instruction OBJ"),
        (program({"a": ORDERED_DICT + b")\x81"}), "the instruction NEWOBJ"),
        (program({"a": b"\x82\x01"}), "the instruction EXT1"),
        (program({"a": b"h\x63"}), "KeyError: 99"),  # from the memo
        (program({"a": ORDERED_DICT + b"q\x05h\x05" + RUN}), "takes 0 positional arguments"),
        (program({"a": name_of("torch", "FloatStorage") + RUN}), "is not callable"),
        (program({"a": tensor() + literal({"__setstate__": 1}) + b"b"}), "the instruction BUILD"),
        (program({"a": ORDERED_DICT + literal("x") + tensor() + b"s"}), "its pickle adds to other things"),
        (program({"a": b")" + tensor() + b"a"}), "its pickle adds to other things"),
        (program({"a": b"}" + DEEP + b"Ns"}), "its pickle adds to other things"),
        (program({"a": b"X\xff\xff\xff\xff"}), "expected 4294967295 bytes"),
        (program({"a": tensor(kind="module")}), "a persistent id does not name a storage"),
        (program({"a": tensor(view=("0", 0, 6))}), "a persistent id does not name a storage"),
        (program({"a": b"(" + literal("storage") + 4 * ORDERED_DICT + b"tQ"}), "a persistent id does not name"),
        (program({"a": REBUILD + b"(" + 4 * literal((1,)) + b"tR"}), "a tensor has no storage"),
        (program({"a": tensor(key="../data/0")}), "the key of a storage is not a number"),
        (program({"a": tensor(key=0)}), "the key of a storage is not a number"),
        (program({"a": tensor(size=7)}), "a storage has another size than its pickle states"),
        (program({"a": tensor(), "b": tensor("Int")}), "a storage has two types or sizes"),
        (program({"a": tensor(offset=1)}), "a tensor reaches beyond its storage"),
        (program({"a": tensor(offset=-1)}), "a tensor reaches beyond its storage"),
        (program({"a": tensor(strides=(4, 1))}), "a tensor reaches beyond its storage"),
        (program({"a": tensor(offset=5, strides=(-3, -1))}), "a tensor reaches beyond its storage"),
        (program({"a": tensor(shape=(-2, -3))}), "a tensor reaches beyond its storage"),
        (program({"a": tensor(shape=(1, 7), strides=(0, 0))}), "a tensor reaches beyond its storage"),
        (program({"a": tensor(strides=(2**62, 2**62))}), "a tensor reaches beyond its storage"),
        (program({"a": tensor(strides=(3,))}), "zip() argument 2 is shorter"),
        (program({"a": tensor(size=WIDE), "b": tensor(size=WIDE)}), "a size or a place is not an integer"),
        (program({"a": tensor(shape=(2**40,), strides=("s",))}), "a size or a place is not an integer"),
        (program({"a": tensor("Int")}), "TypeError: a has numbers of type int32"),
    ],
)
def test_a_hostile_pickle_is_refused_in_one_line_and_nothing_of_it_is_run(tmp_path, monkeypatch, pickled, problem):
    monkeypatch.chdir(tmp_path)
    for write in (archive, legacy):
        assert problem in refusal(tmp_path, write(pickled))
    assert [path.name for path in tmp_path.iterdir()] == ["pytorch_model.bin"]


SOUND = program({"a": tensor()})


def with_false_size(content: bytes) -> bytes:
    """An archive whose directory states a size of 2 GB for its first file."""
    entry = content.index(b"PK\x01\x02")
    return content[: entry + 24] + struct.pack("<I", 2**31) + content[entry + 28 :]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (archive(b"\x80\x02" + literal([1]) + b"."), "other things than a dictionary of tensors"),
        (archive(program({"a": literal(1)})), "other things than a dictionary of tensors"),
        (archive(SOUND[:-1]), "pickle exhausted before seeing STOP"),
        (archive(SOUND, compression=zipfile.ZIP_DEFLATED), "compressed, or larger than the archive"),
        (with_false_size(archive(SOUND)), "compressed, or larger than the archive"),
        (archive(SOUND)[:-60], "BadZipFile"),
        (archive(SOUND).replace(NUMBERS.tobytes(), bytes(24)), "BadZipFile: Bad CRC-32 for file 'any/data/0'"),
        (archive(SOUND, {"byteorder": b"big"}), "its numbers are big-endian"),
        (archive(program({"a": tensor(key="3")})), "There is no item named 'any/data/3' in the archive"),
        (archive(SOUND, {"other/data.pkl": SOUND}), "too many values to unpack"),
        (legacy(SOUND)[:-1], "buffer size must be a multiple of element size"),
        (legacy(SOUND, magic=5), "it is not a file of torch"),
        (legacy(SOUND, little_endian=False), "its numbers are big-endian"),
        (legacy(SOUND, keys=literal(["1"])), "KeyError: '1'"),
        (legacy(SOUND, keys=b"]" + DEEP + b"a"), "the key of a storage is not a number"),
        (legacy(SOUND, keys=b"]"), "a tensor reaches beyond its storage"),
        (b"version https://git-lfs.github.com/spec/v1\n", "it is not a file of torch"),
    ],
)
def test_a_hostile_or_damaged_file_is_refused_in_one_line(tmp_path, content, problem):
    assert problem in refusal(tmp_path, content)


@pytest.mark.parametrize("version", ["1.4", "2.13"])
def test_a_damaged_file_is_an_error_of_one_line(tmp_path, version):
    content, generator, num_refused = (FIXTURES / f"{version}.bin").read_bytes(), random.Random(5), 0
    for _ in range(100):
        flipped = bytearray(content)
        flipped[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        (tmp_path / "pytorch_model.bin").write_bytes(flipped)
        try:
            read_tensors(str(tmp_path))
        except UserError as error:
            num_refused += str(error).startswith(f"{tmp_path}/pytorch_model.bin cannot be read: ")
    assert num_refused > 49
