import pytest

from electra_tf.config.errors import UserError
from electra_tf.tasks.pretrain.config import parse_config
from electra_tf.tasks.pretrain.reduction import ReducedSizes, reduce_config

SIZES = ReducedSizes(vocab_size=47, hidden_size=64, max_seq_length=12, batch_size=4, num_steps=2)
FULL = {
    "encoder": {
        "vocab_size": 30522,
        "embedding_size": 128,
        "hidden_size": 256,
        "num_layers": 12,
        "num_heads": 8,
        "intermediate_size": 1024,
    },
    "objective": {"name": "electra", "generator": {"size_fraction": 0.5}},
    "data": {"max_seq_length": 128},
    "optimizer": {"learning_rate": 3e-4},
    "train": {"num_steps": 1000, "batch_size": 128},
}


def reduced(sizes=SIZES, **changes):
    values = {**FULL, **{name: {**FULL.get(name, {}), **group} for name, group in changes.items() if name != "stages"}}
    if "stages" in changes:
        values["stages"] = changes["stages"]
    return reduce_config(parse_config(values, source="full"), sizes)


def test_widths_keep_their_proportions_and_heads_their_size():
    encoder = reduced().encoder
    widths = (encoder.embedding_size, encoder.hidden_size, encoder.intermediate_size, encoder.num_heads)
    assert widths == (32, 64, 256, 2)
    assert (encoder.vocab_size, encoder.num_layers, encoder.max_position_embeddings) == (47, 1, 15)


def test_the_generator_keeps_its_share_of_the_discriminator():
    config = reduced()
    assert config.objective.generator.size_fraction == 0.5
    assert config.objective.generator.encoder(config.encoder).hidden_size == 32


def test_a_generator_given_by_its_sizes_is_narrowed_by_the_same_factor():
    sizes = {"size_fraction": 1.0, "hidden_size": 128, "num_heads": 4, "intermediate_size": 96}
    generator = reduced(objective={"name": "electra", "generator": sizes}).objective.generator
    assert (generator.hidden_size, generator.num_heads, generator.intermediate_size) == (32, 1, 24)


@pytest.mark.parametrize("depth", [{"layers_fraction": 0.5}, {"num_layers": 3}])
def test_a_generator_that_is_less_deep_stays_so(depth):
    config = reduced(objective={"name": "electra", "generator": {"size_fraction": 0.5, **depth}})
    assert config.encoder.num_layers == 2
    assert config.objective.generator.encoder(config.encoder).num_layers == 1


def test_rates_shares_and_weights_stay_as_they_are():
    config = reduced(masking={"masked_fraction": 0.25}, train={**FULL["train"], "precision": "bfloat16"})
    assert (config.masking.masked_fraction, config.optimizer.learning_rate) == (0.25, 3e-4)
    assert (config.train.precision, config.encoder.hidden_dropout) == ("bfloat16", 0.1)
    assert (config.train.num_steps, config.train.batch_size, config.data.max_seq_length) == (2, 4, 12)
    assert config.optimizer.warmup_steps == 0


def test_a_run_as_long_as_a_number_of_flops_pays_for_becomes_one_of_so_many_steps():
    train = {"num_steps": None, "batch_size": 128, "flops_budget": 1e17}
    assert reduced(train=train).train.num_steps == 2


def test_micro_batches_still_divide_among_two_replicas():
    assert reduced(train={**FULL["train"], "gradient_accumulation_steps": 4}).train.batch_size == 8


def test_stages_keep_their_order_and_their_shares_of_length_and_steps():
    stages = [
        {"num_steps": 900, "max_seq_length": 32, "batch_size": 256},
        {"num_steps": 100, "max_seq_length": 128, "batch_size": 64},
    ]
    config = reduced(train={"num_steps": 1000, "batch_size": 64}, stages=stages)
    # 32 of 128 are 3 of 12, but no sequence is shorter than 8.
    assert [(s.num_steps, s.max_seq_length, s.batch_size) for s in config.stages] == [(1, 8, 4), (1, 12, 4)]


def test_sizes_that_leave_no_room_are_refused():
    with pytest.raises(UserError, match="config reduced: data.max_seq_length is 7"):
        reduced(ReducedSizes(vocab_size=47, hidden_size=64, max_seq_length=7, batch_size=4, num_steps=2))
