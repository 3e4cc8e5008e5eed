"""Settings of an objective that contradict each other are refused in one line."""

import pytest

from electra_tf.config.errors import UserError

EQUAL_SIZES = {"size_fraction": 1.0, "num_heads": None, "intermediate_size": None}
HALF_SIZE = {"size_fraction": 0.5, "num_heads": 4}


@pytest.mark.parametrize(
    ("name", "settings", "masking", "message"),
    [
        ("adversarial", {"temperature": 2.0}, {}, "objective.temperature is 2.0"),
        ("adversarial", {"disallow_correct": True}, {}, "objective.disallow_correct"),
        ("adversarial", {"sampling": "greedy"}, {}, "objective.sampling"),
        ("adversarial", {"tying": "all", "generator": EQUAL_SIZES}, {}, "objective.tying 'all'"),
        ("electric", {"temperature": 2.0}, {}, "objective.temperature is 2.0"),
        ("electric", {"disallow_correct": True}, {}, "objective.disallow_correct"),
        ("electric", {"sampling": "greedy"}, {}, "objective.sampling is 'greedy'"),
        ("electric", {}, {"scheme": "rare_tokens"}, "masking.scheme 'rare_tokens'"),
        ("electric", {"tying": "all"}, {}, "objective.tying is 'all'"),
        ("electric", {}, {"masked_fraction": 1.0}, "masking.masked_fraction 1.0"),
        ("two_stage", {"tying": "embeddings"}, {}, "objective.tying 'embeddings'"),
        ("two_stage", {"tying": "all"}, {}, "objective.tying 'all'"),
        ("two_stage", {"generator": HALF_SIZE}, {}, "its hidden_size is 8, the discriminator's 16; its num_heads is 4"),
        ("two_stage", {"generator_steps": 8}, {}, "objective.generator_steps 8"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(tiny_config, name, settings, masking, message):
    with pytest.raises(UserError) as caught:
        tiny_config(objective={"name": name, **settings}, masking=masking)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_without_copied_weights_the_generator_of_two_stage_may_have_any_size(tiny_config):
    settings = {"name": "two_stage", "initialize_from_generator": False, "generator": {"size_fraction": 0.5}}
    assert tiny_config(objective=settings).objective.generator.size_fraction == 0.5
