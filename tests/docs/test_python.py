"""docs/python.md: its code runs in one process as printed, with small sizes and a stand-in for the Hub."""

import csv
import shutil
from pathlib import Path

import huggingface_hub
import pytest

import electra_tf
from tests.docs.commands import PROJECT, blocks_of, run_blocks
from tests.hub import hub_on_loopback

# What replaces what; each must occur.
SMALL = {
    "vocab_size=30522": "vocab_size=4000",
    "num_processes=8": "num_processes=2",
    '("small", "data"': '("tiny", "data"',
    '"runs/small").model()': '"runs/small", settings={"train.num_steps": 2}).model()',
    "200_000": "2",
    "10_000": "4",
    "steps_per_epoch=1000, epochs=10": "steps_per_epoch=2, epochs=2",
    "epochs=3": "epochs=1",
    '"train.num_epochs": 5': '"train.num_epochs": 1',
}
SENTENCES = ["The match ended in a draw.", "The choir sang all night.", "Two goals were scored.", "A song for two."]


def write_inputs(directory: Path) -> None:
    shutil.copytree(PROJECT / "sample/novel", directory / "corpus")
    for name in ("train.csv", "dev.csv"):
        with open(directory / name, "w", newline="", encoding="utf-8") as file:
            rows = [(text, ("football", "music")[number % 2]) for number, text in enumerate(SENTENCES * 5)]
            csv.writer(file).writerows([("text", "label"), *rows])


@pytest.mark.slow
def test_the_code_of_the_page_runs_from_text_to_a_published_model(tiny_pretrained, tmp_path, monkeypatch):
    blocks = blocks_of(PROJECT / "docs" / "python.md")
    for long, short in SMALL.items():
        assert any(long in text for _, text in blocks), f"{long} is not in the page"
        blocks = [(language, text.replace(long, short)) for language, text in blocks]
    write_inputs(tmp_path)
    published = electra_tf.load(tiny_pretrained).save(tmp_path / "published")
    with hub_on_loopback(monkeypatch, tmp_path / "cache") as hub:
        hub.add("google/electra-small-discriminator", Path(published) / "discriminator")
        monkeypatch.setenv("HF_ENDPOINT", huggingface_hub.constants.ENDPOINT)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        run_blocks(blocks, tmp_path)
    assert set(hub.files["me/topics"]) >= {"model.safetensors", "README.md", "tokenizer.json"}
    assert electra_tf.load(tmp_path / "topics").predict(SENTENCES[:1])[0]["prediction"] in ("football", "music")
    assert (tmp_path / "served/1/saved_model.pb").is_file() and (tmp_path / "small").is_dir()
