"""Files on this machine and in stores, by fsspec and by TensorFlow."""

import os
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
import tensorflow as tf
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from electra_tf import files
from electra_tf.config.errors import UserError
from electra_tf.files import exists, locked_file, names_in, read_bytes, read_json, write_atomically, written_whole
from tests.stores import store_on_loopback

STORES = [pytest.param(scheme, marks=pytest.mark.slow) for scheme in ("s3", "gs")]


@pytest.fixture(params=["local", "ram", "memory", "disk", "bucket", *STORES])
def root(request, tmp_path, monkeypatch):
    """A directory in each store: local, TensorFlow's and fsspec's in memory, with a host in its URL, buckets."""
    if request.param == "local":
        yield str(tmp_path)
    elif request.param in ("s3", "gs"):
        with store_on_loopback(request.param, monkeypatch) as bucket:
            yield f"{bucket}/data"
    elif request.param == "ram":
        yield f"ram://{tmp_path.name}"
    elif request.param == "memory":
        yield "memory://root"
        fsspec.filesystem("memory").rm("/root", recursive=True)
    else:
        register_disk(request.param, tmp_path)
        if request.param == "bucket":
            monkeypatch.setattr(files, "_OBJECT_STORES", frozenset({"bucket"}))
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
        files.make_directory(os.path.dirname(path))
        write_atomically(path, content)


def test_a_written_file_is_read_again_and_no_temporary_file_is_left(root):
    file = f"{root}/file"
    files.make_directory(root)
    assert (exists(file), files.size_of(file), read_bytes(file), read_json(file)) == (False, None, None, {})
    for content in (b'{"a": 1}', b'{"a": 20}'):
        write_atomically(file, content)
    assert (exists(file), files.size_of(file), read_bytes(file), read_json(file)) == (True, 9, b'{"a": 20}', {"a": 20})
    assert (files.is_directory(file), files.is_directory(root)) == (False, True)
    assert not exists(f"{file}/below")
    assert (names_in(root), names_in(f"{root}/none")) == (["file"], [])
    with files.open_binary(file) as stream:
        stream.seek(3)
        assert stream.read(4) == b'": 2'


@pytest.mark.parametrize("use", [exists, read_bytes, lambda path: write_atomically(path, b"")])
def test_an_unsupported_url_is_a_user_error_with_the_path(use):
    with pytest.raises(UserError, match="nothing://there"):
        use("nothing://there")


@pytest.mark.parametrize("place", ["{}", "ram://{}", "disk://host:8020/{}"])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, place):
    def refuse(*_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, "No space") if "ram" in place else OSError(28, "No space")

    register_disk("disk", tmp_path)
    directory = place.format("data" if "disk" in place else tmp_path)
    put(directory, {"file": b"old"})
    monkeypatch.setattr("os.replace", refuse)
    monkeypatch.setattr(tf.io.gfile, "rename", refuse)
    monkeypatch.setattr(LocalFileSystem, "mv", refuse)
    with pytest.raises(UserError, match="file cannot be written: No space"):
        write_atomically(f"{directory}/file", b"new")
    assert read_bytes(f"{directory}/file") == b"old"
    assert names_in(directory) == ["file"]


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "empty"])
@pytest.mark.parametrize("place", ["{}", "ram://{}"])
def test_a_directory_is_written_whole_or_not_at_all(tmp_path, place, is_new):
    directory = f"{place.format(tmp_path)}/out"
    if not is_new:
        tf.io.gfile.makedirs(directory)
    for _ in range(2):
        with pytest.raises(UserError, match="no space"), written_whole(directory) as unfinished:
            write_atomically(f"{unfinished}/a", b"1")
            raise UserError("no space")
        assert names_in(directory) == []
    with written_whole(directory) as unfinished:
        tf.io.gfile.makedirs(f"{unfinished}/below")
        write_atomically(f"{unfinished}/below/a", b"1")
        write_atomically(f"{unfinished}/b", b"2")
        if place == "{}":
            assert not exists(f"{directory}/b")
    assert sorted(names_in(directory)) == ["b", "below"]
    assert read_bytes(f"{directory}/below/a") == b"1"
    if place == "{}":
        assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("left", [".out.unfinished", "out/.unfinished"])
