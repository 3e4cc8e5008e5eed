"""--verify: every change of a finished data set is an error that names the file."""

import os
import shutil

import pytest

from data_prep.build import build
from data_prep.manifest import verify
from electra_tf.config.errors import UserError
from electra_tf.files import remove, write_atomically

SHARD = "train-00001-of-00002.tfrecord"


@pytest.fixture(scope="module")
def built(build_settings, tmp_path_factory):
    directory = tmp_path_factory.mktemp("verify")
    (directory / "a.txt").write_text("\n\n".join(f"w{i} w{i} w{i + 1}\nw{i}" for i in range(29)))
    build(build_settings([f"text:{directory}/a.txt"], directory / "data", held_out_fraction=0.2, num_shards=2))
    return directory / "data"


@pytest.fixture
def data_dir(built, tmp_path):
    return shutil.copytree(built, tmp_path / "data")


def test_a_data_set_at_a_url_is_verified(data_dir):
    url = "memory://verify/data"
    for path in data_dir.iterdir():
        write_atomically(os.path.join(url, path.name), path.read_bytes())
    assert verify(url) == verify(str(data_dir))
    remove(os.path.join(url, SHARD))
    with pytest.raises(UserError, match=f"{SHARD} cannot be read"):
        verify(url)


def test_every_damaged_file_is_named(data_dir):
    damaged = [SHARD, "held_out-00000-of-00001.tfrecord", "vocab.txt"]
    for name in damaged:
        (data_dir / name).write_bytes(b"other")
    shutil.copy(data_dir / SHARD, data_dir / "train-00002-of-00002.tfrecord")
    with pytest.raises(UserError, match="train-00002-of-00002.tfrecord is not in the manifest") as error:
        verify(str(data_dir))
    assert [name for name in damaged if f"{name} has sha256" not in str(error.value)] == []
