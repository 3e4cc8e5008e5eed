import os
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from data_prep import storage
from tests.stores import store_on_loopback

STORES = [pytest.param(scheme, marks=pytest.mark.slow) for scheme in ("s3", "gs")]


@pytest.fixture(params=["local", "memory", "disk", "bucket", *STORES])
def root(request, tmp_path, monkeypatch):
    """A directory in each kind of storage: local, in memory, with a host in its URL, and in object stores."""
    if request.param == "local":
        yield str(tmp_path)
    elif request.param in ("s3", "gs"):
        with store_on_loopback(request.param, monkeypatch) as bucket:
            yield f"{bucket}/data"
    elif request.param == "memory":
        yield "memory://root"
        fsspec.filesystem("memory").rm("/root", recursive=True)
    else:
        register_disk(request.param, tmp_path)
        if request.param == "bucket":
            monkeypatch.setattr(storage, "_OBJECT_STORES", frozenset({"bucket"}))
        yield f"{request.param}://host:8020/data"


def register_disk(protocol_name: str, directory: Path) -> None:
    """Makes PROTOCOL://host:8020/ a name of a local directory."""

    class Disk(DirFileSystem):
        protocol = protocol_name
        cachable = False

        def __init__(self, **_):
            super().__init__(path=str(directory), fs=LocalFileSystem(auto_mkdir=True))

        @classmethod
        def _strip_protocol(cls, path):
            return path.removeprefix(f"{protocol_name}://host:8020").lstrip("/")

    fsspec.register_implementation(protocol_name, Disk, clobber=True)


def put(root: str, names: dict[str, bytes]) -> None:
    for name, content in names.items():
        path = os.path.join(root, name)
        storage.make_directory(os.path.dirname(path))
        storage.write_bytes(path, content)


def test_a_file_is_replaced_without_leftovers(root):
    put(root, {"one": b"123"})
    storage.write_bytes(os.path.join(root, "one"), b"45")
    assert storage.read_bytes(os.path.join(root, "one")) == b"45"
    assert storage.names_in(root) == ["one"]


def test_a_glob_gives_sorted_files_with_their_sizes(root):
    put(root, {"b.txt": b"12", "a.txt": b"1", "c.bin": b"123", "d.txt/inner": b""})
    found = storage.matches(os.path.join(root, "*.txt"))
    assert [(status.path, status.num_bytes) for status in found] == [
        (os.path.join(root, "a.txt"), 1),
        (os.path.join(root, "b.txt"), 2),
    ]


def test_a_file_may_have_brackets_in_its_name(tmp_path):
    (tmp_path / "a [1].txt").write_text("12")
    assert [status.num_bytes for status in storage.matches(str(tmp_path / "a [1].txt"))] == [2]


def test_the_modification_of_a_file_changes_when_it_is_written_again(root):
    put(root, {"a": b"1"})
    (first,) = storage.matches(os.path.join(root, "a"))
    put(root, {"a": b"2"})
    (second,) = storage.matches(os.path.join(root, "a"))
    assert first.modified and first.modified != second.modified


def test_a_missing_file_can_be_removed_and_not_read(root):
    put(root, {"a": b"", "b": b""})
    storage.remove(os.path.join(root, "a"))
    storage.remove(os.path.join(root, "a"))
    assert storage.names_in(root) == ["b"]
    assert storage.names_in(os.path.join(root, "c")) == []
    for read in (storage.read_bytes, storage.open_binary):
        with pytest.raises(FileNotFoundError):
            read(os.path.join(root, "a"))


def test_a_store_in_which_files_can_only_be_created_is_usable_and_gets_one_file_by_it(tmp_path, monkeypatch):
    def forbidden(self, *_, **__):
        raise PermissionError("403")

    put_file = LocalFileSystem.put_file

    def create(self, local_file, path, **more):
        if os.path.exists(path):
            forbidden(self)
        put_file(self, local_file, path, **more)

    register_disk("bucket", tmp_path)
    monkeypatch.setattr(storage, "_OBJECT_STORES", frozenset({"bucket"}))
    monkeypatch.setattr(LocalFileSystem, "rm_file", forbidden)
    monkeypatch.setattr(LocalFileSystem, "put_file", create)
    for _ in range(3):
        storage.make_directory("bucket://host:8020/data")
    assert storage.names_in("bucket://host:8020/data") == [storage.PROBE_FILE]


def test_a_failed_upload_leaves_neither_the_file_nor_a_part_of_it(tmp_path, monkeypatch):
    register_disk("disk", tmp_path)
    put("disk://host:8020/data", {"a": b"old"})

    def full(self, *_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(LocalFileSystem, "mv", full)
    with pytest.raises(OSError, match="no space left"):
        storage.write_bytes("disk://host:8020/data/a", b"new")
    assert os.listdir(tmp_path / "data") == ["a"] and (tmp_path / "data/a").read_bytes() == b"old"


def test_an_error_of_the_storage_library_becomes_an_os_error(tmp_path, monkeypatch):
    class NoCredentials(Exception):
        pass

    def refuse(self, *_, **__):
        raise NoCredentials("unable to locate credentials")

    register_disk("disk", tmp_path)
    for method in ("glob", "ls", "size", "open", "cat_file", "put_file", "rm_file", "makedirs"):
        monkeypatch.setattr(DirFileSystem, method, refuse)
    url = "disk://host:8020/data"
    asked = [storage.matches, storage.names_in, storage.size_of, storage.open_binary, storage.read_bytes]
    for ask in (*asked, storage.remove, storage.make_directory, lambda url: storage.write_bytes(url, b"")):
        with pytest.raises(OSError, match="NoCredentials: unable to locate credentials"):
            ask(url)
