"""Predictions for files, with outputs that are given."""

import json
import logging

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.schema import EncoderConfig
from electra_tf.tasks.finetune import build_finetuning_task, prediction
from electra_tf.tasks.finetune.config import resolve
from electra_tf.tasks.finetune.prediction import outputs_of, predict_file
from electra_tf.tasks.finetune.seeds import FinetunedModel

ENCODER = EncoderConfig(
    vocab_size=47,
    embedding_size=6,
    hidden_size=8,
    num_layers=1,
    num_heads=2,
    intermediate_size=5,
    max_position_embeddings=12,
)
ONE_DEVICE = tf.distribute.OneDeviceStrategy("CPU:0")


@pytest.fixture
def predicted(monkeypatch, tiny_encoder, tmp_path):
    """`predicted(name, task, file, text, outputs)`: what a model of a task writes for a file if those are its outputs.

    Without outputs nothing is patched that gives them.
    """

    def predict(name: str, task: dict, file: str, text: str, outputs: dict | None = None) -> str:
        sizes = {"num_epochs": 1, "max_seq_length": 12, "num_rows": 1}
        config = resolve({}, "a test", name=name, task=task, encoder=ENCODER, init_from=None, **sizes)
        model = FinetunedModel(config, None, tiny_encoder.tokenizer, "a checkpoint")
        if outputs is not None:
            monkeypatch.setattr(prediction, "outputs_of", lambda *_: outputs)
        (tmp_path / file).write_text(text)
        output_file = tmp_path / "new/directory/out"
        predict_file(model, str(tmp_path / file), str(output_file), None, ONE_DEVICE, null_threshold=0.5)
        return output_file.read_text()

    return predict


def test_a_number_is_written_with_all_of_its_digits(predicted):
    task = {"kind": "regression", "text_columns": ["text"], "min_value": 1.0, "max_value": 5.0}
    outputs = {"logits": np.float32([[1 / 3], [0.5]])}
    table = predicted("regression", task, "new.csv", "text\nw5\nw6\n", outputs)
    assert [float(line.split("\t")[1]) for line in table.splitlines()[1:]] == [1.0 + 4.0 * float(np.float32(1 / 3)), 3]


def test_a_model_of_glue_reads_tsv_as_glue_is_read(predicted):
    task = {"kind": "classification", "labels": ["entailment", "not_entailment"], "text_columns": ["a", "b"]}
    text = 'index\tsentence1\tsentence2\tlabel\n4\t"w5 w6\tw7\tentailment\n5\tw8\tw9"\tentailment\n'
    table = predicted("rte", task, "dev.tsv", text, {"logits": np.float32([[1, 0], [0, 1]])})
    assert [line.split("\t")[:2] for line in table.splitlines()[1:]] == [["4", "entailment"], ["5", "not_entailment"]]


@pytest.mark.parametrize("version_2", [False, True])
def test_questions_whose_contexts_are_empty_have_empty_answers(predicted, caplog, version_2):
    task = {"kind": "question_answering", "version_2": version_2, "max_query_length": 4}
    question = '{"question": "w5?", "context": ""}\n'
    with caplog.at_level(logging.INFO):
        lines = predicted("squad_v2", task, "new.jsonl", question * 2).splitlines()
    assert [(answer["id"], answer["text"]) for answer in map(json.loads, lines)] == [("0", ""), ("1", "")]
    assert "2 predictions by a checkpoint" in caplog.text


@pytest.mark.slow
def test_batches_that_do_not_divide_among_replicas_become_larger(job_in, two_replicas, tmp_path):
    job = job_in(tmp_path, evaluation={"batch_size": 3})
    with two_replicas.scope():
        task = build_finetuning_task(job.config)
    model = FinetunedModel(job.config, task, job.pretrained.tokenizer, "")
    logits = outputs_of(model, job.data, two_replicas)["logits"]
    assert logits.shape == (6, 2) and logits.all()  # else of an example that was passed over
