"""Settings of generators that contradict each other; generators without weights: losses, samples and counts."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.corpus import open_data
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.random import RandomStream
from tests.toy import EQUAL_SIZES, training_values


@pytest.fixture(scope="module")
def data(tmp_path_factory, write_data, tiny_config):
    return open_data(write_data(tmp_path_factory.mktemp("data") / "set"), tiny_config())


def with_counts(data, counts: dict[int, int]):
    """The data set with these counts by token, and no other tokens."""
    token_counts = np.zeros(47, np.int64)
    token_counts[list(counts)] = list(counts.values())
    return dataclasses.replace(data, token_counts=token_counts)


@pytest.mark.parametrize("kind", ["unigram", "uniform"])
def test_the_loss_of_a_generator_without_weights_is_reported_and_trains_nothing(build, batch, sampling, data, kind):
    objective = build("electra", generator={"kind": kind})
    objective.adopt_data(with_counts(data, {11: 1, 13: 2, 22: 5}))
    variables = [*objective.discriminator.trainable_variables, *objective.replaced_token_head.trainable_variables]
    assert {id(variable) for variable in objective.trainable_variables} == set(map(id, variables))
    with tf.GradientTape() as tape:
        masked_lm = objective.training_terms(batch, sampling)["masked_lm"].value
    assert tape.gradient(masked_lm, variables) == [None] * len(variables)
    expected = 3 * math.log(47) if kind == "uniform" else 3 * math.log(8) - math.log(1 * 2 * 5)
    assert float(masked_lm) == pytest.approx(expected, rel=1e-6)


def test_unigram_samples_are_words_of_the_training_text_and_never_special_tokens(build, batch, data):
    objective = build("electra", generator={"kind": "unigram"}, disallow_correct=True)
    objective.adopt_data(data)
    words = set(np.flatnonzero(data.token_counts)) - {2, 3}
    assert len(words) > 10 and data.token_counts[2] > 0
    sampled: set[int] = set()
    for step in range(40):
        context = ForwardContext(random=RandomStream(0, step, 0))
        corrupted = objective.corrupt(batch, objective.generate(batch, context).distribution, context)
        used = batch["masked_lm_weights"].numpy() > 0
        assert (corrupted.sampled_ids.numpy()[used] != batch["masked_lm_ids"].numpy()[used]).all()
        sampled |= set(corrupted.sampled_ids.numpy()[used].tolist())
    assert sampled <= words and len(sampled) > 5


def test_the_counts_are_a_variable_that_is_not_trained_and_exact_also_in_bfloat16(build, batch, sampling, data):
    objective = build("electra", {"train": {"precision": "bfloat16"}}, fresh=True, generator={"kind": "unigram"})
    of_no_data = training_values(objective, batch, sampling)["masked_lm"]
    assert of_no_data == pytest.approx(math.log(47), rel=1e-6)  # all tokens are equally frequent
    objective.adopt_data(with_counts(data, {11: 257, 13: 256}))  # in bfloat16 both are 256
    losses = objective.generate(batch, ForwardContext()).distribution.losses(tf.constant([[11, 13], [11, 13]])).numpy()
    assert losses[0] == pytest.approx(-np.log([257 / 513, 256 / 513]), rel=1e-5)
    objective.adopt_data(data)
    (counts,) = objective.non_trainable_variables
    assert counts.numpy().tolist() == data.text_token_counts("a test").tolist()


def test_only_a_unigram_generator_requires_data_with_token_counts(build, data):
    data_without_counts = dataclasses.replace(data, token_counts=None)
    for name, settings in (("electra", {"generator": {"kind": "uniform"}}), ("bert_mlm", {})):
        build(name, **settings).adopt_data(data_without_counts)
    with pytest.raises(UserError, match=data_without_counts.directory):
        build("electra", generator={"kind": "unigram"}).adopt_data(data_without_counts)


def test_all_tokens_mlm_can_use_a_uniform_generator(build, batch, sampling):
    terms = training_values(build("all_tokens_mlm", generator={"kind": "uniform"}), batch, sampling)
    assert terms["masked_lm"] == pytest.approx(math.log(47), rel=1e-6)
    assert all(map(math.isfinite, terms.values()))


HALF_SIZE = {"size_fraction": 0.5, "num_heads": 4}


@pytest.mark.parametrize(
    ("name", "settings", "masking", "named"),
    [
        ("adversarial", {"temperature": 2.0}, {}, "objective.temperature is 2.0"),
        ("adversarial", {"tying": "all", "generator": EQUAL_SIZES}, {}, "objective.tying is 'all'"),
        ("electric", {"disallow_correct": True}, {}, "objective.disallow_correct"),
        ("electric", {"sampling": "greedy"}, {}, "objective.sampling is 'greedy'"),
        ("electric", {}, {"scheme": "rare_tokens"}, "the same share of noise"),
        ("two_stage", {"generator": HALF_SIZE}, {}, "its hidden_size is 8, the discriminator's 16; its num_heads is 4"),
        ("two_stage", {"generator_steps": 8}, {}, "objective.generator_steps 8"),
        ("fast_electra", {"tying": "embeddings"}, {}, "objective.tying is 'embeddings'"),
        ("fast_electra", {"generator": {"kind": "unigram"}}, {}, "objective.generator.kind is 'unigram'"),
        ("teams", {"generator": HALF_SIZE}, {}, "objective.shared_layers_fraction 0.5 needs a generator of the disc"),
        ("fast_electra", {"auxiliary": None}, {}, "objective.auxiliary is None"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_by_name(tiny_config, name, settings, masking, named):
    with pytest.raises(UserError) as caught:
        tiny_config(objective={"name": name, **settings}, masking=masking)
    assert named in str(caught.value) and "\n" not in str(caught.value)
