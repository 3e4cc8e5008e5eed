"""What a report shows of the plateau, and the verdict at the end of a run."""

import math

import pytest

from electra_tf.tasks.pretrain.health import plateau_problem, plateau_verdict

# The loss of the same answer for every token is H(0.1) = 0.3251. As two of ten tokens are [CLS] and [SEP], the same
# answer for every word gives 0.8 H(0.1 / 0.8) = 0.3014, and 2 % less is 0.2954. 98 % of the loss of token frequencies,
# 3, is 2.94.
REPLACED, MASKED = {"replaced_token": 0.29, "replaced_fraction": 0.1}, {"mask_token_loss": 2.5, "unigram_loss": 3.0}


@pytest.mark.parametrize(
    ("metrics", "objective", "parts"),
    [
        ({**REPLACED, **MASKED}, {}, ()),
        ({**REPLACED, "replaced_token": 0.2955}, {}, ("0.2955", "0.3014", "10.0%", "generator.size_fraction")),
        ({**REPLACED, "replaced_token": 0.2953}, {}, ()),
        ({"replaced_token": 0.5}, {}, ()),
        ({**MASKED, "mask_token_loss": 2.95}, {}, ("2.950", "3.000", "optimizer.learning_rate", "train.batch_size")),
        ({**MASKED, "mask_token_loss": 2.93}, {}, ()),
        ({"mask_token_loss": 2.95}, {}, ()),
        ({"mask_token_loss": 0.0, "unigram_loss": 0.0}, {}, ()),  # no token is shown as [MASK]
        ({**REPLACED, **MASKED, "replaced_token": 0.4, "mask_token_loss": 4.0}, {}, ("0.4000", "4.000")),
        # Only losses that are minimised, and of tokens that may be replaced.
        ({**REPLACED, "replaced_token": 0.4}, {"replaced_token_loss_weight": 0.0}, ()),
        ({**MASKED, "mask_token_loss": 4.0}, {"masked_lm_loss_weight": 0.0}, ()),
        ({**REPLACED, "replaced_token": 0.4}, {"name": "electra_15", "loss_positions": "random_unmasked"}, ()),
    ],
)
def test_a_network_within_two_percent_of_its_baseline_is_on_the_plateau(tiny_config, metrics, objective, parts):
    problem = plateau_problem(tiny_config(objective=objective), metrics)
    assert (problem is None) == (parts == ())
    assert all(part in problem and "\n" not in problem for part in parts)


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
STAYED = {"replaced_token_loss": 0.3251}
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
        ({**STAYED, "mask_token_loss": 6.7}, {}, STAYS, ["0.0% below", "0.10 nat above"]),
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
        ({}, UNTRAINED, LEAVES + "held-out discriminator loss", []),
        ({}, UNIGRAM, LEAVES + "held-out discriminator loss", []),
    ],
    ids=str,
)  # fmt: skip
def test_the_verdict_describes_how_far_each_network_has_come(tiny_config, changes, objective, begin, shown):
    verdict = plateau_verdict(tiny_config(objective=objective), {**LEFT, **changes})
    assert verdict.startswith(begin) and all(part in verdict for part in shown)
    detects = objective.get("name") not in ("bert_mlm", "replace_mlm") and "constant_predictor_loss" not in changes
    assert ("AUC" in verdict) == detects


@pytest.mark.parametrize("name", ["electra", "bert_mlm"])
def test_there_is_no_conclusion_where_rare_tokens_are_masked_whose_frequencies_are_others(tiny_config, name):
    config = tiny_config(objective={"name": name}, masking={"scheme": "rare_tokens"})
    assert plateau_verdict(config, LEFT).startswith(ENDS)


def test_without_the_metrics_there_is_no_verdict(tiny_config):
    assert plateau_verdict(tiny_config(), {"replaced_token_loss": 0.25, "replaced_fraction": 0.25}) is None
