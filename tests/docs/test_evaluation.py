"""docs/evaluation.md: its commands run as printed, with a tiny network on a tiny text."""

import json

import pytest

import electra_tf
from electra_tf.config.loader import config_to_yaml
from tests.docs.commands import run_page
from tests.docs.conftest import STEPS
from tests.markdown import cells


@pytest.mark.slow
def test_the_commands_of_the_page_score_a_run(inputs, tiny_config):
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
    printed = run_page("evaluation", inputs, small)
    assert '"candidates_accuracy":' in printed
    assert json.loads((inputs / "accuracy.json").read_text())["all"]["pairs"] == 1
    assert len((inputs / "scores.jsonl").read_text().splitlines()) == 1
    results = json.loads((inputs / "ft/small/scores.json").read_text())["results"]
    assert [row["step"] for row in results] == [1, 2]  # the milestone and the end
    assert [row[:2] for row in cells((inputs / "report.md").read_text())[1:]] == [["small", "0"]] * 2
    assert (inputs / "ft/truecasing/summary.json").is_file()
