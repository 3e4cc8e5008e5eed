"""The linear probe on sentences of a few words: files, features and scores."""

import json

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import linear_probe
from benchmarks.linear_probe import TASKS, probe, read_split, sentence_features
from electra_tf.config.errors import UserError
from electra_tf.runs.checkpoint import seed_everything
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.loop import Run, pretrain
from electra_tf.tasks.pretrain import build_objective
from electra_tf.text.tokenizer import BertTokenizer
from electra_tf.text.vocabulary import Vocabulary

COLA = 'gj04\t1\t\tw5 "w6 w7\ngj04\t0\t*\tw8\n'
SST2 = "sentence\tlabel\nw9 w5 \t1\nw6\t0\n"


@pytest.fixture(scope="module")
def glue_dir(tmp_path_factory):
    """Both tasks: twenty sentences, good or true where they hold w5."""
    directory = tmp_path_factory.mktemp("glue")
    words = [f"w{6 + index} {'w5 w5 w5' if index % 2 else 'w30 w31'}" for index in range(20)]
    cola = "".join(f"x\t{index % 2}\t\t{text}\n" for index, text in enumerate(words))
    sst2 = "sentence\tlabel\n" + "".join(f"{text}\t{index % 2}\n" for index, text in enumerate(words))
    for folder, text in (("CoLA", cola), ("SST-2", sst2)):
        (directory / folder).mkdir()
        for split in ("train", "dev"):
            (directory / folder / f"{split}.tsv").write_text(text, encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def run(tiny_config, write_data, tmp_path_factory):
    """A run of two steps, with a milestone after the first."""
    directory = tmp_path_factory.mktemp("run")
    config = tiny_config(train={"num_steps": 2, "milestone_fractions": (0.5,)})
    data_dir = write_data(directory / "data")
    pretrain(Run(config, RunDirectory(directory / "run"), tf.distribute.OneDeviceStrategy("CPU:0")), [data_dir])
    return directory / "run"


@pytest.fixture(scope="module")
def objective(tiny_config):
    seed_everything(1)
    return build_objective(tiny_config())


@pytest.fixture(scope="module")
def tokenizer(run) -> BertTokenizer:
    return BertTokenizer(Vocabulary.load(run / "vocab.txt"))


@pytest.mark.parametrize(
    ("task", "text", "sentences", "labels"),
    [("cola", COLA, ['w5 "w6 w7', "w8"], [1, 0]), ("sst2", SST2, ["w9 w5 ", "w6"], [1, 0])],
)
def test_sentences_and_labels_stand_where_glue_has_them(tmp_path, task, text, sentences, labels):
    folder = tmp_path / TASKS[task].folder
    folder.mkdir()
    (folder / "dev.tsv").write_text(text, encoding="utf-8")
    split = read_split(tmp_path, TASKS[task], "dev")
    assert (split.sentences, split.labels.tolist()) == (sentences, labels)


@pytest.mark.parametrize("line", ["w5 w6", "w5\tpositive", "\t"])
def test_a_line_of_another_layout_is_refused_with_its_number(tmp_path, line):
    (tmp_path / "SST-2").mkdir()
    (tmp_path / "SST-2" / "train.tsv").write_text(f"sentence\tlabel\n{line}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"train\.tsv, line 2: found .*; expected the columns of GLUE's SST-2"):
        read_split(tmp_path, TASKS["sst2"], "train")


def test_features_are_the_mean_of_the_real_tokens_in_the_order_of_the_sentences(objective, tokenizer):
    sentences = ["w5 w6 w7 w8 w9", "w10", "w11 w12"]
    found = sentence_features(objective, tokenizer, sentences, "mean")
    for sentence, features in zip(sentences, found, strict=True):
        ids = [2, *(int(word[1:]) for word in sentence.split()), 3]  # w5 has id 5
        inputs = {"input_ids": [ids], "input_mask": [[1] * len(ids)], "segment_ids": [[0] * len(ids)]}
        hidden = objective({name: tf.constant(rows) for name, rows in inputs.items()}).sequence_output
        assert features == pytest.approx(hidden.numpy()[0].mean(axis=0), abs=1e-5)


def test_features_of_cls_are_its_vector(objective, tokenizer):
    found = sentence_features(objective, tokenizer, ["w5 w6", "w7"], "cls")
    inputs = {"input_ids": [[2, 7, 3]], "input_mask": [[1, 1, 1]], "segment_ids": [[0, 0, 0]]}
    expected = objective({name: tf.constant(rows) for name, rows in inputs.items()}).pooled_output
    assert found[1] == pytest.approx(expected.numpy()[0], abs=1e-5)


def test_a_sentence_that_is_too_long_is_cut_at_the_length_of_the_run(objective, tokenizer):
    """Ten tokens with [CLS] and [SEP]: eight words."""
    eight = " ".join(["w5"] * 8)
    found = sentence_features(objective, tokenizer, [f"{eight} w6 w7", eight], "mean")
    assert found[0] == pytest.approx(found[1], abs=1e-5)


def test_features_that_tell_the_classes_apart_score_full_marks_and_others_none():
    labels = np.arange(60) % 2
    apart = np.stack([labels * 2.0 - 1.0, np.zeros(60)], axis=1).astype(np.float32)
    for task, metric in (("cola", "matthews_correlation"), ("sst2", "accuracy")):
        assert probe(TASKS[task], apart, labels, apart, labels)[metric] == 1.0
    alike = np.ones([60, 2], np.float32)
    assert probe(TASKS["cola"], alike, labels, alike, labels)["matthews_correlation"] == 0.0


def test_a_run_is_probed_at_its_milestones_and_untrained_and_the_same_again(run, glue_dir, tmp_path, capsys):
    flags = [f"--model_dir={run}", f"--glue_dir={glue_dir}", "--step=0", "--step=1", "--step=2"]
    assert linear_probe.main([*flags, f"--output={tmp_path / 'probe.json'}"]) == 0
    printed = capsys.readouterr().out
    results = json.loads(printed)["results"]
    assert [result["step"] for result in results] == [0, 1, 2]
    # The words of the two classes differ, so even an encoder that has learnt nothing tells them apart.
    assert all(result["sst2"]["accuracy"] > 0.9 for result in results)
    assert (tmp_path / "probe.json").read_text() == printed
    assert linear_probe.main(flags) == 0
    assert capsys.readouterr().out == printed


def test_the_newest_checkpoint_is_probed_unless_told_otherwise(run, glue_dir, capsys):
    assert linear_probe.main([f"--model_dir={run}", f"--glue_dir={glue_dir}", "--pooling=cls"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["pooling"], report["results"][0]["step"]) == ("cls", 2)


def test_missing_tasks_are_one_line(run, tmp_path, capsys):
    assert linear_probe.main([f"--model_dir={run}", f"--glue_dir={tmp_path}"]) == 2
    assert "give the directory that holds CoLA and SST-2" in capsys.readouterr().err
