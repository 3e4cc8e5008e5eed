"""docs/interop.md: its commands run on the tiny network, with a stand-in for the Hub."""

import shutil

import pytest

import electra_tf
import run_finetuning
from tests.docs.commands import run_page
from tests.hub import hub_on_loopback

STEPS = "--set train.num_steps=2 --set train.batch_size=4"
GLUE = f"--data_dir=GLUE {STEPS} --set data.max_seq_length=16"
SMALL = {"--layers=8": "--layers=1", "--data_dir=GLUE": GLUE, "--data_dir=data": f"--data_dir=data {STEPS}"}
TOPICS = "--task=classification --train_file=train.csv --validation_file=dev.csv --text_columns title body"


@pytest.mark.slow
def test_the_commands_convert_and_train_from_what_they_convert(inputs, write_data, monkeypatch):
    monkeypatch.chdir(inputs)
    write_data(inputs / "data")
    shutil.copy("RUN/config.yaml", "mine.yaml")
    flags = f"{TOPICS} --label_column=topic --init_from=RUN --output_dir=ft/topics {STEPS} --set data.max_seq_length=16"
    assert run_finetuning.main(flags.split()) == 0
    electra_tf.load("RUN").save("published")
    (inputs / "FOLDER").symlink_to(inputs / "published/discriminator")
    with hub_on_loopback(monkeypatch, inputs / "cache") as hub:
        hub.add("google/electra-small-discriminator", inputs / "FOLDER")
        run_page("interop", inputs, SMALL)
    assert {"model.safetensors", "README.md", "tokenizer.json"} <= set(hub.files["ME/topics"])
    assert (inputs / "mine/discriminator/model.safetensors").read_bytes() == (
        inputs / "again/discriminator/model.safetensors"
    ).read_bytes()
    assert (inputs / "vectors/modules.json").is_file() and (inputs / "export/1/saved_model.pb").is_file()
    assert (inputs / "ft/hub/summary.json").is_file() and (inputs / "fresh/metrics.jsonl").is_file()
