"""Attacks on files: what a hand, a disk or an enemy may have changed in them, all drawn from one seed."""

import contextlib
import functools
import io
import json
import os
import random
import re
import shutil
import tarfile
import zipfile
from pathlib import Path

from electra_tf.data.manifest import _checksum
from tests.data_prep.texts import PACKERS, content_of, packings, tar
from tests.weights.hugging_face.test_torch_file import RUN, SYSTEM, archive, program

NUMBERS = b"-1 0 2147483647 2147483648 9223372036854775807 1e308 1e999999999 NaN".split() + [b"9" * 5000]
STRINGS = [
    *(b"../../x", b"/etc/passwd", b"file:///etc/passwd", b"http://127.0.0.1:9/x", b"a\0b", b"\\u0000", b"\\ud800"),
    *(b"x" * 100_000, b"__import__('os').system('touch ran')", b"$(touch ran)", b"(a+)+$"),
]
OPENINGS = [b"[", b'{"a":', b"{{", b"[[", b"<b>", b"(", b"{|", b"- ", b"''", b"<!--"]
TAGS = [b": !!python/object/apply:os.system [touch ran]", b": !!python/name:os.system", b": !!binary ////", b": *a"]
LEVELS = [(b"a%d: &a%d " % (level, level), b", ".join([b"*a%d" % (level - 1)] * 9)) for level in range(1, 10)]
YAML = [
    *(b"base: child.yaml", b"a: &a [*a]\ntrain: *a", b"? {a: b}\n: c"),
    b"a0: &a0 x\n" + b"".join(b"%s[%s]\n" % level for level in LEVELS) + b"train: *a9",
    b"a0: &a0 {x: 1}\n" + b"".join(b"%s{<<: [%s]}\n" % level for level in LEVELS) + b"train: *a9",
]


