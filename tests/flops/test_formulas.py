"""FLOPs by formula: the authors' numbers, the presets in the documentation, and small networks counted by hand."""

import subprocess
import sys
from pathlib import Path

import pytest

from electra_tf.config.networks import EncoderConfig
from electra_tf.flops import hardware, paper
from electra_tf.flops.budget import RunCost
from electra_tf.flops.passes import HeadPass, NetworkPass
from electra_tf.flops.published import PUBLISHED
from electra_tf.tasks.pretrain.config import load_config

PROJECT = Path(__file__).resolve().parents[2]
ENCODER = EncoderConfig(vocab_size=11, embedding_size=3, hidden_size=4, num_layers=2, num_heads=2, intermediate_size=5)


def test_the_table_in_the_documentation_has_the_numbers_of_the_presets():
    rows = {
        "an example, paper": lambda cost, run: cost.of_step(1).paper / run.train.batch_size,
        "an example, hardware": lambda cost, run: cost.of_step(1).hardware.total / run.train.batch_size,
        "of that, matrix products": lambda cost, run: cost.of_step(1).hardware.products / run.train.batch_size,
        "the run, paper": lambda cost, run: cost.spent(run.train.num_steps).paper,
    }
    runs = [load_config(name) for name in ("small", "base", "large")]
    text = (PROJECT / "docs" / "notes" / "flops.md").read_text(encoding="utf-8")
    for row, number in rows.items():
        numbers = [f"{float(number(RunCost(run), run)):.3e}".replace("e+0", "e").replace("e+", "e") for run in runs]
        assert f"| {row} | {' | '.join(numbers)} |" in text


def products(*heads: HeadPass, trained: bool = True, encoder: EncoderConfig = ENCODER) -> dict[str, tuple[int, int]]:
    """Forward and backward products by part, over 7 tokens of which 6 may be masked."""
    parts = hardware.pass_flops(NetworkPass("network", encoder, heads, trained), seq_length=7, max_predictions=6)
    return {name: (part.forward.products, part.backward.products) for name, part in parts.items()}


def test_the_products_of_an_encoder_by_hand():
    projection = 7 * 2 * 3 * 4
    attention = 2 * 7 * (4 * 2 * 4 * 4 + 2 * 2 * 4 * 7)
    feed_forward = 2 * 7 * 2 * (2 * 4 * 5)
    segments = 7 * 2 * 2 * 3
    assert products() == {
        "segments": (segments, segments),
        "embeddings": (0, 0),
        "projection": (projection, 2 * projection),
        "attention": (attention, 2 * attention),
        "feed_forward": (feed_forward, 2 * feed_forward),
    }


def test_the_operations_beside_the_products_by_hand():
    heads = HeadPass("token", "all"), HeadPass("vocabulary", "masked")
    parts = hardware.pass_flops(NetworkPass("network", ENCODER, heads), seq_length=7, max_predictions=6)
    residual = (1 + 4 + 1 + 5) * 4
    assert {name: part.forward.elementwise for name, part in parts.items()} == {
        "segments": 0,
        "embeddings": 7 * (2 + 5 + 4) * 3,
        "projection": 7 * 4,
        "attention": 2 * 7 * ((1 + 5 + 4) * 7 * 2 + 3 * 4 + residual),
        "feed_forward": 2 * 7 * ((1 + 8) * 5 + residual),
        "token_head": 7 * ((1 + 8) * 4 + 1),
        "vocabulary_head": 6 * ((1 + 8 + 5) * 3 + (1 + 5 + 1) * 11),
    }


def test_the_products_of_the_modern_block_by_hand():
    # The second layer is local: four blocks of 2 queries, the last half empty, each with the keys of three blocks.
    settings = {"block": "modern", "global_attention_every_n_layers": 2, "local_attention": 4}
    encoder = ENCODER.model_copy(update=settings)
    attention = 2 * 7 * 4 * 2 * 4 * 4 + 2 * 2 * 4 * (7 * 7 + 8 * 6)
    feed_forward = 2 * 7 * 3 * (2 * 4 * 5)
    counted = products(encoder=encoder)
    assert counted["segments"] == (0, 0)
    assert counted["attention"] == (attention, 2 * attention)
    assert counted["feed_forward"] == (feed_forward, 2 * feed_forward)
    keys = [paper.attention(ENCODER.model_copy(update={**settings, "local_attention": width}), 7) for width in (4, 20)]
    assert keys[1] - keys[0] == 7 * (7 - 6) * (2 * 4 + (1 + 5 + 4) * 2 + 2 * 4)


@pytest.mark.parametrize(
    ("head", "forward"),
    [
        (HeadPass("vocabulary", "masked"), 6 * (2 * 4 * 3 + 2 * 3 * 11)),
        (HeadPass("vocabulary", "all", input_size=8), 7 * (2 * 8 * 3 + 2 * 3 * 11)),
        (HeadPass("token", "all"), 7 * (2 * 4 * 4 + 2 * 4)),
        (HeadPass("token", "first", input_size=8, inner_size=9, num_outputs=2), 2 * 8 * 9 + 2 * 9 * 2),
        (HeadPass("unit", "first", num_outputs=3), 2 * 4 * 3),
    ],
)
def test_the_products_of_a_head_by_hand(head, forward):
    assert products(head)[f"{head.kind}_head"] == (forward, 2 * forward)


def test_a_head_that_does_not_train_the_encoder_computes_no_gradient_of_its_inputs():
    assert products(HeadPass("unit", "masked", trains_encoder=False))["unit_head"] == (6 * 2 * 4, 6 * 2 * 4)


def test_frozen_networks_have_no_backward_pass_and_the_paper_counts_backward_as_forward():
    assert {backward for _, backward in products(HeadPass("token", "all"), trained=False).values()} == {0}
    passes = [NetworkPass("network", ENCODER, (), trained) for trained in (True, False)]
    forward = sum(paper.forward_parts(passes[0], 7).values())
    assert [paper.example_flops([each], 7) for each in passes] == [2 * forward, forward]


def test_a_head_that_is_not_trained_has_no_backward_pass_in_both_conventions():
    head = HeadPass("unit", "all", trained=False)
    assert products(head)["unit_head"] == (7 * 2 * 4, 0)
    with_it, without = (paper.example_flops([NetworkPass("network", ENCODER, heads)], 7) for heads in ((head,), ()))
    assert with_it - without == 7 * 2 * 4


def test_the_thirteen_published_numbers_are_reproduced_to_every_digit():
    assert {name: float(flops) for name, flops in PUBLISHED.items()} == {
        "elmo": 3.4114394716164127e18,
        "xlnet": 3.856582065028608e21,
        "gpt": 3.968752230785352e19,
        "bert_small": 1.4187399146496e18,
        "bert_base": 6.428335104e19,
        "bert_large": 1.91720905883648e20,
        "electra_small": 1.293743798272e18,
        "electra_base": 6.424541834277683e19,
        "electra_400k": 7.117606040895488e20,
        "electra_1.75M": 3.113952642891776e21,
        "roberta": 3.187221435776e21,
        "albert": 3.113923955392512e22,
        "t5_11b": 4.581900124212429e22,
    }


def test_the_formulas_do_not_import_tensorflow():
    program = "import sys, electra_tf.flops.published, electra_tf.flops.budget; print('tensorflow' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"
