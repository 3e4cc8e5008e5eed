"""The output directory: what an overwriting build may remove, and what it leaves untouched with a user error."""

import pytest

from data_prep.output import prepare, remove_build
from electra_tf.config.errors import UserError

OWN_FILES = ["manifest.json", "train-00000-of-00001.tfrecord", "vocab.txt"]


@pytest.fixture
def output_dir(tmp_path):
    """A directory with an earlier build and a file of the user's."""
    directory = tmp_path / "data"
    directory.mkdir()
    for name in [*OWN_FILES, "mine.txt"]:
        (directory / name).write_text(name)
    return directory


def names(directory) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def assert_refused(output_dir, sources, complaint):
    before = names(output_dir)
    with pytest.raises(UserError, match=complaint) as error:
        prepare(output_dir, overwrite=True, sources=sources)
    assert "\n" not in str(error.value)
    assert names(output_dir) == before


def test_an_earlier_build_is_removed_and_other_files_and_sources_are_spared(output_dir):
    (output_dir / ".spills").mkdir()
    (output_dir / ".spills" / "00000").write_text("")
    prepare(output_dir, overwrite=True, sources=[output_dir / "mine.txt"])
    assert names(output_dir) == ["mine.txt"]


@pytest.mark.parametrize("name", OWN_FILES)
def test_a_source_that_would_be_removed_is_refused(output_dir, name):
    assert_refused(output_dir, [output_dir / "mine.txt", output_dir / name], f"{name} is to be read")


def test_a_source_that_is_reached_by_links_is_known_by_its_real_path(output_dir, tmp_path):
    (tmp_path / "link").symlink_to(output_dir)
    (tmp_path / "words.txt").symlink_to(output_dir / "vocab.txt")
    assert_refused(tmp_path / "link", [tmp_path / "words.txt"], "words.txt is to be read")
    assert_refused(output_dir, [tmp_path / "link" / "vocab.txt"], "vocab.txt is to be read")


def test_a_source_among_the_temporary_files_is_refused(output_dir):
    (output_dir / ".spills").mkdir()
    source = output_dir / ".spills" / "novel.txt"
    source.write_text("keep")
    assert_refused(output_dir, [source], "novel.txt is to be read")
    assert source.read_text() == "keep"


@pytest.mark.parametrize("name", ["manifest.json.partial", "train-00001-of-00002.tfrecord"])
def test_a_directory_in_the_place_of_a_file_is_refused(output_dir, name):
    (output_dir / name).mkdir()
    assert_refused(output_dir, [], f"{name} is a directory, expected a file")


def test_a_file_in_the_place_of_the_temporary_directory_is_refused(output_dir):
    (output_dir / ".spills").write_text("")
    assert_refused(output_dir, [], ".spills is no directory, expected")


def test_a_link_in_the_place_of_the_temporary_directory_is_refused(output_dir, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (output_dir / ".spills").symlink_to(tmp_path / "elsewhere")
    assert_refused(output_dir, [], ".spills is no directory, expected")


def test_a_file_that_cannot_be_removed_is_a_user_error(output_dir, monkeypatch):
    def refuse(path, missing_ok=False):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    assert_refused(output_dir, [], "cannot remove the earlier build .*manifest.json: Permission denied")


def test_removing_a_build_spares_other_files(output_dir):
    remove_build(output_dir)
    assert names(output_dir) == ["mine.txt"]
