import math
from pathlib import Path

import pytest

from electra_tf.config.loader import presets, read_values
from electra_tf.flops.budget import RunCost
from electra_tf.tasks.pretrain.config import load_config
from electra_tf.train.run_directory import RunDirectory
from electra_tf.weights.names import network_shapes

DOCUMENTATION = Path(__file__).resolve().parents[2] / "docs" / "configs.md"


@pytest.mark.parametrize("path", presets().values(), ids=lambda path: path.stem)
def test_a_shipped_configuration_reads_back_equal_and_cannot_be_changed(path, tmp_path):
    config, run = load_config(path, ["train.seed=3"]), RunDirectory(tmp_path)
    run.write_config(config)
    assert load_config(run.config_file) == load_config(run.resolved_file) == config
    with pytest.raises(ValueError, match="frozen"):
        config.train.num_steps = 9


def test_a_runs_config_has_no_default_that_another_objective_has_not(tmp_path):
    run, stages = RunDirectory(tmp_path), ["objective.name=two_stage", "objective.generator.size_fraction=1.0"]
    run.write_config(load_config("small", ["train.seed=3"]))
    assert read_values(run.config_file)[0] == read_values("small", ["train.seed=3"])[0]
    changed = load_config(run.config_file, stages)
    assert changed == load_config("small", ["train.seed=3", *stages]) and changed.objective.tying == "none"


def cost_of(run):
    return RunCost(run).spent(run.train.num_steps)


PAIRS = [
    *((size, f"bert_{size}") for size in ("small", "base", "large")),
    *((f"ablations/hidden_size_{size}", f"ablations/bert_hidden_size_{size}") for size in (512, 256, 128)),
]
SIZES = ("vocab_size", "embedding_size", "hidden_size", "num_layers", "num_heads", "intermediate_size")


# The generator's layers are not reduced, and its embeddings are the discriminator's.
@pytest.mark.parametrize(
    ("name", "discriminator", "generator"),
    [
        ("small", (30522, 128, 256, 12, 4, 1024), (30522, 128, 64, 12, 1, 256)),
        ("base", (30522, 768, 768, 12, 12, 3072), (30522, 768, 256, 12, 4, 1024)),
        ("large", (30522, 1024, 1024, 24, 16, 4096), (30522, 1024, 256, 24, 4, 1024)),
        ("small_plus_plus", (30522, 128, 256, 12, 4, 1024), (30522, 128, 256, 12, 4, 1024)),
        ("ablations/hidden_size_512", (30522, 512, 512, 12, 8, 2048), (30522, 512, 128, 12, 2, 512)),
        ("ablations/hidden_size_256", (30522, 256, 256, 12, 4, 1024), (30522, 256, 64, 12, 1, 256)),
        ("ablations/hidden_size_128", (30522, 128, 128, 12, 2, 512), (30522, 128, 32, 12, 1, 128)),
    ],
)
def test_the_sizes_of_the_networks_in_the_presets(name, discriminator, generator):
    encoder = load_config(name).encoder
    assert tuple(getattr(encoder, size) for size in SIZES) == discriminator
    assert encoder.max_position_embeddings == 512
    beside = load_config(name).objective.generator.encoder(encoder)
    assert tuple(getattr(beside, size) for size in SIZES) == generator


# learning rate, steps, batch, length, masked fraction, slots
@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("small", (5e-4, 1_000_000, 128, 128, 0.15, 19)),
        ("base", (2e-4, 766_000, 256, 512, 0.15, 79)),
        ("large", (2e-4, 400_000, 2048, 512, 0.15, 79)),
        ("large_camera_ready", (2e-4, 400_000, 2048, 512, 0.25, 130)),
        ("large_1750k", (2e-4, 1_750_000, 2048, 512, 0.25, 130)),
        ("small_plus_plus", (5e-4, 4_000_000, 128, 512, 0.15, 79)),
        ("ablations/hidden_size_512", (2e-4, 766_000, 256, 512, 0.15, 79)),
        ("bert_small", (5e-4, 1_450_000, 128, 128, 0.15, 19)),
        ("bert_base", (2e-4, 1_000_000, 256, 512, 0.15, 79)),
        ("bert_large", (2e-4, 464_000, 2048, 512, 0.15, 79)),
    ],
)
def test_the_training_settings_of_the_presets(name, numbers):
    config = load_config(name)
    assert numbers == (
        config.optimizer.learning_rate,
        config.train.num_steps,
        config.train.batch_size,
        config.data.max_seq_length,
        config.masking.masked_fraction,
        config.masking.max_predictions(config.data.max_seq_length),
    )


