"""A word table with more rows than the vocabulary has tokens: 53 rows for 47 tokens. The surplus is never predicted."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.models.generators import UniformGenerator
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import OBJECTIVES, build_objective
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.train.step import compile_task
from tests.toy import VOCABULARY, evaluation_values, follows, training_values

NUM_TOKENS, NUM_ROWS = 47, 53


@pytest.fixture(scope="module")
def pair(tiny_config):
    """`pair(name, **settings)`: an objective, and the same with surplus rows that would win every prediction."""

    def build(name: str, **settings):
        objectives = []
        for num_rows in (NUM_TOKENS, NUM_ROWS):
            keras.utils.set_random_seed(2)
            encoder = {"initializer_range": 0.3, "hidden_dropout": 0.0, "attention_dropout": 0.0}
            masked = {"as_masked_lm": {"num_candidates": 50}}
            config = tiny_config(
                encoder={**encoder, "vocab_size": num_rows},
                objective={"name": name, **settings},
                evaluation=masked,
                optimizer={"weight_decay_rate": 0.0},
            )
            objective = compile_task(build_objective(config))
            objective.adopt_tokenizer(StoredTokenizer(VOCABULARY))
            objectives.append(objective)
        plain, padded = objectives
        for source, target in zip(plain.variables, padded.variables, strict=True):
            value = source.numpy()
            if target.shape != source.shape and value.ndim:
                surplus = NUM_ROWS - NUM_TOKENS
                value = np.pad(value, [(0, surplus)] + [(0, 0)] * (value.ndim - 1), constant_values=9.0)
            target.assign(value)
        return plain, padded

    return build


def exactly(values: dict[str, float]):
    return pytest.approx(values, rel=0, abs=0, nan_ok=True)


SETTINGS = [{"generator": {"kind": "uniform"}}, {"tying": "gradient_disentangled"}, {"sampling": "greedy"}]
SETTINGS += [{"disallow_correct": True}, {"temperature": 1000.0}]
SLOW = [*((name, {}) for name in OBJECTIVES if name != "bert_mlm"), *(("electra", each) for each in SETTINGS)]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("bert_mlm", {}),
        ("electra", {"generator": {"kind": "unigram"}}),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW),
    ],
)
def test_surplus_rows_change_no_loss_no_metric_and_no_sample(pair, batch, sampling, name, settings):
    plain, padded = pair(name, **settings)
    if settings.get("generator", {}).get("kind") == "unigram":
        counts = np.arange(NUM_TOKENS)
        for objective in (plain, padded):
            objective.generator.adopt_counts(counts)
    for first, second in zip(plain.phases(), padded.phases(), strict=True):
        for values in (training_values, evaluation_values):
            assert values(second, batch, sampling) == exactly(values(first, batch, sampling))


def test_a_uniform_generator_proposes_every_token_and_no_surplus_row():
    generator = UniformGenerator(NUM_ROWS)
    generator.adopt_num_tokens(NUM_TOKENS)
    distribution = generator(None, positions=tf.zeros([40, 100], tf.int32)).distribution
    sampled = distribution.sample(ForwardContext(random=RandomStream(0, 0, 0))).numpy()
    assert follows(sampled, [1.0] * NUM_TOKENS + [0.0] * 6)
    assert distribution.losses(tf.constant([[5]])).numpy() == pytest.approx(math.log(NUM_TOKENS))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert_mlm", "electra", "electric"])
def test_no_surplus_row_is_a_candidate_of_the_masked_lm(pair, batch, sampling, name):
    plain, padded = (objective.as_masked_lm() for objective in pair(name))
    assert evaluation_values(padded, batch, sampling) == exactly(evaluation_values(plain, batch, sampling))


@pytest.mark.parametrize("name", ["bert_mlm", pytest.param("all_tokens_mlm", marks=pytest.mark.slow)])
def test_a_step_leaves_surplus_rows_as_they_are_and_moves_the_others_equally(pair, batch, name):
    plain, padded = pair(name)
    before = [variable.numpy() for variable in padded.trainable_variables]
    metrics = [{key: float(value) for key, value in each.train_step(batch).items()} for each in (plain, padded)]
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-6)
    num_tables = 0
    for old, new, other in zip(before, padded.trainable_variables, plain.trainable_variables, strict=True):
        if new.shape != other.shape:
            num_tables += 1
            assert np.array_equal(new[NUM_TOKENS:], old[NUM_TOKENS:])
            assert not np.array_equal(new[:NUM_TOKENS], old[:NUM_TOKENS])
            new = new[:NUM_TOKENS]
        np.testing.assert_allclose(new, other, rtol=1e-5, atol=1e-7)
    assert num_tables == {"bert_mlm": 2, "all_tokens_mlm": 3}[name]


def test_in_other_programs_too_a_new_head_predicts_no_surplus_row(tiny_config):
    objective = build_objective(tiny_config(encoder={"vocab_size": NUM_ROWS}))
    objective.adopt_tokenizer(StoredTokenizer(VOCABULARY))
    bias = objective.generator.head.output_bias.numpy()
    assert not bias[:NUM_TOKENS].any() and (bias[NUM_TOKENS:] == -100.0).all()
    assert float(tf.nn.softmax(bias)[-1]) < 1e-40
