"""Values that would crash a run later, or train something else than was asked for, are refused at once."""

import pytest

from electra_tf.config.errors import UserError
from electra_tf.tasks.pretrain.config import merge_settings, parse_config


@pytest.fixture
def parse(settings):
    """`parse(path, value)`: the configuration with the setting at `path` changed."""

    def build(path: str, value: object):
        for name in reversed(path.split(".")):
            value = {name: value}
        return parse_config(merge_settings(settings(), value), source="test")

    return build


@pytest.fixture
def refusal(parse, message_of):
    """`refusal(path, value)`: the one line that says why the value is refused."""
    return lambda path, value: message_of(parse, path, value)


def test_a_pattern_that_is_no_regular_expression_is_named(refusal):
    message = refusal("optimizer.exclude_from_weight_decay", ["bias", "[("])
    assert "optimizer.exclude_from_weight_decay: the pattern '[(' is not a regular expression" in message


@pytest.mark.parametrize(
    "path",
    [
        "train.num_steps",
        "train.batch_size",
        "train.seed",
        "train.log_every_steps",
        "train.save_every_steps",
        "optimizer.warmup_steps",
        "evaluation.every_steps",
        "encoder.vocab_size",
    ],
)
def test_a_count_beyond_32_bits_is_refused(refusal, path):
    assert f"{path} is 2147483648; input should be less than or equal to 2147483647" in refusal(path, 2**31)


def test_the_largest_count_of_32_bits_is_allowed(parse):
    assert parse("train.num_steps", 2**31 - 1).train.num_steps == 2_147_483_647


@pytest.mark.parametrize("value", [float("inf"), float("nan"), "inf"])
@pytest.mark.parametrize("path", ["optimizer.learning_rate", "objective.temperature", "optimizer.weight_decay_rate"])
def test_a_number_that_is_not_finite_is_refused(refusal, path, value):
    assert f"{path} is {value!r}; input should be a finite number" in refusal(path, value)


@pytest.mark.parametrize(
    "path",
    [
        "train.num_steps",
        "train.seed",
        "encoder.hidden_dropout",
        "evaluation.batch_size",
        "evaluation.every_steps",
        "masking.masked_fraction",
        "objective.generator.num_heads",
        "objective.temperature",
        "optimizer.decay_power",
    ],
)
def test_a_boolean_is_no_number(refusal, path):
    assert f"{path}: expected a number, found the boolean true" in refusal(path, True)


def test_a_boolean_in_a_list_of_numbers_is_refused(refusal):
    assert "train.milestone_fractions.1: expected a number, found the boolean true" in refusal(
        "train.milestone_fractions", [0.5, True]
    )


def test_a_boolean_setting_takes_a_boolean(parse):
    assert parse("train.xla", True).train.xla is True


@pytest.mark.parametrize(("value", "number"), [(2, 2.0), ("1e-4", 1e-4), (0.5, 0.5)])
def test_a_real_number_may_be_written_as_an_integer_or_without_a_dot(parse, value, number):
    temperature = parse("objective.temperature", value).objective.temperature
    assert (type(temperature), temperature) == (float, number)


def test_a_vocabulary_without_a_single_word_is_refused(refusal):
    assert "encoder.vocab_size is 5; input should be greater than or equal to 6" in refusal("encoder.vocab_size", 5)


def test_a_vocabulary_of_one_word_is_allowed(parse):
    assert parse("encoder.vocab_size", 6).encoder.vocab_size == 6


def test_a_length_at_which_no_data_is_built_is_refused(refusal):
    assert "data.max_seq_length is 7; input should be greater than or equal to 8" in refusal("data.max_seq_length", 7)


def test_the_shortest_length_at_which_data_is_built_is_allowed(parse):
    assert parse("data.max_seq_length", 8).data.max_seq_length == 8


_TWO_STAGES = [
    {"num_steps": 5, "max_seq_length": 8, "batch_size": 6},
    {"num_steps": 3, "max_seq_length": 10, "batch_size": 4},
]


def with_stage(index: int, **changes: int) -> list[dict]:
    return [{**stage, **changes} if number == index else stage for number, stage in enumerate(_TWO_STAGES)]


def test_stages_that_make_up_the_training_are_allowed(parse):
    assert [stage.num_steps for stage in parse("stages", _TWO_STAGES).stages] == [5, 3]


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        (with_stage(0, num_steps=6), "stages have 9 steps together, train.num_steps is 8; set it to 9"),
        (with_stage(0, max_seq_length=513), "stages.0.max_seq_length 513 is longer than the position table"),
        (with_stage(1, max_seq_length=9), "data.max_seq_length is 10, and 9 in the last of the stages; set it to 9"),
        (with_stage(1, batch_size=5), "train.batch_size is 4, and 5 in the last of the stages; set it to 5"),
    ],
)
def test_stages_that_do_not_make_up_the_training_are_refused(refusal, stages, said):
    assert said in refusal("stages", stages)


def test_a_batch_that_does_not_divide_into_micro_batches_is_refused(refusal):
    message = refusal("train.gradient_accumulation_steps", 3)
    assert "train.batch_size 4 does not divide into train.gradient_accumulation_steps 3" in message


def test_the_batch_of_every_stage_divides_into_micro_batches(settings):
    train = {"gradient_accumulation_steps": 4}
    with pytest.raises(UserError, match=r"stages\.0\.batch_size 6 does not divide"):
        parse_config(merge_settings(settings(), {"train": train, "stages": _TWO_STAGES}), source="test")
