"""docs/interop.md: its commands run on the tiny network, with a stand-in for the Hub."""

import json
import shutil
from pathlib import Path

import pytest

import electra_tf
from tests.docs.commands import run_page
from tests.docs.conftest import STEPS
from tests.hub import hub_on_loopback

SMALL = {
    "--layers=8": "--layers=1",
    "--data_dir=GLUE": f"--data_dir=GLUE {STEPS}",
    "--data_dir=data": "--data_dir=data --set train.num_steps=2",
}


@pytest.mark.slow
def test_the_commands_convert_and_train_from_what_they_convert(finetuned_inputs, write_data, monkeypatch):
    inputs = finetuned_inputs
    write_data(inputs / "data")
    shutil.copy("RUN/config.yaml", "mine.yaml")
    electra_tf.load("RUN").save("published")
    (inputs / "FOLDER").symlink_to(inputs / "published/discriminator")
    config = Path(electra_tf.load("ft/topics/seed_0").save("NLI"), "config.json")
    states_less = json.loads(config.read_text(encoding="utf-8"))
    del states_less["electra_tf"]["finetuned"]["text_columns"]
    config.write_text(json.dumps(states_less), encoding="utf-8")
    with hub_on_loopback(monkeypatch, inputs / "cache") as hub:
        hub.add("google/electra-small-discriminator", inputs / "FOLDER")
        run_page("interop", inputs, SMALL)
    assert {"model.safetensors", "README.md", "tokenizer.json"} <= set(hub.files["ME/topics"])
    assert (inputs / "mine/discriminator/model.safetensors").read_bytes() == (
        inputs / "again/discriminator/model.safetensors"
    ).read_bytes()
    assert (inputs / "vectors/modules.json").is_file() and (inputs / "export/1/saved_model.pb").is_file()
    assert (inputs / "ft/hub/summary.json").is_file() and (inputs / "fresh/metrics.jsonl").is_file()
