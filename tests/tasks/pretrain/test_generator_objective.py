"""Generators without weights: their loss, their samples, and where their counts come from."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.corpus import open_data
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.random import RandomStream


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory, write_data):
    return write_data(tmp_path_factory.mktemp("data") / "set")


@pytest.fixture(scope="module")
def data(data_dir, tiny_config):
    return open_data(data_dir, tiny_config())


@pytest.fixture(scope="module")
def data_without_counts(data):
    """A data set without token counts, as the authors' builder writes it."""
    return dataclasses.replace(data, token_counts=None)


def with_counts(data, **counts: int):
    """The data set with these token counts alone: `with_counts(data, w7=9)`."""
    token_counts = np.zeros(47, np.int64)
    for name, count in counts.items():
        token_counts[int(name[1:])] = count
    return dataclasses.replace(data, token_counts=token_counts)


@pytest.mark.parametrize("kind", ["unigram", "uniform"])
def test_its_loss_is_reported_and_trains_nothing(build, batch, sampling, data, kind):
    objective = build("electra", generator={"kind": kind})
    objective.adopt_data(with_counts(data, t11=1, t13=2, t22=5))
    variables = [*objective.discriminator.trainable_variables, *objective.replaced_token_head.trainable_variables]
    assert {id(variable) for variable in objective.trainable_variables} == set(map(id, variables))
    with tf.GradientTape() as tape:
        masked_lm = objective.training_terms(batch, sampling)["masked_lm"].value
    assert tape.gradient(masked_lm, variables) == [None] * len(variables)
    expected = 3 * math.log(47) if kind == "uniform" else 3 * math.log(8) - math.log(1 * 2 * 5)
    assert float(masked_lm) == pytest.approx(expected, rel=1e-6)


def test_without_data_a_unigram_generator_is_uniform(build, batch, sampling, values):
    objective = build("electra", generator={"kind": "unigram"})
    assert values(objective, batch, sampling)["masked_lm"] == pytest.approx(math.log(47), rel=1e-6)


def test_unigram_samples_are_words_of_the_training_text_and_never_special_tokens(build, batch, data):
    objective = build("electra", generator={"kind": "unigram"}, disallow_correct=True)
    objective.adopt_data(data)
    words = set(np.flatnonzero(data.token_counts)) - {2, 3}
    assert len(words) > 10 and data.token_counts[2] > 0
    sampled: set[int] = set()
    for step in range(40):
        context = ForwardContext(random=RandomStream(0, step, 0))
        corrupted = objective.corrupt(batch, objective.generate(batch, context).scores, context)
        used = batch["masked_lm_weights"].numpy() > 0
        assert (corrupted.sampled_ids.numpy()[used] != batch["masked_lm_ids"].numpy()[used]).all()
        sampled |= set(corrupted.sampled_ids.numpy()[used].tolist())
    assert sampled <= words and len(sampled) > 5


def test_bfloat16_leaves_the_counts_exact(build, batch, data):
    objective = build("electra", {"train": {"precision": "bfloat16"}}, generator={"kind": "unigram"})
    objective.adopt_data(with_counts(data, t11=257, t13=256))  # in bfloat16 both are 256
    losses = objective.generate(batch, ForwardContext()).scores.losses(tf.constant([[11, 13], [11, 13]])).numpy()
    assert losses[0] == pytest.approx(-np.log([257 / 513, 256 / 513]), rel=1e-5)


def test_the_counts_are_part_of_a_checkpoint(build, data):
    objective = build("electra", generator={"kind": "unigram"})
    objective.adopt_data(data)
    (counts,) = objective.non_trainable_variables
    assert counts.numpy().tolist() == data.text_token_counts("a test").tolist()


def test_text_of_one_word_has_nothing_to_sample_but_the_original(build, data):
    objective = build("electra", generator={"kind": "unigram"}, disallow_correct=True)
    with pytest.raises(UserError, match="objective.disallow_correct never draws the original, and the text of"):
        objective.adopt_data(with_counts(data, t7=9))
    objective.adopt_data(with_counts(data, t7=9, t8=1))


def test_data_without_counts_is_refused_in_one_line_that_says_what_to_do(build, data_without_counts):
    with pytest.raises(UserError) as caught:
        build("electra", generator={"kind": "unigram"}).adopt_data(data_without_counts)
    message = str(caught.value)
    assert "\n" not in message
    assert "objective.generator.kind unigram" in message and data_without_counts.directory in message
    assert "build_pretraining_dataset.py" in message


def test_no_other_objective_needs_counts(build, data_without_counts):
    for name, settings in (("electra", {}), ("electra", {"generator": {"kind": "uniform"}}), ("bert_mlm", {})):
        build(name, **settings).adopt_data(data_without_counts)


@pytest.mark.parametrize("name", ["replace_mlm", "all_tokens_mlm"])
def test_the_other_objectives_with_a_generator_take_its_samples_too(build, batch, sampling, values, name):
    terms = values(build(name, generator={"kind": "uniform"}), batch, sampling)
    assert terms["masked_lm"] == pytest.approx(math.log(47), rel=1e-6)
    assert all(map(math.isfinite, terms.values()))
