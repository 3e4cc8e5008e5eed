"""The masked-LM baseline: what the configurations say about masking reaches the batch."""

import math
from pathlib import Path

import numpy as np
import pytest

from electra_tf.tasks.pretrain.config import load_config

PRESETS = Path(__file__).resolve().parents[2] / "configs" / "pretrain"
MASK, VOCAB_SIZE = 4, 47


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("bert_small", (0.8, 0.1)),
        ("bert_base", (0.8, 0.1)),
        ("bert_large", (0.8, 0.1)),
        ("ablations/bert_mlm_85_15", (0.85, 0.0)),
    ],
)
def test_selected_tokens_are_shown_as_the_configuration_says(tiny_config, tiny_batch, name, shares):
    preset = load_config(PRESETS / f"{name}.yaml")
    assert preset.objective.name == "bert_mlm"
    settings = {"data": {"max_seq_length": 13}, "masking": preset.masking.model_dump()}
    batch = tiny_batch(tiny_config(objective={"name": "bert_mlm"}, **settings), [13] * 1000)
    used = batch["masked_lm_weights"].numpy() > 0
    original = batch["masked_lm_ids"].numpy()[used]
    positions = batch["masked_lm_positions"].numpy()
    shown = np.take_along_axis(batch["masked_input_ids"].numpy(), positions, axis=1)[used]
    n = len(shown)
    assert n == 2 * 1000  # 15 % of 13 tokens
    mask_share, random_share = shares
    # A random token is [MASK], or the original one, in one of 47 cases each.
    expected_masked = mask_share + random_share / VOCAB_SIZE
    expected_kept = (1.0 - mask_share - random_share) + random_share / VOCAB_SIZE
    for found, expected in ((shown == MASK, expected_masked), (shown == original, expected_kept)):
        assert abs(found.mean() - expected) < 4 * math.sqrt(expected * (1.0 - expected) / n)
    others = ((shown != MASK) & (shown != original)).mean()
    assert others > 0.05 if random_share else others == 0.0
