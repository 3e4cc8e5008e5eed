"""docs/evaluation.md: its commands run as printed, with a tiny network on a tiny text."""

import json

import pytest

import electra_tf
from electra_tf.config.loader import config_to_yaml
from tests.docs.commands import run_page
from tests.toy import VOCABULARY

MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
FEW = "--set data.max_seq_length=16 --set train.num_steps=2 --set train.batch_size=4 --set train.fused_ops=false"


@pytest.mark.slow
def test_the_commands_of_the_page_score_a_run(tmp_path, tiny_config):
    for name in ("corpus", "blimp/data", "GLUE/MRPC"):
        (tmp_path / name).mkdir(parents=True)
    sentences = "In w5 we met W{0} again.\nThen W{0} went w6 with W{0}.\nWe call w7 W{0} w8."
    (tmp_path / "corpus/a.txt").write_text("\n\n".join(sentences.format(number) for number in range(9, 47)))
    (tmp_path / "vocab.txt").write_bytes(VOCABULARY)
    data = {"max_seq_length": 10, "held_out_fraction": 0.4}
    electra_tf.build_dataset(f"text:{tmp_path}/corpus/a.txt", tmp_path / "vocab.txt", tmp_path / "DATA", **data)
    train = {"num_steps": 2, "milestone_fractions": [0.5, 1.0]}
    config = tiny_config(train=train, encoder={"max_position_embeddings": 16})
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(config))
    electra_tf.pretrain(tmp_path / "tiny.yaml", tmp_path / "DATA", tmp_path / "runs/small")
    (tmp_path / "RUN").symlink_to("runs/small")
    for name in ("blimp/data/a.jsonl", "mine.jsonl"):
        (tmp_path / name).write_text('{"sentence_good": "w5 w6 w7", "sentence_bad": "w7 w6"}\n')
    for name in ("train.tsv", "dev.tsv"):
        rows = "".join(f"{n % 2}\t{n}\t{n + 50}\tw5 w{6 + n}\tw7 w{8 + n}\n" for n in range(6))
        (tmp_path / "GLUE/MRPC" / name).write_text(MRPC + rows)
    small = {
        "--task=glue": "--task=mrpc",
        "--score=glue": "--score=mrpc",
        "--seeds 0 1 2": f"--seeds 0 {FEW}",
        "--set data.max_seq_length=64": FEW,
    }
    printed = run_page("evaluation", tmp_path, small)
    assert '"masked_lm_accuracy":' in printed
    assert json.loads((tmp_path / "accuracy.json").read_text())["all"]["pairs"] == 1
    assert len((tmp_path / "scores.jsonl").read_text().splitlines()) == 1
    (group,) = json.loads((tmp_path / "report.json").read_text())["groups"]
    assert [point["step"] for point in group["points"]] == [1, 2]  # the milestones
    assert (tmp_path / "ft/truecasing/summary.json").is_file()
