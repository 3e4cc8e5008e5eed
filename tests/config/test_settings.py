import json

import pytest

from electra_tf.tasks.pretrain.config import parse_config
from tests.config.conftest import STAGES

NOISE = [{**STAGES[0], "masked_fraction": 0.3}, STAGES[1]]
EQUAL_SIZES = ["objective.tying=all", "objective.generator.size_fraction=1"]


@pytest.mark.parametrize(
    ("override", "named"),
    [
        # Single values.
        ("train.num_steps=2147483648", "train.num_steps is 2147483648"),
        ("train.num_steps=true", "train.num_steps: expected a number, found the boolean true"),
        ("encoder.hidden_dropout=1.0", "encoder.hidden_dropout is 1.0"),
        ("optimizer.name=sgd", "optimizer.name is 'sgd'"),
        ("optimizer.learning_rate=.inf", "optimizer.learning_rate is inf"),
        ("optimizer.exclude_from_weight_decay=[bias, '[(']", "optimizer.exclude_from_weight_decay"),
        ("data.max_seq_length=7", "data.max_seq_length is 7"),
        # Generators.
        ("objective.generator.kind=unigramm", "any of the expected tags: 'transformer', 'unigram', "),
        ("objective.generator={kind: unigram, size_fraction: 0.5}", "size_fraction is not a setting of this kind"),
        ("objective.generator.num_heads=3", "objective.generator: the settings: hidden_size 8"),
        ("objective.generator.embedding_size=11", "embedding_size is 11"),
        # Settings that contradict each other.
        ("data.max_seq_length=513", "data.max_seq_length 513"),
        ("encoder.num_heads=3", "num_heads 3"),
        ("masking={mask_token_fraction: 0.8, random_token_fraction: 0.3}", "mask_token_fraction 0.8"),
        ("masking={scheme: span, selection: with_replacement}", "is of the scheme uniform, not of span"),
        ("masking.masked_fraction=[0.3, 1.5]", "masking.masked_fraction.1 is 1.5"),
        ("masking.max_span_length=7", "max_span_length 7 is of the scheme span, not of uniform"),
        ("objective={masked_lm_loss_weight: 0, replaced_token_loss_weight: 0}", "token_loss_weight: all are 0"),
        ("objective={generator: {kind: uniform}, tying: all}", "objective.tying is 'all'"),
        ("objective={generator: {kind: unigram}, sampling: greedy}", "objective.sampling is 'greedy'"),
        ("objective={tying: gradient_disentangled, generator: {embedding_size: 11}}", "'gradient_disentangled' needs"),
        ("objective={name: electra_15, disallow_correct: true}", "replaces every masked token"),
        ("objective={name: two_stage, generator: {size_fraction: 1.0}, masked_lm_loss_weight: 0}", "all are 0"),
        (
            "objective={name: hard_mlm, difficulty: {size_fraction: 0.5, num_heads: 5}}",
            "objective.difficulty: the settings: hidden_size 8 is not a multiple of num_heads 5",
        ),
        # Masking that an objective cannot have.
        ("objective.name=hard_mlm; masking.scheme=span", "masking.scheme is "),
        ("objective.name=hard_mlm; masking.selection=with_replacement", "masking.selection is "),
        ("objective.name=electric; masking.masked_fraction=[0.3, 0.15]", "the same share of noise"),
        (f"objective.name=electric; stages={json.dumps(NOISE)}", "share of noise"),
    ],
)
def test_the_error_for_a_wrong_setting_names_it(refusal, override, named):
    assert named in refusal(*override.split("; "))


@pytest.mark.parametrize(
    "override",
    [
        *("train.flops_budget=1e18", "train.flops_convention=paper", "train.attention=auto"),
        *("data.on_damaged_record=skip", "optimizer.warmup_proportion=0.1", "objective.sampling=gumbel"),
    ],
)
def test_a_name_of_an_earlier_version_is_refused(refusal, override):
    assert override.partition("=")[0] in refusal(override)


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        ("train.num_steps", "2147483647", 2**31 - 1),
        ("encoder.vocab_size", "6", 6),
        ("data.max_seq_length", "8", 8),
        # A real number may be written as an integer, and without a dot, which YAML reads as text.
        ("objective.temperature", "2", 2.0),
        ("objective.temperature", "1e-4", 1e-4),
        ("masking", "{mask_token_fraction: 0.7, random_token_fraction: 0.3}", None),  # 1 only up to rounding
    ],
)
def test_values_at_the_bounds_are_allowed(load, setting, text, value):
    result = load(f"{setting}={text}")
    for name in setting.split("."):
        result = getattr(result, name)
    assert value is None or (type(result), result) == (type(value), value)


