"""FLOPs by formula: the shipped sizes against the authors' and our own figures, and small cases by hand."""

from fractions import Fraction
from pathlib import Path

import pytest

from electra_tf.config.networks import EncoderConfig
from electra_tf.flops import hardware, paper
from electra_tf.flops.budget import NOTHING, RunCost
from electra_tf.flops.passes import Head, NetworkPass, Phase
from electra_tf.tasks.pretrain.config import load_config

PRETRAIN = Path(__file__).resolve().parents[2] / "configs" / "pretrain"


def cost_of(name: str) -> RunCost:
    return RunCost(load_config(PRETRAIN / f"{name}.yaml"))


# The authors' published numbers.
@pytest.mark.parametrize(
    ("name", "num_steps", "flops"),
    [
        ("small", 1_000_000, 1.293743798272e18),
        ("base", 766_000, 6.424541834277683e19),
        ("large", 400_000, 7.117606040895488e20),
        ("bert_small", 1_450_000, 1.4187399146496e18),
    ],
)
def test_a_shipped_run_costs_what_the_authors_published(name, num_steps, flops):
    assert float(cost_of(name).spent(num_steps).paper) == flops


# Matrix products with 20 slots for masked positions, elementwise operations by another count.
@pytest.mark.parametrize(
    ("name", "length", "flops"),
    [("small", 128, 9.16e9), ("base", 128, 7.89e10), ("base", 512, 3.47e11), ("large", 512, 1.11e12)],
)
def test_an_example_costs_the_hardware_what_an_independent_count_says(name, length, flops):
    (stretch,) = cost_of(name).stretches
    slots = load_config(PRETRAIN / f"{name}.yaml").masking.max_predictions(length)
    found = hardware.example_flops(stretch.passes, length, slots)
    assert found.total == pytest.approx(flops, rel=0.01)
    assert found.products == pytest.approx(found.total, rel=0.02)


def test_the_matrix_products_of_small_are_the_nine_gflop_that_the_benchmarks_count():
    assert cost_of("small").stretches[0].example().hardware.products == pytest.approx(9.0e9, rel=0.002)


ENCODER = EncoderConfig(vocab_size=11, embedding_size=3, hidden_size=4, num_layers=2, num_heads=2, intermediate_size=5)


def products(*heads: Head, trained: bool = True) -> dict[str, tuple[int, int]]:
    """Forward and backward products by part, over 7 tokens of which 6 may be masked."""
    found = hardware.pass_flops(NetworkPass("network", ENCODER, heads, trained), seq_length=7, max_predictions=6)
    return {name: (part.forward.products, part.backward.products) for name, part in found.items()}


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


@pytest.mark.parametrize(
    ("head", "forward"),
    [
        (Head("vocabulary", "masked"), 6 * (2 * 4 * 3 + 2 * 3 * 11)),
        (Head("vocabulary", "all", input_size=8), 7 * (2 * 8 * 3 + 2 * 3 * 11)),
        (Head("token", "all"), 7 * (2 * 4 * 4 + 2 * 4)),
        (Head("token", "first", input_size=8, inner_size=9, num_outputs=2), 2 * 8 * 9 + 2 * 9 * 2),
        (Head("unit", "first", num_outputs=3), 2 * 4 * 3),
    ],
)
def test_the_products_of_a_head_by_hand(head, forward):
    assert products(head)[f"{head.kind}_head"] == (forward, 2 * forward)


def test_a_head_that_does_not_train_the_encoder_needs_no_gradient_by_its_vectors():
    head = Head("unit", "masked", trains_encoder=False)
    assert products(head)["unit_head"] == (6 * 2 * 4, 6 * 2 * 4)


def test_what_is_not_trained_has_no_backward_pass():
    found = products(Head("token", "all"), trained=False)
    assert found["token_head"][0] > 0
    assert {backward for _, backward in found.values()} == {0}


