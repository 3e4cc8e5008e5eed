"""Generators without weights: what they send, what they cost, and where their counts come from."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.batch import batch_specs
from electra_tf.data.corpus import open_data
from electra_tf.models.context import ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.load import load_run
from electra_tf.runs.loop import Run, describe, evaluate, pretrain
from electra_tf.tasks.pretrain import build_objective
from electra_tf.text.manifest import MANIFEST_FILE, Manifest
from electra_tf.train.static_step import training_step_function, unfit_operations
from electra_tf.train.step import compile_task

KINDS = pytest.mark.parametrize("kind", ["unigram", "uniform"])


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory, write_data):
    return write_data(tmp_path_factory.mktemp("data") / "set")


@pytest.fixture(scope="module")
def data(data_dir, tiny_config):
    return open_data(data_dir, tiny_config())


@pytest.fixture
def data_without_counts(tmp_path, write_data):
    """A data set of the version before token counts."""
    directory = write_data(tmp_path / "old")
    old = Manifest.load(directory).model_copy(update={"schema_version": 2, "token_counts": None})
    (directory / MANIFEST_FILE).write_text(old.to_json())
    return directory


def settings(kind: str, **more) -> dict:
    return {"objective": {"generator": {"kind": kind}, **more}}


@KINDS
def test_the_masked_lm_loss_is_reported_and_moves_nothing(tiny_config, tiny_batch, data, kind):
    config = tiny_config(**settings(kind))
    objective, batch = build_objective(config), tiny_batch(config, [10, 7, 5, 8])
    objective.adopt_data(data)
    with tf.GradientTape(persistent=True) as tape:
        terms = objective.loss_terms(batch, ForwardContext(random=RandomStream(0, 0, 0)))
        masked_lm, replaced_token = terms["masked_lm"].total, terms["replaced_token"].total
    weights = objective.trainable_variables
    assert {id(weight) for weight in weights} == {
        id(weight)
        for layer in (objective.discriminator, objective.replaced_token_head)
        for weight in layer.trainable_variables
    }
    assert tape.gradient(masked_lm, weights) == [None] * len(weights)
    assert all(gradient is not None for gradient in tape.gradient(replaced_token, weights))
    ids, used = batch["masked_lm_ids"].numpy(), batch["masked_lm_weights"].numpy() > 0
    counts = data.text_token_counts("a test") if kind == "unigram" else np.ones(47)
    expected = -np.log(np.maximum(counts, 1)[ids[used]] / counts.sum())
    assert float(masked_lm) == pytest.approx(expected.sum(), rel=1e-5)


@KINDS
def test_at_rate_one_the_uniform_loss_is_the_logarithm_of_the_vocabulary(tiny_config, tiny_batch, kind):
    """Until it has counts, a unigram generator takes all tokens to be alike."""
    config = tiny_config(**settings(kind))
    terms = build_objective(config).loss_terms(
        tiny_batch(config, [10, 7, 5, 8]), ForwardContext(random=RandomStream(0, 0, 0))
    )
    assert float(terms["masked_lm"].total / terms["masked_lm"].weight) == pytest.approx(math.log(47), rel=1e-6)


def test_unigram_fakes_are_tokens_of_the_training_text_and_never_what_examples_are_put_together_with(
    tiny_config, tiny_batch, data
):
    config = tiny_config(**settings("unigram", disallow_correct=True))
    objective = build_objective(config)
    objective.adopt_data(data)
    seen = set(np.flatnonzero(data.token_counts)) - {2, 3}
    assert len(seen) > 10 and 2 in np.flatnonzero(data.token_counts)
    drawn: set[int] = set()
    for seed in range(20):
        batch = tiny_batch(config, [10, 10, 9, 10], seed)
        context = ForwardContext(random=RandomStream(seed, 0, 0))
        corrupted = objective.corrupt(batch, objective.generate(batch, context).scores, context)
        used = batch["masked_lm_weights"].numpy() > 0
        assert (corrupted.sampled_ids.numpy()[used] != batch["masked_lm_ids"].numpy()[used]).all()
        drawn |= set(corrupted.sampled_ids.numpy()[used].tolist())
    assert drawn <= seen and len(drawn) > 5


@pytest.mark.parametrize(
    "changes",
    [
        {"generator": {"kind": "unigram"}, "disallow_correct": True, "temperature": 2.0},
        {"generator": {"kind": "uniform"}},
        {"tying": "gradient_disentangled"},
    ],
    ids=["unigram", "uniform", "gradient_disentangled"],
)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_nothing_in_the_training_step_is_unfit_for_a_tpu(tiny_config, tiny_batch, changes, precision):
    config = tiny_config(objective=changes, train={"precision": precision})
    step = training_step_function(compile_task(build_objective(config)))
    assert unfit_operations(step.get_concrete_function(*batch_specs(config, 4).values())) == []
    batch = tiny_batch(config, [10, 7, 5, 8])
    metrics = step(*(batch[name] for name in batch_specs(config, 4)))
    assert math.isfinite(float(metrics["loss"])) and float(metrics["gradient_norm"]) > 0


def test_bfloat16_leaves_the_counts_alone(tiny_config, data):
    config = tiny_config(**settings("unigram"), train={"precision": "bfloat16"})
    objective = build_objective(config)
    counts = np.zeros(47, np.int64)
    counts[[7, 8]] = 257, 256  # in bfloat16 both are 256
    objective.adopt_data(dataclasses.replace(data, token_counts=counts))
    zeros = tf.zeros([1, 10], tf.int32)
    batch = {"masked_input_ids": zeros, "input_mask": zeros, "segment_ids": zeros, "masked_lm_positions": zeros[:, :2]}
    losses = objective.generate(batch, ForwardContext()).scores.losses(tf.constant([[7, 8]])).numpy()
    assert losses == pytest.approx(-np.log([[257 / 513, 256 / 513]]), rel=1e-5)


def test_a_text_of_one_word_has_nothing_to_draw_but_the_original(tiny_config, data):
    config = tiny_config(objective={"name": "electra", "generator": {"kind": "unigram"}, "disallow_correct": True})
    objective = build_objective(config)
    counts = np.zeros(47, np.int64)
    counts[7] = 9
    with pytest.raises(UserError, match="objective.disallow_correct never draws the original, and the text of"):
        objective.adopt_data(dataclasses.replace(data, token_counts=counts))
    counts[8] = 1
    objective.adopt_data(dataclasses.replace(data, token_counts=counts))
    assert objective.generator.token_counts.numpy().sum() == 10


def test_a_run_takes_its_counts_from_its_data_and_its_checkpoint_has_them(
    tiny_config, data, data_dir, data_without_counts, tmp_path
):
    """Whoever restores it needs no counts; so it can be evaluated on text that nobody has counted."""
    config = tiny_config(**settings("unigram"), train={"num_steps": 2, "log_every_steps": 1})
    run = Run(config, RunDirectory(tmp_path / "run"), tf.distribute.OneDeviceStrategy("CPU:0"))
    assert describe(run)["trainable_parameters"] > 0
    metrics = pretrain(run, [data_dir])
    kept = load_run(tmp_path / "run").generator.token_counts.numpy()
    assert kept.tolist() == data.text_token_counts("a test").tolist()
    assert math.isfinite(metrics["masked_lm_loss"])
    # After two steps nothing is taken for replaced, and a precision of nothing is no number.
    assert evaluate(run, [data_without_counts]) == pytest.approx({"step": 2, **metrics}, abs=0, nan_ok=True)


def test_data_without_counts_are_refused_in_one_line_that_says_what_to_do(tiny_config, data_without_counts, tmp_path):
    config = tiny_config(**settings("unigram"))
    run = Run(config, RunDirectory(tmp_path / "run"), tf.distribute.OneDeviceStrategy("CPU:0"))
    with pytest.raises(UserError) as caught:
        pretrain(run, [data_without_counts])
    message = str(caught.value)
    assert "\n" not in message
    assert "objective.generator.kind unigram" in message and str(data_without_counts) in message
    assert "build it anew" in message


def test_nobody_else_asks_for_counts(tiny_config, data_without_counts):
    data = open_data(data_without_counts, tiny_config())
    for changes in ({}, settings("uniform"), {"objective": {"name": "bert_mlm"}}):
        build_objective(tiny_config(**changes)).adopt_data(data)
