"""docs/python.md: its code runs, with small sizes and a stand-in for the Hub."""

import csv
import shutil
from pathlib import Path

import pytest

import electra_tf
from tests.docs.commands import PROJECT, run_page
from tests.hub import hub_on_loopback

SMALL = {
    "vocab_size=30522": "vocab_size=4000",
    "num_processes=8": "num_processes=2",
    '("small", "data"': '("tiny", "data"',
    '200_000, "train.precision": "bfloat16"': "2",
    "seeds=[0, 1, 2]": 'seeds=[0, 2], settings={"train.num_steps": 2}',
    "10_000": "4",
    "steps_per_epoch=1000, epochs=10": "steps_per_epoch=2, epochs=2",
    "epochs=3": "epochs=1",
}
SENTENCES = ["The match ended in a draw.", "The choir sang all night.", "Two goals were scored.", "A song for two."]


@pytest.mark.slow
def test_the_code_runs_from_text_to_a_published_model(tiny_pretrained, tmp_path, monkeypatch):
    shutil.copytree(PROJECT / "sample/novel", tmp_path / "corpus")
    for name in ("train.csv", "dev.csv"):
        with open(tmp_path / name, "w", newline="", encoding="utf-8") as file:
            rows = [(text, ("football", "music")[number % 2]) for number, text in enumerate(SENTENCES * 5)]
            csv.writer(file).writerows([("text", "label"), *rows])
    published = Path(electra_tf.load(tiny_pretrained).save(tmp_path / "published"))
    with hub_on_loopback(monkeypatch, tmp_path / "cache") as hub:
        hub.add("google/electra-small-discriminator", published / "discriminator")
        run_page("python", tmp_path, SMALL)
    assert set(hub.files["me/topics"]) >= {"model.safetensors", "README.md", "tokenizer.json"}
    assert electra_tf.load(tmp_path / "topics").predict(SENTENCES[:1])[0]["prediction"] in ("football", "music")
    assert (tmp_path / "served/1/saved_model.pb").is_file() and (tmp_path / "topics_served/1").is_dir()
