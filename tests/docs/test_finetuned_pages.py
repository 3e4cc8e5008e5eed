"""Pages on what becomes of a pre-trained model: their commands run as printed, on the tiny network."""

import json
import shutil
from pathlib import Path

import pytest

import electra_tf
from electra_tf.config.loader import config_to_yaml
from tests.docs.commands import PROJECT, run_page
from tests.docs.conftest import STEPS, on_free_ports
from tests.hub import hub_on_loopback
from tests.markdown import cells

pytestmark = pytest.mark.slow


def test_the_commands_on_fine_tuning_fine_tune_predict_and_convert(inputs):
    small = {
        "--init_from=RUN": f"--init_from=RUN {STEPS}",
        "--seeds 0 1 2 3 4": "--seeds 4",
        "encoder.num_layers=8": "encoder.num_layers=1 --set task.num_candidates=4",
    }
    run_page("finetuning", inputs, small)
    assert (inputs / "ft/mrpc/seed_4/result.json").is_file()
    header, *rows = (inputs / "topics.tsv").read_text(encoding="utf-8").splitlines()
    assert header.split("\t") == ["id", "prediction", "probability_art", "probability_sport"] and len(rows) == 2
    assert (inputs / "sentence_vectors/modules.json").is_file() and (inputs / "ft/ranker/summary.json").is_file()


def test_the_commands_on_evaluation_score_a_run(inputs, tiny_config):
    for name in ("corpus", "blimp/data"):
        (inputs / name).mkdir(parents=True)
    sentences = "In w5 we met W{0} again.\nThen W{0} went w6 with W{0}.\nWe call w7 W{0} w8."
    (inputs / "corpus/a.txt").write_text("\n\n".join(sentences.format(number) for number in range(9, 47)))
    data = {"max_seq_length": 10, "held_out_fraction": 0.4}
    electra_tf.build_dataset(f"text:{inputs}/corpus/a.txt", inputs / "RUN/vocab.txt", inputs / "DATA", **data)
    (inputs / "tiny.yaml").write_text(config_to_yaml(tiny_config(train={"num_steps": 2, "milestone_fractions": [0.5]})))
    electra_tf.pretrain(inputs / "tiny.yaml", inputs / "DATA", inputs / "runs/small")
    for name in ("blimp/data/a.jsonl", "mine.jsonl"):
        (inputs / name).write_text('{"sentence_good": "w5 w6 w7", "sentence_bad": "w7 w6"}\n')
    small = {
        "--task=glue": "--task=mrpc",
        "--score=glue": "--score=mrpc",
        "--seeds 0 1 2": f"--seeds 0 {STEPS} --set data.max_seq_length=13",
        "--set data.max_seq_length=64": STEPS,
    }
    assert '"candidates_accuracy":' in run_page("evaluation", inputs, small)
    assert json.loads((inputs / "accuracy.json").read_text())["all"]["pairs"] == 1
    results = json.loads((inputs / "ft/small/scores.json").read_text())["results"]
    assert [row["step"] for row in results] == [1, 2]  # the milestone and the end
    assert [row[:2] for row in cells((inputs / "report.md").read_text())[1:]] == [["small", "0"]] * 2


def test_the_commands_on_interop_convert_and_train_from_what_they_convert(finetuned_inputs, write_data, monkeypatch):
    inputs = finetuned_inputs
    write_data(inputs / "data")
    shutil.copy("RUN/config.yaml", "mine.yaml")
    electra_tf.load("RUN").save("published")
    (inputs / "FOLDER").symlink_to(inputs / "published/discriminator")
    config = Path(electra_tf.load("ft/topics/seed_0").save("NLI"), "config.json")
    states_less = json.loads(config.read_text(encoding="utf-8"))
    del states_less["electra_tf"]["finetuned"]["text_columns"]
    config.write_text(json.dumps(states_less), encoding="utf-8")
    small = {
        "--layers=8": "--layers=1",
        "--data_dir=GLUE": f"--data_dir=GLUE {STEPS}",
        "--data_dir=data": "--data_dir=data --set train.num_steps=2",
        "--from=RUN --name": "--from=fresh --name",
    }
    with hub_on_loopback(monkeypatch, inputs / "cache") as hub:
        hub.add("google/electra-small-discriminator", inputs / "FOLDER")
        run_page("interop", inputs, small)
    assert {"model.safetensors", "README.md", "tokenizer.json"} <= set(hub.files["ME/topics"])
    assert {"ME/mine", "ME/mine@step-2"} <= set(hub.files)
    mine, again = (inputs / name / "discriminator/model.safetensors" for name in ("mine", "again"))
    assert mine.read_bytes() == again.read_bytes()
    assert (inputs / "vectors/modules.json").is_file() and (inputs / "export/1/saved_model.pb").is_file()
    assert (inputs / "ft/hub/summary.json").is_file() and (inputs / "fresh/metrics.jsonl").is_file()


def test_the_commands_on_serving_export_and_both_clients_get_answers(finetuned_inputs):
    (finetuned_inputs / "examples").symlink_to(PROJECT / "examples")
    printed = run_page("serving", finetuned_inputs, on_free_ports())
    assert printed.count('"label": "sport"') + printed.count('"label": "art"') == 2
    assert "pooled_output [1, 16]" in printed
