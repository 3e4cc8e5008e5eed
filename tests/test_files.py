"""Files on any filesystem that TensorFlow reads."""

import pytest

from electra_tf.config.errors import UserError
from electra_tf.files import exists, read_json


@pytest.mark.parametrize(("name", "is_there"), [("file", True), ("", True), ("none", False), ("file/below", False)])
def test_what_exists_is_told_also_below_a_file(tmp_path, name, is_there):
    (tmp_path / "file").write_text("")
    assert exists(str(tmp_path / name)) == is_there


def test_a_store_that_does_not_answer_is_no_missing_file():
    with pytest.raises(UserError, match="TensorFlow has no file system for nothing://; give a local one or gs://"):
        exists("nothing://there")


@pytest.mark.parametrize("content", [b"[1]", b"{", b"\xff", b"", b'{"a": ' + b"[" * 10**5, b'{"a": "\\ud800"}'])
def test_what_is_no_json_object_is_damaged(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(
        UserError, match="file is damaged: expected a JSON object of valid Unicode; copy the file again"
    ):
        read_json(str(tmp_path / "file"))


def test_no_file_is_an_empty_object(tmp_path):
    assert read_json(str(tmp_path / "file")) == {}
