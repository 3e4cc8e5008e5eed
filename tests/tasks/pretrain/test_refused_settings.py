"""Settings of an objective that contradict each other are refused in one line."""

import pytest

from electra_tf.config.errors import UserError

EQUAL_SIZES = {"size_fraction": 1.0, "num_heads": None, "intermediate_size": None}


@pytest.mark.parametrize(
    ("objective", "masking", "message"),
    [
        (
            {"name": "adversarial", "temperature": 2.0},
            {},
            "objective.temperature is 2.0, but the policy gradient of adversarial",
        ),
        (
            {"name": "adversarial", "disallow_correct": True},
            {},
            "objective.disallow_correct is True, but the policy gradient of adversarial",
        ),
        ({"name": "adversarial", "sampling": "greedy"}, {}, "objective.sampling 'greedy' is deterministic"),
        (
            {"name": "adversarial", "tying": "all", "generator": EQUAL_SIZES},
            {},
            "objective.tying 'all' makes generator and discriminator one network",
        ),
        (
            {"name": "electric", "temperature": 2.0},
            {},
            "objective.temperature 2.0 samples from another distribution",
        ),
        (
            {"name": "electric", "disallow_correct": True},
            {},
            "objective.disallow_correct True samples from another distribution",
        ),
        ({"name": "electric", "sampling": "greedy"}, {}, "needs sampling probabilities; use 'categorical'"),
        (
            {"name": "electric"},
            {"scheme": "rare_tokens"},
            "masking.scheme 'rare_tokens' selects some tokens more often",
        ),
        ({"name": "electric", "tying": "all"}, {}, "objective.tying is 'all'"),
        (
            {"name": "electric"},
            {"masked_fraction": 1.0},
            "masking.masked_fraction 1.0 leaves no token that is not noise",
        ),
        (
            {"name": "two_stage", "tying": "embeddings"},
            {},
            "objective.tying 'embeddings' shares weights with the generator",
        ),
        ({"name": "two_stage", "tying": "all"}, {}, "objective.tying 'all' shares weights with the generator"),
        (
            {"name": "two_stage", "generator": {"size_fraction": 0.5, "num_heads": 4}},
            {},
            "its hidden_size is 8, the discriminator's 16; its num_heads is 4, the discriminator's 2",
        ),
        ({"name": "two_stage", "generator_steps": 8}, {}, "generator_steps 8 leaves nothing of train.num_steps 8"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(tiny_config, objective, masking, message):
    with pytest.raises(UserError) as caught:
        tiny_config(objective=objective, masking=masking)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_without_copied_weights_the_generator_of_two_stage_may_have_any_size(tiny_config):
    settings = {"name": "two_stage", "initialize_from_generator": False, "generator": {"size_fraction": 0.5}}
    assert tiny_config(objective=settings).objective.generator.size_fraction == 0.5