def test_a_generator_of_another_kind_drops_the_sizes_of_the_base(load):
    before = load().objective.generator
    assert load("objective.generator.kind=transformer").objective.generator == before
    assert load("objective.generator.kind=unigram").objective.generator.model_dump() == {"kind": "unigram"}


@pytest.mark.parametrize("kind", ["unigram", "uniform"])
def test_a_generator_without_weights_is_neither_run_nor_trained(load, kind):
    config = load(f"objective.generator.kind={kind}")
    assert [[network.name for network in phase.passes] for phase in config.objective.phase_costs(config)] == [
        ["discriminator"]
    ]
    assert not config.objective.learns_masked_lm and config.objective.learns_replaced_tokens


def test_embeddings_that_are_not_shared_may_differ_in_size(load):
    untied = load("objective.generator.embedding_size=11", "objective.tying=none")
    assert untied.objective.generator.encoder(untied.encoder).embedding_size == 11


def test_tying_all_weights_requires_equal_sizes(load, refusal):
    sizes = ["objective.generator.num_heads=2", "objective.generator.intermediate_size=20"]
    assert load(*EQUAL_SIZES, *sizes).objective.tying == "all"
    for override, named in (
        ("num_heads=4", "its num_heads is 4, the discriminator's 2;"),
        ("intermediate_size=14", "its intermediate_size is 14, the discriminator's 20;"),
        ("num_layers=2", "num_layers is 2"),
        ("size_fraction=0.5", "its hidden_size is 8, the discriminator's 16;"),
    ):
        assert named in refusal(*EQUAL_SIZES, *sizes, f"objective.generator.{override}")


@pytest.mark.parametrize(
    ("length", "fraction", "slots"),
    [
        (32, 0.15, 4),
        (64, 0.15, 9),
        (128, 0.15, 19),
        (512, 0.25, 130),
        (128, 0.25, 32),
        (9, 0.15, 1),
        (300, 1.0, 300),
        (40, [0.1, 0.3], 12),
    ],
)
def test_the_number_of_slots_for_masked_positions(settings, length, fraction, slots):
    data = {"max_seq_length": length}
    config = parse_config(settings(data=data, masking={"masked_fraction": fraction}), "test")
    assert config.masking.max_predictions(length) == slots


def test_a_run_whose_masked_fraction_changes_cannot_be_extended(load):
    stable = "optimizer={schedule: warmup_stable_decay, decay_fraction: 0.25}"
    constant, falling = (load(stable, f"masking.masked_fraction={fraction}") for fraction in ("0.3", "[0.3, 0.15]"))
    assert (constant.stable_steps, falling.stable_steps) == (6, 0)


@pytest.mark.parametrize(
    ("index", "changes", "named"),
    [
        (0, {"num_steps": 6}, "train.num_steps is 8, but 9 in the stages together; set it to 9"),
        (0, {"max_seq_length": 513}, "stages.0.max_seq_length 513 is larger than encoder.max"),
        (1, {"max_seq_length": 9}, "data.max_seq_length is 10, but 9 in the last of the stages; set it to 9"),
        (1, {"batch_size": 5}, "train.batch_size is 4, but 5 in the last of the stages; set it to 5"),
        (1, {"masked_fraction": 0.1}, "masking.masked_fraction is 0.15, but 0.1 in the last of the stages; set it"),
    ],
)
def test_stages_that_contradict_the_settings_of_the_run_are_refused(load, refusal, index, changes, named):
    assert [stage.num_steps for stage in load(f"stages={json.dumps(STAGES)}").stages] == [5, 3]
    stages = [{**stage, **changes} if number == index else stage for number, stage in enumerate(STAGES)]
    assert named in refusal(f"stages={json.dumps(stages)}")