def span(chance: random.Random, content: bytes) -> tuple[int, int]:
    begin = chance.randrange(len(content) + 1)
    return begin, min(len(content), begin + chance.randint(1, 2 + len(content) // 4))


def flip(chance: random.Random, content: bytes) -> bytes:
    flipped = bytearray(content)
    for _ in range(chance.randint(1, 8) if content else 0):
        flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
    return bytes(flipped)


def rearrange(chance: random.Random, content: bytes) -> bytes:
    """Cuts the end off, or removes, repeats, moves or empties a span."""
    begin, end = span(chance, content)
    rest, moved = content[:begin] + content[end:], chance.randrange(len(content) + 1)
    return chance.choice([content[:begin], rest, content[:end] + content[begin:],
                          rest[:moved] + content[begin:end] + rest[moved:],
                          content[:begin] + bytes(end - begin) + content[end:]])  # fmt: skip


def integer(chance: random.Random, content: bytes) -> bytes:
    """An extreme integer in place of some bytes, often of the header."""
    begin, size = chance.randrange(min(len(content), chance.choice([64, 10**9])) + 1), chance.choice([4, 8])
    number = chance.choice([-1, 0, 2**31 - 1, -(2**31), 2 ** (8 * size - 1) - 1, 2**24])
    return (
        content[:begin] + number.to_bytes(size, chance.choice(["little", "big"]), signed=True) + content[begin + size :]
    )


def replace(pattern: bytes, values: list[bytes], chance: random.Random, content: bytes) -> bytes:
    """One of the values in place of a match."""
    spans = [match.span() for match in re.finditer(pattern, content[:100_000])] or [(0, 0)]
    begin, end = chance.choice(spans)
    return content[:begin] + chance.choice(values) + content[end:]


def nest(chance: random.Random, content: bytes) -> bytes:
    begin = span(chance, content)[0]
    return content[:begin] + chance.choice(OPENINGS) * chance.choice([300, 5000, 100_000]) + content[begin:]


def repeat_name(chance: random.Random, content: bytes) -> bytes:
    entry = chance.choice(re.findall(rb'"[\w.]+"\s*:', content[:100_000]) or [b'"a":'])
    return content.replace(b"{", b"{%s %s, " % (entry, chance.choice(NUMBERS)), 1)


ATTACKS = {
    "flipped bits": flip, "moved spans": rearrange, "integers": integer, "nesting": nest, "repeated names": repeat_name,
    "numbers": functools.partial(replace, rb"-?\d+(\.\d+)?", NUMBERS),
    "strings": functools.partial(replace, rb'(?<=")[^"\n]{1,60}(?=")|[A-Za-z_/.]{3,}', STRINGS),
}  # fmt: skip


def member(name: str, content: bytes = b"", **fields) -> bytes:
    """A tar archive of one member of any kind."""
    info, written = tarfile.TarInfo(name), io.BytesIO()
    for field, value in {"size": len(content), **fields}.items():
        setattr(info, field, value)
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as file:
        file.addfile(info, io.BytesIO(content))
    return written.getvalue()


@functools.cache
def bombs() -> list[bytes]:
    """Archives with names outside of their folder and other kinds of members than files, and what expands a lot."""
    names, text, header = ("../../x", "/etc/passwd", "a\0b", "x/" * 3000), b"word " * 2**24, tarfile.TarInfo("long")
    kinds = (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, b"?")
    header.type, header.size = tarfile.XHDTYPE, 2**29
    sparse = {"GNU.sparse.map": "0,5", "GNU.sparse.size": str(2**50)}
    return [
        *(member(name, b"text\n", type=kind, linkname=name) for name in names for kind in kinds),
        *(member("a", b"text\n", pax_headers=sparse), PACKERS["gzip"](header.tobuf() + bytes(2**29))),
        *(PACKERS[name](text) for name in ("gzip", "bzip2", "xz", "zstd")),
        *(PACKERS["gzip"](PACKERS["gzip"](text)), tar({"a": PACKERS["gzip"](text), "b": tar({"c": text[:100]})})),
    ]


def made_for(kind: str, file: str, chance: random.Random, content: bytes) -> bytes | None:
    """An attack of the format's own; None where there is none."""
    if kind == "config":
        return chance.choice([*YAML, replace(rb": [\w.]+", TAGS, chance, content)])
    if kind == "torch" and file.endswith(".bin"):
        pickled = chance.choice(
            [b"\x80\x02" + SYSTEM + RUN + b".", program({"a": SYSTEM + RUN}), program({"../../x": b"N"})]
        )
        return archive(pickled, {"../../x": b"x"})
    return chance.choice(bombs()) if kind == "texts" else None


def attacked(attack, file: str, chance: random.Random, content: bytes) -> bytes:
    """The content of a file after an attack; half of the time inside of what its format packs or checks."""
    form, _, ending = file.partition(".")
    if chance.random() < 0.5:
        return attack(chance, content)
    if ending in PACKERS or ending.startswith("tar"):
        return packings(attack(chance, content_of(form)))[ending]
    if ending == "safetensors":
        end = 8 + int.from_bytes(content[:8], "little")
        header = attack(chance, content[8:end])
        return len(header).to_bytes(8, "little") + header + content[end:]
    if ending == "bin":
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            files = {name.removeprefix("any/"): packed.read(name) for name in packed.namelist()}
        return archive(attack(chance, files.pop("data.pkl")), files)
    content = attack(chance, content)
    if file == "manifest.json":
        with contextlib.suppress(ValueError, RecursionError, KeyError):
            fields = json.loads(content)
            del fields["sha256"]
            return json.dumps({**fields, "sha256": _checksum(fields)}).encode()
    return content


def write_input(kind: str, good: Path, folder: Path, chance: random.Random) -> tuple[str, str]:
    """Writes an attacked copy of a good input, with code beside it. Returns: the attack, and the file."""
    path = chance.choice(sorted(each for each in good.rglob("*") if each.is_file()))
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(good, folder, ignore=lambda *_: os.listdir(good) if kind in ("texts", "tables") else [])
    for name in ("modeling_electra.py", "yaml.py", "sitecustomize.py"):
        (folder / name).write_text("import os; os.system('touch ran')\n")
    name, content = chance.choice([*ATTACKS, "its own", "its own"]), path.read_bytes()
    made = made_for(kind, path.name, chance, content) if name == "its own" else None
    if made is None:
        name, second = chance.choices(list(ATTACKS), k=2)
        made = attacked(ATTACKS[name], path.name, chance, content)
        made = ATTACKS[second](chance, made) if chance.random() < 0.3 else made
    (folder / path.relative_to(good)).write_bytes(made)
    return name, path.name
