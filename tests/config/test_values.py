"""Values that would crash a run later, or train something else than was meant, are refused at once."""

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


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *((path, 2**31) for path in ("train.num_steps", "optimizer.warmup_steps", "encoder.vocab_size")),
        *((path, True) for path in ("train.num_steps", "masking.masked_fraction", "objective.generator.num_heads")),
        ("optimizer.learning_rate", float("inf")),
        ("objective.temperature", float("nan")),
        ("optimizer.weight_decay_rate", "inf"),
        ("encoder.vocab_size", 5),
        ("encoder.initializer_range", 0),
        ("encoder.initializer_range", "width"),
        ("data.max_seq_length", 7),
        ("optimizer.exclude_from_weight_decay", ["bias", "[("]),
        ("train.gradient_accumulation_steps", 3),
    ],
)
def test_a_value_that_would_fail_later_is_refused_by_its_place(refusal, path, value):
    assert path in refusal(path, value)


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        ("train.num_steps", 2**31 - 1, 2_147_483_647),
        ("train.xla", True, True),
        ("encoder.vocab_size", 6, 6),
        ("data.max_seq_length", 8, 8),
        # A real number may be written as an integer or without a dot.
        ("objective.temperature", 2, 2.0),
        ("objective.temperature", "1e-4", 1e-4),
    ],
)
def test_values_at_the_bounds_are_allowed(parse, path, value, found):
    result = parse(path, value)
    for name in path.split("."):
        result = getattr(result, name)
    assert (type(result), result) == (type(found), found)


_TWO_STAGES = [
    {"num_steps": 5, "max_seq_length": 8, "batch_size": 6},
    {"num_steps": 3, "max_seq_length": 10, "batch_size": 4},
]


def with_stage(index: int, **changes: int) -> list[dict]:
    return [{**stage, **changes} if number == index else stage for number, stage in enumerate(_TWO_STAGES)]


@pytest.mark.parametrize(
    ("stages", "named"),
    [
        (with_stage(0, num_steps=6), "train.num_steps is 8, and 9 in the stages together; set it to 9"),
        (with_stage(0, max_seq_length=513), "stages.0.max_seq_length 513 is longer than the position table"),
        (with_stage(1, max_seq_length=9), "data.max_seq_length is 10, and 9 in the last of the stages; set it to 9"),
        (with_stage(1, batch_size=5), "train.batch_size is 4, and 5 in the last of the stages; set it to 5"),
    ],
)
def test_stages_that_differ_from_the_whole_training_are_refused(parse, refusal, stages, named):
    assert [stage.num_steps for stage in parse("stages", _TWO_STAGES).stages] == [5, 3]
    assert named in refusal("stages", stages)


def test_the_batch_of_every_stage_divides_into_micro_batches(settings):
    train = {"gradient_accumulation_steps": 4}
    with pytest.raises(UserError, match=r"stages\.0\.batch_size 6 does not divide"):
        parse_config(merge_settings(settings(), {"train": train, "stages": _TWO_STAGES}), source="test")
