"""Losses and metrics against literals and scikit-learn; what a report shows of the plateau, and the verdict."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics as reference

from electra_tf.tasks.pretrain import Objective, losses
from electra_tf.tasks.pretrain.health import plateau_problem, plateau_verdict
from electra_tf.tasks.terms import BinaryEntropy, RankingCounts, Ratio
from tests.toy import logits_of


def log_sum_exp(*logits: float) -> float:
    return math.log(sum(math.exp(logit) for logit in logits))


def test_the_accuracy_is_the_share_of_the_slots_in_use():
    """Of two examples with two slots. Of equal logits the first counts as the most likely."""
    logits = [[[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]], [[3.0, -1.0, 0.5], [9.0, 9.0, -9.0]]]
    batch = {"masked_lm_ids": tf.constant([[1, 2], [2, 0]]), "masked_lm_weights": tf.constant([[1.0, 1.0], [1.0, 0.0]])}
    accuracy = losses.masked_lm_accuracy(tf.constant(logits), batch)
    assert (float(accuracy.total), float(accuracy.weight)) == (1.0, 3.0)


def test_metrics_on_mask_tokens_do_not_reward_copying():
    """Of 20 selected tokens 3 are shown as they are: copying them and answering the most frequent token elsewhere."""
    ids = tf.constant([[5, 3, 4, *[2] * 2, *range(6, 21)]])
    shown_as_they_are = tf.range(20) < 3
    answers = tf.where(shown_as_they_are, ids[0], 2)
    logits = logits_of(9.0 * tf.one_hot(answers[tf.newaxis], 21))
    weights = tf.where(shown_as_they_are, 0.0, 1.0)[tf.newaxis]
    batch = {"masked_lm_ids": ids, "masked_lm_weights": tf.ones([1, 20]), "mask_token_weights": weights}
    metrics = losses.mask_token_metrics(logits, {**batch, "unigram_losses": tf.range(20.0)[tf.newaxis]})
    accuracy = losses.masked_lm_accuracy(logits.logits, batch)
    assert float(accuracy.total / accuracy.weight) == pytest.approx(5 / 20)  # 0.15 copied, and 0.85 x 2 / 17
    values = {name: float(total.value) / 17 for name, total in metrics.items()}
    right, wrong = log_sum_exp(9, *[0] * 20) - 9, log_sum_exp(9, *[0] * 20)
    expected = {"mask_token_loss": (2 * right + 15 * wrong) / 17, "mask_token_accuracy": 2 / 17}
    assert values == pytest.approx({**expected, "unigram_loss": sum(range(3, 20)) / 17}, rel=1e-5)
    assert {total.denominator for total in metrics.values()} == {"mask_tokens"}


def test_metrics_of_detection_are_those_of_scikit_learn_the_auc_up_to_ties_within_a_bin():
    """Replaced tokens score higher on average, and some tokens are padding."""
    random, length = np.random.default_rng(0), 31
    labels = (random.random([40, length]) < 0.15).astype(np.int32)
    logits = (random.normal(-1.5, 1.2, [40, length]) + 1.5 * labels).astype(np.float32)
    mask = (np.arange(length) < random.integers(8, length + 1, [40, 1])).astype(np.int32)
    terms = losses.replaced_token_metrics(logits, labels, mask)
    actual, predicted = labels[mask > 0], logits[mask > 0] > 0
    for name in ("precision", "recall", "accuracy"):
        expected = getattr(reference, f"{name}_score")(actual, predicted)
        assert terms[f"replaced_token_{name}"].value() == pytest.approx(expected, rel=1e-6)
    auc = terms["replaced_token_auc"]
    negatives, positives = auc.negatives.numpy(), auc.positives.numpy()
    # A pair in one bin counts one half instead of 0 or 1.
    bound = 0.5 * (negatives * positives).sum() / (negatives.sum() * positives.sum())
    assert abs(auc.value() - reference.roc_auc_score(actual, logits[mask > 0])) <= bound + 1e-12
    assert bound < 1e-3


@pytest.mark.parametrize(("share", "entropy"), [(0.138, 0.4013), (0.06, 0.2270), (0.5, math.log(2))])
def test_a_constant_predictor_has_the_entropy_of_the_replaced_fraction_and_an_auc_of_one_half(share, entropy):
    labels = tf.cast(tf.range(1000) < round(1000 * share), tf.int32)[tf.newaxis]
    ones = tf.ones([1, 1000])
    for logit in (-60.0, 60.0, math.log(share / (1 - share))):
        logits = tf.fill([1, 1000], logit)
        metrics = losses.replaced_token_metrics(logits, labels, ones)
        assert metrics["replaced_token_auc"].value() == 0.5
    loss = metrics["constant_predictor_loss"].value()
    assert loss == pytest.approx(entropy, abs=5e-5)
    assert float(losses.replaced_token_loss(logits, labels, ones, "").value) / 1000 == pytest.approx(loss, rel=1e-6)


def test_a_metric_over_nothing_is_nan_and_the_entropy_of_a_certain_outcome_zero():
    for term in (Ratio(0.0, 0.0), BinaryEntropy(0.0, 0.0), RankingCounts(np.ones(3), np.zeros(3))):
        assert math.isnan(term.value())
    assert BinaryEntropy(0.0, 7.0).value() == BinaryEntropy(7.0, 7.0).value() == 0.0


def test_an_evaluation_computes_the_product_of_each_of_two_heads_with_the_vocabulary_once(build, batch, sampling):
    task = build("replace_mlm")
    traced = tf.function(lambda: task.evaluation_terms(batch, sampling)).get_concrete_function()
    graph = traced.graph.as_graph_def(add_shapes=True)
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    shapes = [node.attr["_output_shapes"].list.shape for node in nodes if node.op == "MatMul"]
    assert sum(shape[0].dim[-1].size in (47, 128) for shape in shapes if shape) == 2  # 47 entries, in 128 columns


# The loss of the same answer for every token is H(0.1) = 0.3251. As two of ten tokens are [CLS] and [SEP], the same
# answer for every word gives 0.8 H(0.1 / 0.8) = 0.3014, and 2 % less is 0.2954. 98 % of the loss of token frequencies,
# 3, is 2.94.
REPLACED, ON_MASK = {"replaced_token": 0.29, "replaced_fraction": 0.1}, {"mask_token_loss": 2.5, "unigram_loss": 3.0}


@pytest.mark.parametrize(
    ("metrics", "objective", "parts"),
    [
        ({**REPLACED, "replaced_token": 0.2955}, {}, ("0.2955", "0.3014", "10.0%", "generator.size_fraction")),
        ({**REPLACED, "replaced_token": 0.2953}, {}, ()),
        ({"replaced_token": 0.5}, {}, ()),
        ({**ON_MASK, "mask_token_loss": 2.95}, {}, ("2.950", "3.000", "optimizer.learning_rate", "train.batch_size")),
        ({**ON_MASK, "mask_token_loss": 2.93}, {}, ()),
        ({"mask_token_loss": 2.95}, {}, ()),
        ({"mask_token_loss": 0.0, "unigram_loss": 0.0}, {}, ()),  # no token is shown as [MASK]
        ({**REPLACED, **ON_MASK, "replaced_token": 0.4, "mask_token_loss": 4.0}, {}, ("0.4000", "4.000")),
        # Only losses that are minimised, and of tokens that may be replaced.
        ({**REPLACED, "replaced_token": 0.4}, {"replaced_token_loss_weight": 0.0}, ()),
        ({**ON_MASK, "mask_token_loss": 4.0}, {"masked_lm_loss_weight": 0.0}, ()),
        ({**REPLACED, "replaced_token": 0.4}, {"name": "electra_15", "loss_positions": "random_unmasked"}, ()),
    ],
)
def test_a_network_within_two_percent_of_its_baseline_is_on_the_plateau(tiny_config, metrics, objective, parts):
    problem = plateau_problem(tiny_config(objective=objective), metrics)
    assert (problem is None) == (parts == ())
    assert all(part in problem and "\n" not in problem for part in parts)


@pytest.mark.parametrize(
    ("name", "metrics", "shown"),
    [
        ("electra", {**REPLACED, **ON_MASK, "masked_lm": 2.0}, {"mask_token_loss": 3.0, "replaced_token": 0.3014}),
        ("bert_mlm", {**ON_MASK, "masked_lm": 2.0}, {"mask_token_loss": 3.0}),
        (
            "electra",  # held out, of text whose token frequencies are unknown
            {
                **{"masked_lm_loss": 2.0, "replaced_token_loss": 0.29, "replaced_fraction": 0.1},
                **{"replaced_token_auc": 0.7, "mask_token_loss": 2.5, "unigram_loss": math.nan},
            },
            {"masked_lm_loss": None, "replaced_token_loss": 0.3014, "replaced_token_auc": None},
        ),
    ],
)
def test_a_short_report_has_the_minimised_losses_with_their_baselines(build, name, metrics, shown):
    headline = build(name).headline(metrics)
    assert list(headline) == list(shown) and headline == pytest.approx(shown, abs=5e-5)


def test_the_share_of_special_tokens_is_that_of_the_shortest_sequences(tiny_config):
    stages = [{"num_steps": steps, "max_seq_length": length, "batch_size": 4} for steps, length in ((3, 8), (4, 10))]
    config = tiny_config(stages=stages, train={"num_steps": 7, "batch_size": 4})
    assert config.objective.specials_fraction(config) == 0.25


LEFT = {
    "replaced_token_loss": 0.2601,
    "replaced_fraction": 0.1,
    "constant_predictor_loss": 0.3251,
    "replaced_token_auc": 0.778,
    "mask_token_loss": 5.5,
    "unigram_loss": 6.6,
}
PLATEAU = "the plateau of token frequencies: "
LEAVES, STAYS = f"the run has left {PLATEAU}", f"the run is still on {PLATEAU}"
ENDS, DETECTS = "the run ends with held-out ", "discriminator loss 20.0% below the constant predictor, AUC 0.78"
WORSE = f"{ENDS}{DETECTS} (on samples of a generator that is worse than"
UNIGRAM, UNIFORM = {"generator": {"kind": "unigram"}}, {"generator": {"kind": "uniform"}}
FROZEN = {"name": "fast_electra", "auxiliary": "some/run", "tying": "none", "masked_lm_loss_weight": 0.0}
BAD_GENERATOR, UNTRAINED = {"mask_token_loss": 6.61}, {"masked_lm_loss_weight": 0.0}


@pytest.mark.parametrize(
    ("changes", "objective", "begin", "shown"),
    [
        ({}, {}, LEAVES, [DETECTS, "masked-LM loss 1.10 nat below unigram on [MASK]"]),
        ({"mask_token_loss": 6.59}, {}, LEAVES, [DETECTS, "masked-LM loss 0.01 nat below unigram"]),
        ({"unigram_loss": math.nan, "mask_token_loss": 3.6}, {}, LEAVES, [DETECTS]),
        # With every sample another token than the original there is no loss to be below.
        ({"constant_predictor_loss": 0.0, "replaced_fraction": 1.0}, {}, LEAVES, ["held-out generator's masked-LM"]),
        # A discriminator that detects nothing has learnt nothing, whatever the generator.
        ({"replaced_token_loss": 0.3251, "mask_token_loss": 6.7}, {}, STAYS, ["0.0% below", "0.10 nat above"]),
        # Where frequencies reveal which tokens are replaced there is no conclusion.
        *(({}, each, ENDS, [DETECTS]) for each in ({"temperature": 2.0}, UNIFORM, {"sampling": "greedy"})),
        ({}, {"name": "electra_15"}, ENDS, [DETECTS]),
        # As in the first 20 steps, or of a generator that is not trained.
        *((BAD_GENERATOR, each, WORSE, []) for each in ({}, UNTRAINED, FROZEN, {"name": "electric"},
          {"name": "electra_15", "loss_positions": "random"})),
        # Frequencies are unknown, and ln 47 is 3.85.
        ({"unigram_loss": math.nan, "mask_token_loss": 3.7}, {}, ENDS, [DETECTS]),
        ({"mask_token_loss": 6.600001}, UNIGRAM, LEAVES, [DETECTS]),
        # The verdict is on networks that are trained.
        ({}, {"name": "bert_mlm"}, LEAVES + "held-out masked-LM loss 1.10 nat below", []),
        ({}, {"name": "replace_mlm"}, f"the generator has left {PLATEAU}held-out gen", []),
        *(({}, each, LEAVES + "held-out discriminator loss", []) for each in (UNTRAINED, UNIGRAM)),
    ],
    ids=str,
)  # fmt: skip
def test_the_verdict_describes_how_far_each_network_has_come(tiny_config, changes, objective, begin, shown):
    verdict = Objective.verdict(SimpleNamespace(config=tiny_config(objective=objective)), {**LEFT, **changes})
    assert verdict.startswith(begin) and all(part in verdict for part in shown)
    detects = objective.get("name") not in ("bert_mlm", "replace_mlm") and "constant_predictor_loss" not in changes
    assert ("AUC" in verdict) == detects


@pytest.mark.parametrize("name", ["electra", "bert_mlm"])
def test_there_is_no_conclusion_where_rare_tokens_are_masked_whose_frequencies_are_others(tiny_config, name):
    config = tiny_config(objective={"name": name}, masking={"scheme": "rare_tokens"})
    assert plateau_verdict(config, LEFT).startswith(ENDS)


def test_without_the_metrics_there_is_no_verdict(tiny_config):
    assert plateau_verdict(tiny_config(), {"replaced_token_loss": 0.25, "replaced_fraction": 0.25}) is None
