"""What a path means that a user gives: which checkpoint of which run, or which other format."""

import shutil
from pathlib import Path

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.runs.source import find_source


def write_checkpoint(prefix: Path) -> str:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=["x"], shape_and_slices=[""], tensors=[tf.ones([2])])
    return str(prefix)


def damage(prefix: Path) -> None:
    Path(f"{prefix}.data-00000-of-00001").write_bytes(b"")


@pytest.fixture
def run(tmp_path) -> Path:
    """A run with checkpoints 3 and 7, a milestone 7 and a best one 5."""
    for name in ("checkpoints/step-3", "checkpoints/step-7", "milestones/step-7", "best/step-5"):
        write_checkpoint(tmp_path / "run" / name)
    (tmp_path / "run/config.yaml").write_text("train: {}\n")
    return tmp_path / "run"


@pytest.fixture
def folder(tmp_path) -> Path:
    """A pair of Hugging Face's folders, without tensors."""
    for name in ("discriminator", "generator"):
        (tmp_path / "pair" / name).mkdir(parents=True)
        (tmp_path / "pair" / name / "config.json").write_text("{}")
    return tmp_path / "pair"


def refusal(path) -> str:
    with pytest.raises(UserError) as caught:
        find_source(path, "--from")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("", "checkpoints/step-7"),
        ("/", "checkpoints/step-7"),
        ("/checkpoints", "checkpoints/step-7"),
        ("/best", "best/step-5"),
        ("/best/step-5", "best/step-5"),
        ("/checkpoints/step-3.index", "checkpoints/step-3"),
        ("/milestones/step-7.data-00000-of-00001", "milestones/step-7"),
    ],
)
def test_a_path_in_a_run_is_the_checkpoint_it_names(run, path, name):
    source = find_source(f"{run}{path}", "--from")
    assert (source.prefix, source.run.path) == (f"{run}/{name}", str(run))


def test_a_checkpoint_is_taken_where_the_milestone_of_its_step_is_damaged(run):
    damage(run / "milestones/step-7")
    assert find_source(run / "checkpoints/step-7", "--from").prefix == f"{run}/checkpoints/step-7"


def test_a_path_from_where_the_command_is_called_is_of_the_run_around_it(run, monkeypatch):
    monkeypatch.chdir(run / "milestones")
    source = find_source("step-7", "--from")
    assert (source.prefix, source.run.path) == (f"{run}/milestones/step-7", str(run))


def test_of_a_fine_tuned_seed_the_best_is_taken(run):
    (run / "config.yaml").write_text("task: {}\n")
    assert find_source(run, "--from").prefix == f"{run}/best/step-5"


def test_of_a_run_damaged_newer_checkpoints_are_passed_over(run):
    damage(run / "checkpoints/step-7")
    assert find_source(run, "--from").prefix == f"{run}/checkpoints/step-3"


@pytest.mark.parametrize("name", ["model.ckpt-9", ".", "model.ckpt-9.meta"])
def test_other_checkpoints_belong_to_no_run(tmp_path, name):
    prefix = write_checkpoint(tmp_path / "model.ckpt-9")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"\n')
    source = find_source(tmp_path / name, "--from")
    assert (source.prefix, source.run) == (prefix, None)


@pytest.mark.parametrize("name", ["run.meta", "run.index", "run.data-00000-of-00001"])
def test_a_run_that_is_named_like_a_file_of_a_checkpoint_is_itself(run, name):
    other = run.with_name(name)
    write_checkpoint(other / "checkpoints/step-4")
    (other / "config.yaml").write_text("train: {}\n")
    assert find_source(other, "--from").prefix == f"{other}/checkpoints/step-4"
    assert find_source(run, "--from").prefix == f"{run}/checkpoints/step-7"
    shutil.rmtree(run)
    assert find_source(other, "--from").prefix == f"{other}/checkpoints/step-4"


@pytest.mark.parametrize("path", ["", "/step-3", "/step-3.index"])
def test_a_checkpoint_that_a_link_leads_to_is_of_its_run(run, tmp_path, path):
    (tmp_path / "link").symlink_to(run / "checkpoints")
    assert find_source(f"{tmp_path}/link{path}", "--from").run.path == str(run)


def test_a_protocol_that_is_not_there_is_said_of_the_path_that_was_given():
    assert refusal("https://host/model.index").startswith("--from=https://host/model.index ")


def test_the_directory_of_several_seeds_is_refused_naming_one(run, tmp_path):
    (tmp_path / "out").mkdir()
    run.rename(tmp_path / "out/seed_3")
    assert refusal(tmp_path / "out").endswith(f"holds seeds of a fine-tuning; give one of them: {tmp_path}/out/seed_3")


def test_a_folder_of_hugging_faces_is_one(folder):
    assert (find_source(folder, "--from").path, find_source(folder, "--from").prefix) == (str(folder), None)
    assert find_source(folder / "generator/", "--from").path == f"{folder}/generator"


def test_a_file_of_a_folder_is_refused_naming_what_to_give(folder):
    (folder / "model.safetensors").write_bytes(b"")
    message = refusal(folder / "model.safetensors")
    assert "is a file; give the folder that holds it, or the path of a checkpoint's files without" in message


@pytest.mark.parametrize("name", ["step--5", f"step-{10**30}", "final"])
def test_in_a_run_other_names_than_its_own_are_refused(run, name):
    write_checkpoint(run / "milestones" / name)
    assert "is not named as the checkpoint of a run: expected step-N; rename its files" in refusal(
        run / "milestones" / name
    )
    assert find_source(run / "milestones", "--from").prefix == f"{run}/milestones/step-7"


def test_a_damaged_checkpoint_that_is_named_is_refused(run):
    damage(run / "milestones/step-7")
    assert "milestones/step-7 is no readable TensorFlow checkpoint: " in refusal(run / "milestones/step-7")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "its file `checkpoint` is damaged, it is not UTF-8; give the path of"),
        (b'model_checkpoint_path: "gone"\n', "file `checkpoint` with a checkpoint that is there, and is no folder"),
        (b"five", "file `checkpoint` with a checkpoint that is there, and is no folder"),
    ],
)
def test_a_listing_that_names_no_checkpoint_is_one_line(tmp_path, content, message):
    (tmp_path / "checkpoint").write_bytes(content)
    assert message in refusal(tmp_path)


@pytest.mark.parametrize("content", ["[1", "5", "\udcff"])
def test_a_run_whose_configuration_is_none_is_one_line(run, content):
    (run / "config.yaml").write_text(content, errors="surrogateescape")
    assert "config.yaml is " in refusal(run)
