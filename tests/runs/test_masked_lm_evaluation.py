"""Runs of a few steps as masked language models, from their directories."""

import logging

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.runs import masked_lm_evaluation
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.loop import Run, pretrain
from electra_tf.runs.masked_lm_evaluation import evaluate_as_masked_lm, with_questions
from electra_tf.train.stages import open_stages, stages_of

QUESTIONS = {"as_masked_lm": {"num_candidates": 5, "tokens_per_example": 3}}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory, write_data):
    return write_data(tmp_path_factory.mktemp("data") / "set")


@pytest.fixture(scope="module")
def run_of(tiny_config, data_dir, tmp_path_factory):
    """`run_of(name)`: a run of one step of an objective."""

    def train(name: str) -> Run:
        config = tiny_config(objective={"name": name}, train={"num_steps": 1}, evaluation=QUESTIONS)
        directory = RunDirectory(tmp_path_factory.mktemp(name) / "run")
        run = Run(config, directory, tf.distribute.OneDeviceStrategy("CPU:0"))
        pretrain(run, [data_dir])
        return run

    return train


@pytest.fixture(scope="module")
def electra(run_of):
    return run_of("electra")


@pytest.fixture(scope="module")
def found(electra, data_dir):
    return evaluate_as_masked_lm(electra, [data_dir])


def changed(run: Run, **settings) -> Run:
    """The same run with other settings of the evaluation."""
    asked = run.config.evaluation.as_masked_lm.model_copy(update=settings)
    evaluation = run.config.evaluation.model_copy(update={"as_masked_lm": asked})
    return Run(run.config.model_copy(update={"evaluation": evaluation}), run.directory, run.strategy)


def test_electra_reports_itself_its_generator_and_what_could_be_reached(found):
    assert list(found) == ["step", "masked_tokens", "masked_lm_accuracy", "generator_accuracy", "candidates_accuracy"]
    assert found["step"] == 1
    assert 0 < found["candidates_accuracy"] < 1
    assert max(found["masked_lm_accuracy"], found["generator_accuracy"]) <= found["candidates_accuracy"]


def test_as_many_tokens_of_each_example_are_masked_as_it_has(found):
    # The seven held-out examples are of 3 + n % 6 tokens and [SEP] from number 12 on, less [CLS] and [SEP].
    assert found["masked_tokens"] == sum(min(3, 2 + n % 6) for n in range(12, 19))


def test_asked_again_it_answers_the_same(electra, found, data_dir):
    assert evaluate_as_masked_lm(electra, [data_dir]) == found


def test_two_replicas_answer_the_same(electra, found, data_dir, two_replicas):
    assert evaluate_as_masked_lm(Run(electra.config, electra.directory, two_replicas), [data_dir]) == found


def test_examples_are_counted_in_whole_batches(electra, data_dir):
    first = evaluate_as_masked_lm(changed(electra, max_examples=1), [data_dir])
    assert first["masked_tokens"] == sum(min(3, 2 + n % 6) for n in range(12, 16))


def test_bert_is_asked_the_same(tiny_config, data_dir):
    def questions(**changes):
        config = tiny_config(**changes)
        (entry,) = open_stages(stages_of(config), [data_dir])
        entry = with_questions(entry, config.evaluation.as_masked_lm)
        return [batch["masked_lm_positions"].numpy().tolist() for batch in entry.held_out(tf.distribute.InputContext())]

    bert = questions(objective={"name": "bert_mlm"}, masking={"masked_fraction": 0.15}, train={"seed": 5})
    assert questions() == bert
    other = questions(evaluation={"as_masked_lm": {"seed": 1}})
    assert other != bert and len(other) == 2


def test_bert_reports_its_accuracy(run_of, data_dir):
    assert list(evaluate_as_masked_lm(run_of("bert_mlm"), [data_dir])) == [
        "step",
        "masked_tokens",
        "masked_lm_accuracy",
    ]


def test_it_says_how_far_it_is(electra, data_dir, caplog, monkeypatch):
    monkeypatch.setattr(masked_lm_evaluation, "_SECONDS_BETWEEN_LINES", 0.0)
    with caplog.at_level(logging.INFO):
        evaluate_as_masked_lm(electra, [data_dir])
    (line,) = [record.getMessage() for record in caplog.records if "examples/s" in record.getMessage()]
    assert line.startswith("8 of 8 examples | ") and line.endswith("0 s left")


def test_a_run_without_a_checkpoint_is_refused(electra, data_dir, tmp_path):
    with pytest.raises(UserError, match="holds no checkpoint to evaluate"):
        evaluate_as_masked_lm(Run(electra.config, RunDirectory(tmp_path / "run"), electra.strategy), [data_dir])
