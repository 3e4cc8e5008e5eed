"""Predictions for files."""

import json
import logging

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.tasks.finetune import build_finetuning_task, prediction
from electra_tf.tasks.finetune.prediction import outputs_of, predict_file
from electra_tf.tasks.finetune.seeds import FinetunedModel
from tests.toy import toy_finetuning_config

ONE_DEVICE = tf.distribute.OneDeviceStrategy("CPU:0")


@pytest.fixture
def predicted(monkeypatch, tiny_encoder, tmp_path):
    """`predicted(name, task, file, text, outputs)`: the predictions for a file by a model with these outputs."""

    def predict(name: str, task: dict, file: str, text: str, outputs: dict | None = None) -> str:
        config = toy_finetuning_config(task).model_copy(update={"name": name})
        model = FinetunedModel(config, None, tiny_encoder.tokenizer, "a checkpoint")
        if outputs is not None:
            monkeypatch.setattr(prediction, "outputs_of", lambda *_: outputs)
        (tmp_path / file).write_text(text)
        output_file = tmp_path / "new/directory/out"
        predict_file(model, str(tmp_path / file), str(output_file), None, ONE_DEVICE, null_threshold=0.5)
        return output_file.read_text()

    return predict


def test_predicted_numbers_have_all_digits(predicted):
    task = {"kind": "regression", "text_columns": ["text"], "min_value": 1.0, "max_value": 5.0}
    outputs = {"logits": np.float32([[1 / 3], [0.5]])}
    table = predicted("regression", task, "new.csv", "text\nw5\nw6\n", outputs)
    assert [float(line.split("\t")[1]) for line in table.splitlines()[1:]] == [1.0 + 4.0 * float(np.float32(1 / 3)), 3]


def test_quotes_in_a_tsv_file_for_a_glue_model_are_characters(predicted):
    task = {"kind": "classification", "labels": ["entailment", "not_entailment"], "text_columns": ["a", "b"]}
    text = 'index\tsentence1\tsentence2\tlabel\n4\t"w5 w6\tw7\tentailment\n5\tw8\tw9"\tentailment\n'
    table = predicted("rte", task, "dev.tsv", text, {"logits": np.float32([[1, 0], [0, 1]])})
    assert [line.split("\t")[:2] for line in table.splitlines()[1:]] == [["4", "entailment"], ["5", "not_entailment"]]


@pytest.mark.parametrize("version_2", [False, True])
def test_questions_with_empty_contexts_have_empty_answers(predicted, caplog, version_2):
    task = {"kind": "question_answering", "version_2": version_2, "max_query_length": 4}
    question = '{"question": "w5?", "context": ""}\n'
    with caplog.at_level(logging.INFO):
        lines = predicted("squad_v2", task, "new.jsonl", question * 2).splitlines()
    assert [(answer["id"], answer["text"]) for answer in map(json.loads, lines)] == [("0", ""), ("1", "")]
    assert "2 predictions by a checkpoint" in caplog.text


@pytest.mark.slow
def test_evaluation_batches_are_enlarged_to_divide_among_replicas(job_in, two_replicas, tmp_path):
    job = job_in(tmp_path, evaluation={"batch_size": 3})
    with two_replicas.scope():
        task = build_finetuning_task(job.config)
    model = FinetunedModel(job.config, task, job.pretrained.tokenizer, "")
    logits = outputs_of(model, job.data, two_replicas)["logits"]
    assert logits.shape == (6, 2) and logits.all()  # a skipped example would have zeros