@pytest.mark.parametrize("name", ["small", "base", "large"])
def test_settings_common_to_all_sizes_are_those_of_the_paper(name):
    config = load_config(name)
    optimizer, objective = config.optimizer, config.objective
    assert (optimizer.name, optimizer.warmup_steps, optimizer.decay_power) == ("adamw", 10_000, 1.0)
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.999, 1e-6)
    assert (optimizer.weight_decay_rate, optimizer.clip_norm) == (0.01, 1.0)
    assert (objective.masked_lm_loss_weight, objective.replaced_token_loss_weight) == (1.0, 50.0)
    assert (objective.tying, objective.sampling, objective.temperature) == ("embeddings", "categorical", 1.0)
    assert not objective.disallow_correct
    assert (config.encoder.hidden_dropout, config.encoder.attention_dropout) == (0.1, 0.1)
    assert (config.encoder.initializer_range, config.encoder.layer_norm_epsilon) == (0.02, 1e-12)
    assert (config.masking.mask_token_fraction, config.masking.random_token_fraction) == (0.85, 0.0)
    assert config.masking.selection == "distinct"


@pytest.mark.parametrize(("electra", "bert"), PAIRS)
def test_bert_and_electra_presets_of_a_size_differ_only_in_objective_masking_and_steps(electra, bert):
    electra, bert = load_config(electra).model_dump(), load_config(bert).model_dump()
    assert (electra.pop("objective")["name"], bert.pop("objective")["name"]) == ("electra", "bert_mlm")
    rule = {"mask_token_fraction": 0.8, "random_token_fraction": 0.1}
    assert bert.pop("masking") == electra.pop("masking") | rule
    assert bert["train"].pop("num_steps") > electra["train"].pop("num_steps")
    assert electra == bert


# The steps are rounded to thousands.
@pytest.mark.parametrize(("electra", "bert"), PAIRS[3:])
def test_bert_and_electra_ablations_of_a_width_cost_the_same_in_the_paper_convention(electra, bert):
    one, other = (float(cost_of(load_config(name)).paper) for name in (electra, bert))
    assert other == pytest.approx(one, rel=500 / 1_013_000)


@pytest.mark.parametrize(("electra", "bert"), PAIRS[:3])
def test_the_costs_in_the_documentation_are_those_of_the_presets(electra, bert):
    shown, steps = [], []
    for convention in ("paper", "hardware"):
        costs = [float(cost_of(load_config(name)).flops(convention)) for name in (electra, bert)]
        shown.append(", ".join(f"{cost:.4g}".replace("e+", "e") for cost in costs))
        steps.append(f"{int(costs[0] // float(RunCost(load_config(bert)).of_step(1).flops(convention))):,}")
    row = f"| `{electra}`, `{bert}` | {shown[0]} | {shown[1]} | {', '.join(steps)} |"
    assert row in DOCUMENTATION.read_text(encoding="utf-8")


LARGER = [("base", "110M"), ("large", "335M")]


def num_parameters(shapes: dict[str, tuple[int, ...]]) -> int:
    return sum(map(math.prod, shapes.values()))


# tests/models/test_initial_values.py counts the same in the models.
@pytest.mark.parametrize(
    ("size", "params"), [("small", "14M"), *(pytest.param(*each, marks=pytest.mark.slow) for each in LARGER)]
)
def test_the_parameters_in_the_documentation_follow_from_the_sizes(size, params):
    config = load_config(size)
    sizes, generator = config.encoder, config.objective.generator.encoder(config.encoder)
    masked_lm = ("generator_predictions/",)
    encoder, bert = (num_parameters(network_shapes(sizes, heads)) for heads in ((), masked_lm))
    discriminator = num_parameters(network_shapes(sizes, ("discriminator_predictions/",)))
    electra = discriminator + num_parameters(network_shapes(generator, masked_lm, with_embeddings=False))
    assert f"{bert / 1e6:.0f}M" == params
    text = DOCUMENTATION.read_text(encoding="utf-8")
    assert f"| `{size}` | {params} | {encoder:,} | {discriminator:,} | {electra:,} |" in text
    assert f"| `bert_{size}` | {params} | {encoder:,} | {bert:,} | {bert:,} |" in text
