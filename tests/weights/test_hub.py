"""Models of the Hugging Face Hub: what is downloaded, what is not, and the lines that explain a failure."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants

import electra_tf
from electra_tf.cli.convert_checkpoint import main as convert
from electra_tf.cli.push import main as push
from electra_tf.config.errors import UserError
from electra_tf.weights.hub import hub_source, upload
from electra_tf.weights.source import load_pretrained, load_trained
from tests.hub import COMMIT, Hub, hub_on_loopback
from tests.weights.conftest import random_objective, write_run_of


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with hub_on_loopback(monkeypatch, tmp_path / "cache") as server:
        yield server


@pytest.fixture
def electra(hub: Hub, folder) -> Path:
    """The folder of the discriminator that the Hub has as `owner/electra`, with files that nobody reads."""
    place = folder("discriminator")
    for name in ("pytorch_model.bin", "flax_model.msgpack", "tf_model.h5"):
        (place / name).write_bytes(b"foreign")
    hub.add("owner/electra", place)
    return place


def downloaded(hub: Hub) -> set[str]:
    return {line.rsplit("/", 1)[1] for line in hub.requests if line.startswith("GET") and "/resolve/" in line}


def test_a_name_loads_the_model_and_downloads_only_what_is_read(hub, electra, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    model, local = electra_tf.load("owner/electra"), electra_tf.load(electra)
    np.testing.assert_array_equal(model.encode(["w5 w6"]), local.encode(["w5 w6"]))
    assert downloaded(hub) == {"config.json", "vocab.txt", "model.safetensors"}
    assert repr(model).endswith(f"hf://owner/electra@{COMMIT}>")


def test_the_cache_serves_without_the_network_and_a_commit_that_is_in_it_without_a_request(hub, electra, monkeypatch):
    source = load_pretrained("hf://owner/electra").source
    assert source == f"hf://owner/electra@{COMMIT}"
    before = list(hub.requests)
    load_trained(source).finished()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert electra_tf.load("owner/electra", revision="main").config.hidden_size == 16
    assert hub.requests == before


def test_a_local_path_of_the_name_wins(hub, electra, monkeypatch):
    electra.parent.joinpath("owner").mkdir()
    electra.rename(electra.parent / "owner" / "electra")
    monkeypatch.chdir(electra.parent)
    assert hub_source("owner/electra") == "owner/electra" and hub_source("owner/other") == "hf://owner/other"
    electra_tf.load("owner/electra")
    assert hub.requests == []


def test_the_converter_takes_a_model_of_the_hub(hub, electra, tmp_path):
    assert convert(["--from=hf://owner/electra", "--to=hugging_face", f"--output_dir={tmp_path}/out"]) == 0
    assert (tmp_path / "out/model.safetensors").exists()


def test_two_networks_in_one_repository_are_read_as_one_model(hub, folder):
    place = folder("discriminator").parent
    folder("generator")
    hub.add("owner/pair", place)
    hub.files["owner/pair"] = {name: each for name, each in hub.files["owner/pair"].items() if "/" in name}
    assert len(electra_tf.load("owner/pair").fill_mask("w5 [MASK]", top_k=2)[0]) == 2


@pytest.mark.parametrize("name", ["tf_model.h5", "pytorch_model.bin"])
def test_other_weights_are_downloaded_where_there_are_no_safetensors(hub, electra, name):
    for other in {"model.safetensors", "tf_model.h5", "pytorch_model.bin"} - {name}:
        del hub.files["owner/electra"][other]
    with pytest.raises(UserError, match=f"{name} cannot be read"):  # this one is no such file
        electra_tf.load("owner/electra")
    assert downloaded(hub) == {"config.json", "vocab.txt", name}


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        ((401, "GatedRepo"), "path=hf://owner/electra: its owner asks for your agreement: accept the conditions"),
        ((500, ""), "the download failed"),
    ],
)
def test_a_refusal_is_one_line(hub, electra, refusal, message):
    hub.refusal = refusal
    with pytest.raises(UserError, match=f"{message}[^\n]*$"):
        electra_tf.load("owner/electra")


def test_what_does_not_exist_or_has_no_weights_is_named(hub, electra):
    hub.files["owner/flax"] = {"config.json": b"{}", "flax_model.msgpack": b""}
    for name, revision, message in (
        ("owner/none", None, "owner/none is no local path; path=hf://owner/none: the Hub has no such model, or"),
        ("owner/electra", "v9", r"path=hf://owner/electra@v9: the download failed \(RevisionNotFoundError: "),
        (electra, "v9", f"path={electra}@v9: there is no run"),
        ("owner/flax", None, "has no model.safetensors, tf_model.h5 or pytorch_model.bin"),
    ):
        with pytest.raises(UserError, match=message):
            electra_tf.load(name, revision=revision)


def test_an_interrupted_download_continues(hub, electra):
    hub.cut = True
    with pytest.raises(UserError, match="the download failed"):
        electra_tf.load("owner/electra")
    hub.cut = False
    electra_tf.load("owner/electra")


def test_a_model_is_uploaded_with_its_card_and_loads_again(hub, electra):
    model = electra_tf.load(electra)
    assert model.push_to_hub("me/mine", private=True).endswith("/commit/0")
    assert {"config.json", "model.safetensors", "README.md", "tokenizer.json"} <= set(hub.files["me/mine"])
    np.testing.assert_array_equal(electra_tf.load("me/mine").encode(["w5"]), model.encode(["w5"]))
    hub.files["me/mine"]["README.md"] = b"my licence"
    model.push_to_hub("me/mine")
    assert hub.files["me/mine"]["README.md"] == b"my licence"
    # What the repository had of another model is gone, and what nobody reads stays.
    before = {"modules.json": b"[]", "spm.model": b"x", "generator/config.json": b"{}", "pytorch_model.bin": b"z"}
    hub.files["me/mine"] |= before | {"onnx/a": b"y"}
    model.push_to_hub("me/mine")
    assert before.keys().isdisjoint(hub.files["me/mine"]) and "onnx/a" in hub.files["me/mine"]
    model.push_to_hub("me/vectors", format="sentence_transformers")
    assert {"modules.json", "1_Pooling/config.json"} <= set(hub.files["me/vectors"])
    with pytest.raises(UserError, match="format is 'tf1', expected one of hugging_face"):
        model.push_to_hub("me/mine", format="tf1")
    hub.refusal = (403, "")
    with pytest.raises(UserError, match="me/mine: the upload failed"):
        model.push_to_hub("me/mine")


def test_a_branch_begins_without_the_files_of_main_and_keeps_its_model_unless_told(hub, tmp_path):
    def publish(weights: bytes, **options) -> str:
        (tmp_path / "model").mkdir(exist_ok=True)
        (tmp_path / "model/model.safetensors").write_bytes(weights)
        hub.requests.clear()
        return upload(str(tmp_path / "model"), "me/mine", None, None, "step-2", **options)

    hub.files["me/mine"] = {"onnx/a": b"x", "model.safetensors": b"0"}
    assert publish(b"1", overwrite=False).endswith("/commit/0")
    assert hub.files == {"me/mine": hub.files["me/mine"], "me/mine@step-2": {"model.safetensors": b"1"}}
    assert publish(b"1", overwrite=False).endswith("/me/mine/tree/step-2")
    with pytest.raises(UserError, match="^me/mine has another model in step-2; remove it there, or give another name$"):
        publish(b"2", overwrite=False)
    assert not any("/commit/" in line for line in hub.requests)
    publish(b"2")
    assert hub.files["me/mine@step-2"] == {"model.safetensors": b"2"}
    hub.files["me/mine@step-2"] = {".gitattributes": b""}  # an upload that ended after it had made the branch
    publish(b"1", overwrite=False)
    assert hub.files["me/mine@step-2"]["model.safetensors"] == b"1" != hub.files["me/mine"]["model.safetensors"]


@pytest.mark.slow
def test_the_milestones_of_a_run_are_branches_that_load(hub, tiny_config, tmp_path):
    objectives = {step: random_objective(tiny_config(), seed=step) for step in (2, 7)}
    runs = [write_run_of(objective, tmp_path / f"run_{step}", step) for step, objective in objectives.items()]
    for each in runs:
        shutil.copytree(each.checkpoints, runs[1].milestones, dirs_exist_ok=True)
    for committed in (["step-2", "step-7", "main"], ["main"]):
        hub.requests.clear()
        assert push([f"--from={runs[1].path}", "--name=me/run", "--milestones"]) == 0
        assert [line.rsplit("/", 1)[1] for line in hub.requests if "/commit/" in line] == committed
    for revision, source in (("step-2", runs[0].path), ("step-7", runs[1].path), (None, runs[1].path)):
        published, expected = electra_tf.load("me/run", revision=revision), electra_tf.load(source)
        np.testing.assert_array_equal(published.encode(["w5"]), expected.encode(["w5"]))
    with pytest.raises(UserError, match="no checkpoints; remove milestones, or give a run"):
        electra_tf.push(runs[0].path, "me/run", milestones=True)
