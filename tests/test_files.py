"""Files on this machine and at URLs that TensorFlow reads."""

import os
import subprocess
import sys

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.files import exists, locked_file, names_in, read_bytes, read_json, write_atomically, written_whole

PLACES = pytest.mark.parametrize("place", ["{}", "ram://{}"])


@PLACES
def test_a_written_file_is_read_again_and_no_temporary_file_is_left(tmp_path, place):
    directory = place.format(tmp_path)
    file = f"{directory}/file"
    assert (exists(file), read_bytes(file), read_json(file)) == (False, None, {})
    for content in (b'{"a": 1}', b'{"a": 2}'):
        write_atomically(file, content)
    assert (exists(file), read_bytes(file), read_json(file)) == (True, b'{"a": 2}', {"a": 2})
    assert names_in(directory) == ["file"]
    assert names_in(f"{directory}/none") == []


def test_a_path_below_a_file_does_not_exist(tmp_path):
    (tmp_path / "file").write_text("")
    assert not exists(str(tmp_path / "file/below"))


@pytest.mark.parametrize("use", [exists, read_bytes, lambda path: write_atomically(path, b"")])
def test_an_unsupported_url_is_a_user_error_with_the_path(use):
    with pytest.raises(UserError, match="nothing://there"):
        use("nothing://there")


@PLACES
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, place):
    def refuse(*_, **__):
        raise OSError(28, "No space") if place == "{}" else tf.errors.ResourceExhaustedError(None, None, "No space")

    directory = place.format(tmp_path)
    write_atomically(f"{directory}/file", b"old")
    monkeypatch.setattr("os.replace", refuse)
    monkeypatch.setattr(tf.io.gfile, "rename", refuse)
    with pytest.raises(UserError, match="file cannot be written: No space"):
        write_atomically(f"{directory}/file", b"new")
    assert read_bytes(f"{directory}/file") == b"old"
    assert names_in(directory) == ["file"]


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "empty"])
@PLACES
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


def test_local_files_need_no_tensorflow(tmp_path):
    code = "import sys; from electra_tf.files import read_json, write_atomically; write_atomically('f', b'{}')\n"
    code += "read_json('f'); print('tensorflow' in sys.modules)"
    project = os.path.dirname(os.path.dirname(__file__))
    environment = {**os.environ, "PYTHONPATH": project}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, check=True)
    assert done.stdout == b"False\n"
