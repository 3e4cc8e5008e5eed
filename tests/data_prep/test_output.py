"""The output directory: what an overwriting build may remove, and what it leaves untouched with a user error."""

from types import SimpleNamespace

import pytest

from data_prep import output
from electra_tf.config.errors import UserError

OWN_FILES = ["manifest.json", "train-00000-of-00001.tfrecord", "vocab.txt"]
BUILD_DIR = ".electra_tf_build"
PARTIAL = f"{7:032x}.partial"
CONFIGURATION = {
    "seed": 1,
    "sentences": "line",
    "inputs": [{"format": "text", "name": "a.txt", "num_bytes": 7, "modified": "12"}],
}


@pytest.fixture
def output_dir(tmp_path):
    """A directory with an earlier build and a file of the user's."""
    directory = tmp_path / "data"
    directory.mkdir()
    for name in [*OWN_FILES, "mine.txt"]:
        (directory / name).write_text(name)
    return directory


def settings(directory, overwrite=False, work_dir=None):
    build_dir = (work_dir or directory) / BUILD_DIR
    return SimpleNamespace(output_dir=str(directory), build_dir=build_dir, overwrite=overwrite)


def open_it(directory, configuration=CONFIGURATION, *, overwrite=False, sources=()):
    """Begins a build and leaves it unfinished."""
    with output.opened(settings(directory, overwrite), configuration, sources):
        (directory / BUILD_DIR / "unit-000000").mkdir(exist_ok=True)


def names(directory) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def assert_refused(directory, sources, complaint, overwrite=True):
    before = names(directory)
    with pytest.raises(UserError, match=complaint) as error:
        open_it(directory, overwrite=overwrite, sources=sources)
    assert "\n" not in str(error.value)
    assert names(directory) == before


def test_a_directory_with_something_in_it_is_refused(output_dir):
    assert_refused(output_dir, [], "is not empty; give a new directory, or --overwrite", overwrite=False)


def test_an_earlier_build_is_removed_and_other_files_and_sources_are_spared(output_dir):
    with output.opened(settings(output_dir, overwrite=True), CONFIGURATION, [output_dir / "mine.txt"]):
        assert names(output_dir) == [BUILD_DIR, "mine.txt"]


def test_the_same_command_finds_what_an_unfinished_build_has_done(tmp_path):
    open_it(tmp_path)
    (tmp_path / "train-00000-of-00002.tfrecord").write_text("done")
    with output.opened(settings(tmp_path), CONFIGURATION, []):
        assert (tmp_path / BUILD_DIR / "unit-000000").is_dir()
        assert (tmp_path / "train-00000-of-00002.tfrecord").read_text() == "done"


def test_incomplete_files_of_a_killed_process_are_removed(tmp_path):
    open_it(tmp_path)
    (tmp_path / BUILD_DIR / f"unit-000001.{PARTIAL}").mkdir()
    (tmp_path / f"train-00000-of-00002.tfrecord.{PARTIAL}").write_text("half")
    open_it(tmp_path)
    assert names(tmp_path) == [BUILD_DIR]
    assert f"unit-000001.{PARTIAL}" not in names(tmp_path / BUILD_DIR)


def test_an_unfinished_build_with_other_settings_is_refused_and_both_are_named(tmp_path):
    open_it(tmp_path)
    with pytest.raises(UserError, match="unfinished build with seed=1; this command has seed=2") as error:
        open_it(tmp_path, {**CONFIGURATION, "seed": 2})
    assert "sentences" not in str(error.value)
    assert (tmp_path / BUILD_DIR / "unit-000000").is_dir()


def test_an_unfinished_build_of_other_files_is_refused(tmp_path):
    open_it(tmp_path)
    changed = {**CONFIGURATION, "inputs": [{**CONFIGURATION["inputs"][0], "modified": "13"}]}
    with pytest.raises(UserError, match="1 input files, of which 1 differ, first a.txt"):
        open_it(tmp_path, changed)


def test_a_second_build_at_the_same_time_is_refused(tmp_path):
    with output.opened(settings(tmp_path), CONFIGURATION, []), pytest.raises(UserError, match="another process is"):
        open_it(tmp_path)


def test_two_builds_into_one_directory_are_kept_apart_whatever_their_work_dir(tmp_path):
    one, other = (settings(tmp_path / "data", work_dir=tmp_path / name) for name in ("one", "other"))
    with (
        output.opened(one, CONFIGURATION, []),
        pytest.raises(UserError, match="another process is building in .*data"),
        output.opened(other, CONFIGURATION, []),
    ):
        pass


def test_the_work_of_a_build_into_another_directory_is_not_taken_over(tmp_path):
    one, other = (settings(tmp_path / name, work_dir=tmp_path / "work") for name in "ab")
    with output.opened(one, CONFIGURATION, []):
        pass
    with (
        pytest.raises(UserError, match="output_dir=.*/a; this command has output_dir=.*/b"),
        output.opened(other, CONFIGURATION, []),
    ):
        pass


@pytest.mark.parametrize("name", OWN_FILES[1:])
def test_a_source_that_would_be_removed_is_refused(output_dir, name):
    assert_refused(output_dir, [output_dir / "mine.txt", output_dir / name], f"{name} is to be read")


def test_a_source_that_is_reached_by_links_is_known_by_its_real_path(output_dir, tmp_path):
    (tmp_path / "link").symlink_to(output_dir)
    (tmp_path / "words.txt").symlink_to(output_dir / "vocab.txt")
    assert_refused(tmp_path / "link", [tmp_path / "words.txt"], "words.txt is to be read")
    assert_refused(output_dir, [tmp_path / "link" / "vocab.txt"], "vocab.txt is to be read")


def test_a_file_that_cannot_be_removed_is_a_user_error(output_dir, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.remove", refuse)
    with pytest.raises(UserError, match="output_dir=.*manifest.json: Permission denied"):
        open_it(output_dir, overwrite=True)


def test_an_output_directory_that_cannot_be_reached_is_named(build_settings, monkeypatch):
    def refuse(_):
        raise OSError(None, "NoCredentialsError: unable to locate credentials")

    monkeypatch.setattr(output.storage, "exists", refuse)
    settings = build_settings([], "s3://bucket/data", work_dir="work")
    with pytest.raises(UserError, match="output_dir=s3://bucket/data cannot be reached: NoCredentialsError: unable to"):
        output.finished_manifest(settings, {})