def test_what_a_killed_call_has_left_is_removed(tmp_path, left):
    (tmp_path / left).mkdir(parents=True)
    (tmp_path / left / "part").write_bytes(b"")
    with written_whole(tmp_path / "out") as unfinished:
        assert os.path.samefile(unfinished, tmp_path / left) and os.listdir(unfinished) == []
    assert (os.listdir(tmp_path), os.listdir(tmp_path / "out")) == (["out"], [])


@pytest.mark.parametrize("content", [b"[1]", b"{", b"\xff", b"", b"[" * 99999])
def test_a_file_without_a_json_object_is_a_user_error_with_the_path(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UserError, match="file is damaged"):
        read_json(str(tmp_path / "file"))


@pytest.mark.parametrize("name", ["file", ""])
def test_a_lock_on_a_file_or_directory_excludes_a_second_one_until_it_is_released(tmp_path, name):
    for _ in range(2):
        with locked_file(tmp_path / name), pytest.raises(BlockingIOError):
            locked_file(tmp_path / name).__enter__()


def test_a_local_file_may_have_brackets_in_its_name(tmp_path):
    (tmp_path / "a [1].txt").write_text("12")
    assert [status.num_bytes for status in files.matches(str(tmp_path / "a [1].txt"))] == [2]


def test_local_files_need_neither_tensorflow_nor_fsspec(tmp_path):
    code = "import sys, electra_tf.files as files; files.write_atomically(sys.argv[1], b'{}'); "
    code += "files.read_json(sys.argv[1]); sys.exit(str({'tensorflow', 'fsspec'} & set(sys.modules)))"
    command = [sys.executable, "-c", code, str(tmp_path / "file")]
    assert subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True).stderr == b"set()\n"


def test_a_glob_gives_sorted_files_with_their_sizes_and_versions(root):
    put(root, {"b.txt": b"12", "a.txt": b"1", "c.bin": b"123", "d.txt/inner": b""})
    (first, second) = files.matches(os.path.join(root, "*.txt"))
    assert (first.path, first.num_bytes) == (os.path.join(root, "a.txt"), 1)
    assert (second.path, second.num_bytes) == (os.path.join(root, "b.txt"), 2)
    put(root, {"a.txt": b"2"})
    (again,) = files.matches(first.path)
    assert again.modified != first.modified or root.startswith("ram://")  # which has no versions


def test_files_and_directories_are_removed_with_their_content_and_missing_ones_are_not_read(root):
    put(root, {"a": b"", "b": b"", "c/d": b"", "c/e/f": b""})
    for name in ("a", "a", "c"):
        files.remove(os.path.join(root, name))
    assert names_in(root) == ["b"]
    assert read_bytes(os.path.join(root, "a")) is None
    with pytest.raises(FileNotFoundError):
        files.open_binary(os.path.join(root, "a"))


def test_a_store_in_which_files_can_only_be_created_is_usable_and_gets_one_file_by_it(tmp_path, monkeypatch):
    def forbidden(self, *_, **__):
        raise PermissionError("403")

    put_file = LocalFileSystem.put_file

    def create(self, local_file, path, **more):
        if os.path.exists(path):
            forbidden(self)
        put_file(self, local_file, path, **more)

    register_disk("bucket", tmp_path)
    monkeypatch.setattr(files, "_OBJECT_STORES", frozenset({"bucket"}))
    monkeypatch.setattr(LocalFileSystem, "rm_file", forbidden)
    monkeypatch.setattr(LocalFileSystem, "put_file", create)
    for _ in range(3):
        files.make_directory("bucket://host:8020/data")
    assert names_in("bucket://host:8020/data") == [files.PROBE_FILE]


def test_an_error_of_the_storage_library_is_reported(tmp_path, monkeypatch):
    class NoCredentials(Exception):
        pass

    def refuse(self, *_, **__):
        raise NoCredentials("unable to locate credentials")

    register_disk("disk", tmp_path)
    for method in ("glob", "ls", "info", "open", "cat_file", "put_file", "rm_file", "makedirs"):
        monkeypatch.setattr(DirFileSystem, method, refuse)
    url = "disk://host:8020/data"
    asked = [files.matches, names_in, files.size_of, files.open_binary, read_bytes]
    for ask in (*asked, files.remove, files.make_directory, lambda url: write_atomically(url, b"")):
        with pytest.raises((OSError, UserError), match="NoCredentials: unable to locate credentials"):
            ask(url)
