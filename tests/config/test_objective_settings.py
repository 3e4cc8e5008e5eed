"""The settings of an objective and its generator, and their mistakes."""

import pytest

from electra_tf.tasks.pretrain.config import load_config


def test_a_generator_of_another_kind_drops_the_sizes_of_the_base_and_its_kind_named_again_keeps_them(write, settings):
    before = load_config(write(settings())).objective.generator
    assert before.kind == "transformer"
    assert load_config(write(settings()), ["objective.generator.kind=transformer"]).objective.generator == before
    config = load_config(write(settings()), ["objective.generator.kind=unigram"])
    assert config.objective.generator.model_dump() == {"kind": "unigram"}


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("objective.generator.kind=unigramm", "objective.generator.kind is 'unigramm'; did you mean unigram?"),
        ("objective.generator={kind: 5}", "generator.kind is '5'; there are: transformer, uniform, unigram"),
        ("objective.generator={kind: unigram, size_fraction: 0.5}", "generator.size_fraction is not a setting; there"),
        ("objective.generator.size_fraction=big", "objective.generator.size_fraction is 'big'; input should be a"),
        ("objective.generator=7", "objective.generator is 7"),
        (
            "objective={generator: {kind: uniform}, tying: all}",
            "tying is 'all', but a uniform generator has no weights",
        ),
        ("objective={generator: {kind: unigram}, sampling: greedy}", "objective.sampling is 'greedy'"),
    ],
)
def test_a_mistake_in_a_generator_is_named_with_its_place(write, settings, refusal, override, complaint):
    assert complaint in refusal(write(settings()), override)


def test_a_generator_without_its_size_is_refused(write, settings, refusal):
    values = settings()
    values["objective"]["generator"] = {}
    assert "objective.generator.size_fraction is missing" in refusal(write(values))


@pytest.mark.parametrize("kind", ["unigram", "uniform"])
def test_a_generator_without_weights_has_no_pass_and_learns_nothing(write, settings, kind):
    config = load_config(write(settings()), [f"objective.generator.kind={kind}"])
    assert [[part.name for part in phase.passes] for phase in config.objective.phases(config)] == [["discriminator"]]
    assert not config.objective.learns_masked_lm and config.objective.learns_replaced_tokens


def test_disentangled_embeddings_of_two_sizes_are_refused(write, settings, refusal):
    message = refusal(
        write(settings()), "objective.tying=gradient_disentangled", "objective.generator.embedding_size=11"
    )
    assert "objective.tying 'gradient_disentangled' shares the embeddings" in message


def test_only_the_sizes_that_differ_are_named(write, settings, refusal):
    message = refusal(write(settings()), "objective.tying=all", "objective.generator.num_heads=2")
    assert "its hidden_size is 8, the discriminator's 16; set objective.generator.size_fraction to 1.0" in message
    assert "num_layers" not in message


@pytest.mark.parametrize("scheme", ["rare_tokens", "span", "whole_word"])
def test_only_the_uniform_scheme_selects_with_replacement(write, settings, refusal, scheme):
    message = refusal(write(settings()), f"masking={{scheme: {scheme}, selection: with_replacement}}")
    assert f"{scheme}" in message


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["objective.name=[electra]"], "objective.name is ['electra']"),
        (
            ["objective.temperature=0.0000001"],
            "objective.temperature is 1e-07; input should be greater than or equal to",
        ),
        (
            ["objective.masked_lm_loss_weight=0", "objective.replaced_token_loss_weight=0"],
            "masked_lm_loss_weight, replaced_token_loss_weight: all are 0",
        ),
        (
            ["objective.generator.kind=unigram", "objective.replaced_token_loss_weight=0"],
            "replaced_token_loss_weight: all are 0",
        ),
        (
            ["objective={name: two_stage, generator: {size_fraction: 1.0}, masked_lm_loss_weight: 0}"],
            "objective.masked_lm_loss_weight is 0",
        ),
        (
            ["objective={name: two_stage, generator: {size_fraction: 1.0}, replaced_token_loss_weight: 0}"],
            "objective.replaced_token_loss_weight is 0",
        ),
        (["objective.name=electra_15", "objective.disallow_correct=true"], "replaces every masked token"),
        (["objective={name: hard_mlm}", "masking.scheme=span"], "masking.scheme is 'span', but objective.name"),
        (["objective={name: hard_mlm}", "masking.selection=with_replacement"], "masking.selection is 'with_replace"),
        (
            ["objective={name: hard_mlm, difficulty: {size_fraction: 0.5, num_heads: 5}}"],
            "objective.difficulty: hidden_size 8 does not divide into num_heads 5",
        ),
    ],
)
def test_settings_with_which_an_objective_cannot_be_trained_are_refused(write, settings, refusal, overrides, complaint):
    assert complaint in refusal(write(settings()), *overrides)
