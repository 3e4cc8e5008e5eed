"""Every shipped configuration file is loaded and its cost computed; slow tests also train its kind at small sizes."""

import functools
import itertools
import json
import math
from pathlib import Path

import keras
import pytest
import tensorflow as tf
import yaml

from electra_tf.data.corpus import open_data
from electra_tf.data.masking import mask_batch
from electra_tf.flops.budget import RunCost
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import OBJECTIVES, build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config, parse_config
from electra_tf.tasks.pretrain.stages import plan_stages
from electra_tf.train.step import compile_task, evaluation_step
from tests.toy import step_on_replicas

PROJECT = Path(__file__).resolve().parents[1]
CONFIGS = PROJECT / "configs" / "pretrain"
FILES = sorted(CONFIGS.glob("**/*.yaml"))
ABLATIONS = sorted((CONFIGS / "ablations").glob("*.yaml"))
load = functools.cache(load_config)


def name_of(path: Path) -> str:
    return str(path.relative_to(CONFIGS).with_suffix(""))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_the_cost_of_every_shipped_configuration_is_known(path):
    config = load(path)
    cost = RunCost(config)
    whole, half = cost.spent(config.train.num_steps), cost.spent(config.train.num_steps // 2)
    assert 0 < half.paper < whole.paper and 0 < half.hardware.total < whole.hardware.total
    assert cost.steps_within(float(whole.paper) * 1.001, "paper") == config.train.num_steps


def test_an_ablation_changes_its_base_in_at_most_four_lines_and_differs_from_all_other_files():
    runs = [load(path) for path in FILES]
    for path in ABLATIONS:
        text = path.read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if line and not line.startswith(("#", "base:"))]
        assert 1 <= len(lines) <= 4, path
        base = yaml.safe_load(text)["base"]
        assert load(path) != load(path.parent / base if base.endswith(".yaml") else base), path
        assert runs.count(load(path)) == 1, path


def test_every_objective_has_a_configuration_and_the_documentation_lists_both():
    assert set(OBJECTIVES) <= {load(path).objective.name for path in FILES}
    pages = (PROJECT / "docs" / name for name in ("configs.md", "objectives.md"))
    configurations, objectives = (page.read_text(encoding="utf-8") for page in pages)
    names = [name for name in map(name_of, FILES) if not name.startswith("replication/")]
    assert [name for name in names if f"`{name}`" not in configurations] == []
    assert [name for name in OBJECTIVES if f"\n## {name}\n" not in objectives] == []


def reduced(path: Path) -> PretrainingConfig:
    """The configuration of a file, with small sizes."""
    values = load(path).model_dump()
    encoder, generator = values["encoder"], values["objective"].get("generator", {})
    values["encoder"] |= {
        "vocab_size": 47,
        "embedding_size": 48 * encoder["embedding_size"] // encoder["hidden_size"],
        "hidden_size": 48,
        "num_layers": 3 if encoder["block"] == "modern" or generator.get("layers_fraction", 1.0) < 1.0 else 1,
        "num_heads": 3,
        "intermediate_size": 50,
        "max_position_embeddings": 13,
    }
    for network in values["objective"].values():
        if isinstance(network, dict):
            network |= dict.fromkeys(network.keys() & {"hidden_size", "num_heads", "intermediate_size"})
    for stage, length in zip(values["stages"], (8, 10), strict=False):
        stage |= {"num_steps": 1, "max_seq_length": length, "batch_size": 4}
    values["data"]["max_seq_length"] = 10
    values["optimizer"] |= {"warmup_steps": 0, "learning_rate": 1e-3}
    values["train"] |= {"num_steps": 2, "batch_size": 4, "fused_ops": False, "seed": 0}
    values["train"]["precision"] = "float32"  # in bfloat16 the replicas' gradients are rounded before they are summed
    values["evaluation"]["batch_size"] = None
    return parse_config(values, source=f"reduced {path.name}")


def kind_of(path: Path) -> str:
    """The settings of a file that choose code: of numbers, only whether they are 0."""

    def choices(value):
        if isinstance(value, dict):
            return {name: choices(each) for name, each in value.items() if name != "auxiliary"}
        return value != 0 if isinstance(value, int | float) else value

    values = reduced(path).model_dump()
    encoder = {"block": values["encoder"]["block"]}
    return json.dumps({"encoder": encoder, **{name: choices(values[name]) for name in ("objective", "masking")}})


# One file of each kind, with stages if there is one.
DISTINCT = list({kind_of(path): path for path in sorted(FILES, key=lambda path: len(load(path).stages))}.values())


@pytest.mark.slow
@pytest.mark.parametrize("path", DISTINCT, ids=name_of)
def test_a_reduced_configuration_trains_equally_in_one_batch_and_in_micro_batches_on_two_replicas(
    path, write_data, tmp_path, tiny_config, tiny_batch, two_replicas
):
    data = open_data(write_data(tmp_path / "set"), tiny_config())
    runs, config = [], reduced(path)
    for strategy, num_parts in ((tf.distribute.OneDeviceStrategy("CPU:0"), 1), (two_replicas, 2)):
        train = config.train.model_copy(update={"gradient_accumulation_steps": num_parts})
        keras.utils.set_random_seed(5)
        with strategy.scope():
            task = compile_task(build_objective(config.model_copy(update={"train": train})))
        task.adopt_data(data)
        runs.append((task, {phase: tf.function(phase.train_step) for phase in task.phases()}, strategy))

    def step_of(task, functions, strategy) -> dict[str, float]:
        """Runs an update of the phase to which the step belongs."""
        phase = task.phase_at(step + 1)
        if step in itertools.accumulate(task.phase_steps, initial=0):
            phase.begin()
        metrics = step_on_replicas(strategy, functions[phase], batch)
        return {name: float(value) for name, value in metrics.items()}

    for step in range(2):
        stage = next(plan for plan in plan_stages(config) if step < plan.last_step).config
        # The first replica gets more tokens than the second, and more masked ones; the last micro-batch has none.
        length = stage.data.max_seq_length
        text = tiny_batch(tiny_config(data={"max_seq_length": length}), [length, 8, 5, 0], seed=step)
        text = {name: text[name] for name in ("input_ids", "input_mask", "segment_ids")}
        batch = mask_batch(text, stage.masking, data.masking_vocabulary, RandomStream(step, 0, 0))
        one, two = (step_of(*run) for run in runs)
        assert all(map(math.isfinite, one.values())) and one["gradient_norm"] > 0.0 == one["nonfinite"]
        assert two == pytest.approx(one, rel=1e-5, abs=1e-7)
    terms, _ = evaluation_step(runs[0][0].phase_at(2), batch, tf.constant(0, tf.int64))
    assert all(math.isfinite(term.value()) for name, term in terms.items() if name.endswith("_loss"))
