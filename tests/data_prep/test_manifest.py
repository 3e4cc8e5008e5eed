"""--verify: every change of a finished data set is an error that names the file."""

import os

import pytest

from data_prep.manifest import verify
from electra_tf.config.errors import UserError
from electra_tf.files import remove, write_atomically

SHARD = "train-00001-of-00020.tfrecord"


def test_every_damaged_file_is_named_also_at_a_url(data_dir):
    url = "memory://verify/data"
    for path in data_dir.iterdir():
        write_atomically(os.path.join(url, path.name), path.read_bytes())
    assert verify(url) == verify(str(data_dir))
    remove(os.path.join(url, SHARD))
    damaged = ["train-00002-of-00020.tfrecord", "held_out-00000-of-00001.tfrecord", "vocab.txt"]
    for name in (*damaged, "train-00002-of-00002.tfrecord"):
        write_atomically(os.path.join(url, name), b"other")
    with pytest.raises(UserError, match="train-00002-of-00002.tfrecord is not in the manifest") as error:
        verify(url)
    assert [name for name in damaged if f"{name} has sha256" not in str(error.value)] == []
    assert f"{SHARD} cannot be read" in str(error.value)