def test_the_paper_counts_as_much_backward_as_forward_and_a_look_up_as_a_product():
    network = paper.PaperNetwork.of(ENCODER, seq_length=7)
    assert network.embeddings() == 7 * (2 * 3 * 11 + 2 * 3 * (7 + 2) + 2 * 3 + 5 * 3 + 4 * 3 + 2 * 3 * 4 + 4)
    forward = network.embeddings() + network.layers()
    trained = [NetworkPass("network", ENCODER, (), trained) for trained in (True, False)]
    assert [paper.example_flops([each], 7) for each in trained] == [2 * forward, forward]


def test_a_head_that_is_not_trained_has_no_backward_pass_by_either_count():
    head = Head("unit", "all", trained=False)
    assert products(head)["unit_head"] == (7 * 2 * 4, 0)
    with_it, without = (paper.example_flops([NetworkPass("network", ENCODER, heads)], 7) for heads in ((head,), ()))
    assert with_it - without == 7 * 2 * 4


def test_the_paper_predicts_80_of_512_positions_whatever_the_length():
    head = paper.forward_parts(NetworkPass("network", ENCODER, (Head("vocabulary", "masked"),)), 7)["vocabulary_head"]
    assert head == Fraction(80, 512) * 7 * (2 * 4 * 3 + (1 + 8 + 5) * 3 + 2 * 3 * 11 + 7 * 11)


def test_fine_tuning_costs_the_encoder_and_its_small_heads_forward_and_backward():
    heads = hardware.classifier_heads(num_classes=3)
    found = hardware.finetuning_flops(ENCODER, heads, seq_length=7)
    assert found.products == sum(sum(part) for part in products(*heads).values())
    assert hardware.inference_flops(ENCODER, heads, 7).products == sum(part[0] for part in products(*heads).values())
    spans = products(*hardware.span_heads(ENCODER, inner_size=9))
    assert spans["unit_head"][0] == 7 * 2 * 4
    assert spans["token_head"][0] == (7 + 1) * (2 * 8 * 9 + 2 * 9)


def test_a_step_of_small_is_what_fine_tuning_costs_within_a_quarter():
    encoder = load_config(PRETRAIN / "small.yaml").encoder
    found = hardware.finetuning_flops(encoder, hardware.classifier_heads(2), 128)
    assert 0.75 * 9.0e9 < found.total < 9.0e9


@pytest.fixture
def in_phases(tiny_config, monkeypatch):
    """Eight steps: a generator for five, then a discriminator above it; stages of 3 x 4 x 10 and 5 x 6 x 8 tokens."""
    stages = [
        {"num_steps": 3, "batch_size": 4, "max_seq_length": 10},
        {"num_steps": 5, "batch_size": 6, "max_seq_length": 8},
    ]
    config = tiny_config(stages=stages, train={"batch_size": 6}, data={"max_seq_length": 8})
    (phase,) = config.objective.phases(config)
    generator, discriminator = phase.passes
    phases = (Phase(5, (generator,)), Phase(3, (discriminator,)))
    monkeypatch.setattr(type(config.objective), "phases", lambda self, run: phases)
    return RunCost(config), generator, discriminator


def test_a_run_is_cut_where_its_phases_and_its_stages_end(in_phases):
    cost, generator, discriminator = in_phases
    found = [
        (s.first_step, s.last_step, s.passes, s.batch_size, s.seq_length, s.max_predictions) for s in cost.stretches
    ]
    assert found == [
        (0, 3, (generator,), 4, 10, 3),
        (3, 5, (generator,), 6, 8, 2),
        (5, 8, (discriminator,), 6, 8, 2),
    ]


def test_what_a_run_took_is_the_sum_of_its_steps(in_phases):
    cost, *_ = in_phases
    for step in range(8):
        assert cost.spent(step + 1) == cost.spent(step) + cost.of_step(step + 1)
    assert cost.spent(0) == NOTHING
    assert (cost.spent(4).examples, cost.spent(4).token_slots) == (3 * 4 + 6, 3 * 4 * 10 + 6 * 8)


@pytest.mark.parametrize("convention", ["paper", "hardware"])
def test_a_budget_pays_for_the_steps_that_it_was_made_of(in_phases, convention):
    cost, *_ = in_phases
    for step in range(1, 9):
        budget = cost.spent(step).flops(convention)
        assert cost.steps_within(budget, convention) == step
        assert cost.steps_within(budget - 1, convention) == step - 1
