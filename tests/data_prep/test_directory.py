import hashlib
import json

import pytest

from data_prep.directory import open_output
from data_prep.settings import BuildSettings
from electra_tf.config.errors import UserError

SHARD = "train-00000-of-00001.tfrecord"
BUILD_DIR = ".electra_tf_build"
PARTIAL = f"{7:032x}.partial"
INPUT = {"format": "text", "name": "a.txt", "num_bytes": 7, "modified": "12"}
CONFIGURATION = {"seed": 1, "sentences": "line", "inputs": [INPUT]}
OTHER_SIZE = {**CONFIGURATION, "inputs": [{**INPUT, "num_bytes": 8}]}


@pytest.fixture
def output_dir(tmp_path):
    """A directory with an earlier build and a file of the user's."""
    directory = tmp_path / "data"
    directory.mkdir()
    for name in ["mine.txt", "vocab.txt", SHARD]:
        (directory / name).write_text(name)
    sha256 = hashlib.sha256(b"vocab.txt").hexdigest()
    (directory / "manifest.json").write_text(json.dumps({"vocab_sha256": sha256, "file": SHARD}))
    return directory


def settings(directory, overwrite=False, work_dir=None, inputs=("text:*",)):
    places = {"output_dir": str(directory), "work_dir": str(work_dir or "")}
    return BuildSettings(inputs=inputs, vocab_file="vocab.txt", overwrite=overwrite, **places)


def open_it(directory, configuration=CONFIGURATION, *, sources=(), **changes):
    """Begins a build and leaves it unfinished."""
    begun = settings(directory, **changes)
    with open_output(begun, configuration, sources):
        (begun.build_dir / "unit-000000").mkdir(exist_ok=True)


def names(directory) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize(
    ("directory", "source", "overwrite", "message"),
    [
        ("data", "", False, "output_dir=.*data is not empty"),
        ("data", f"data/{SHARD}", True, f"has the input .*{SHARD}"),
        ("link", "words.txt", True, "has the input .*words.txt"),
    ],
)
def test_a_directory_of_needed_files_is_refused_and_stays(output_dir, tmp_path, directory, source, overwrite, message):
    (tmp_path / "link").symlink_to(output_dir)
    (tmp_path / "words.txt").symlink_to(output_dir / "vocab.txt")
    before = names(output_dir)
    with pytest.raises(UserError, match=message) as error:
        open_it(tmp_path / directory, overwrite=overwrite, sources=[tmp_path / source])
    assert "\n" not in str(error.value)
    assert names(output_dir) == before


@pytest.mark.parametrize("content", [b"", b"..input_ids..segment_lengths.."])
def test_overwriting_removes_an_earlier_build_and_shards_of_a_killed_one_and_no_other_files(output_dir, content):
    (output_dir / "train-00000-of-00004.tfrecord").write_bytes(content)
    open_it(output_dir, overwrite=True, sources=[output_dir / "mine.txt"])
    assert names(output_dir) == [BUILD_DIR, "mine.txt"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("vocab.txt", "of mine"),
        ("tokenizer.json", "{}"),
        ("spm.model", "spm"),
        ("manifest.json", '{"name": "a web application"}'),
        ("train-00000-of-00004.tfrecord", "image/encoded"),
    ],
)
@pytest.mark.parametrize("is_empty", [True, False])
def test_overwriting_refuses_a_directory_with_a_file_named_as_ours_that_no_build_wrote(
    output_dir, name, content, is_empty
):
    for file in output_dir.iterdir() if is_empty else ():
        file.unlink()
    (output_dir / name).write_text(content)
    before = names(output_dir)
    with pytest.raises(UserError, match=name):
        open_it(output_dir, overwrite=True)
    assert names(output_dir) == before and (output_dir / name).read_text() == content


@pytest.mark.parametrize(
    ("configuration", "inputs", "version", "difference"),
    [
        ({**CONFIGURATION, "seed": 2}, "text:*", 15, "another seed; "),
        (OTHER_SIZE, "text:a.txt", 15, "another inputs; "),
        (CONFIGURATION, "text:*", 99, "another build_version; "),
    ],
)
def test_an_unfinished_build_of_another_command_is_refused_with_the_difference(
    tmp_path, monkeypatch, configuration, inputs, version, difference
):
    open_it(tmp_path)
    monkeypatch.setattr("data_prep.directory._BUILD_VERSION", version)
    with pytest.raises(UserError, match=difference) as error:
        open_it(tmp_path, configuration, inputs=(inputs,))
    assert "sentences" not in str(error.value)
    assert (tmp_path / BUILD_DIR / "unit-000000").is_dir()


@pytest.mark.parametrize("configuration", [CONFIGURATION, OTHER_SIZE])
def test_partial_files_are_removed_and_shards_too_when_the_input_files_have_changed(tmp_path, configuration):
    open_it(tmp_path)
    (tmp_path / BUILD_DIR / f"unit-000001.{PARTIAL}").mkdir()
    for path in (f"train-00000-of-00002.tfrecord.{PARTIAL}", f"{BUILD_DIR}/{SHARD}.json", SHARD):
        (tmp_path / path).write_text("segment_lengths")
    open_it(tmp_path, configuration)
    kept = [SHARD] if configuration is CONFIGURATION else []
    assert names(tmp_path) == [BUILD_DIR, *kept]
    assert names(tmp_path / BUILD_DIR) == ["configuration.json", *(f"{name}.json" for name in kept), "unit-000000"]


def test_a_second_build_in_one_output_directory_is_refused_with_any_work_dir(tmp_path):
    first = settings(tmp_path / "data", work_dir=tmp_path / "one")
    with open_output(first, CONFIGURATION, []), pytest.raises(UserError, match="another process .*data"):
        open_it(tmp_path / "data", work_dir=tmp_path / "other")
