"""Runs of pre-training objectives: the command, evaluation as a masked LM, input stages."""

import functools
import hashlib
import json
import math
import re
import shutil
from pathlib import Path

import pytest
import tensorflow as tf

import run_pretraining
from electra_tf.api.pretraining import evaluate
from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.data.manifest import Manifest
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import load_config
from electra_tf.tasks.pretrain.stages import open_stages, plan_stages
from electra_tf.train.checkpoints import steps_in
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.step import compile_task
from electra_tf.train.timeline import stages_of
from tests.toy import EQUAL_SIZES
from tests.train.runs import assert_same_run, killed_at, lines, tensors

QUESTIONS = {"as_masked_lm": {"num_candidates": 5, "tokens_per_example": 3}}
STAGES = [
    {"num_steps": 3, "max_seq_length": 10, "batch_size": 6},
    {"num_steps": 5, "max_seq_length": 10, "batch_size": 4},
]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory, write_data) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "set")


@pytest.fixture(scope="module")
def command(tiny_config, data_dir, tmp_path_factory):
    """`command(name, **changes)`: the flags for a run of one step of an objective, and its directory."""

    def flags(name: str, model_dir: Path | None = None, **changes) -> tuple[list[str], Path]:
        run = model_dir or tmp_path_factory.mktemp(name) / "run"
        changes["objective"] = {"name": name, **changes.get("objective", {})}
        changes["train"] = {"num_steps": 1, "peak_flops": 1e9, **changes.get("train", {})}
        file = run.with_suffix(".yaml")
        file.write_text(config_to_yaml(tiny_config(evaluation=QUESTIONS, **changes)), encoding="utf-8")
        return [f"--config={file}", f"--data_dir={data_dir}", f"--model_dir={run}"], run

    return flags


@pytest.fixture(scope="module")
def bert(command) -> tuple[list[str], Path]:
    """A run of one step of bert_mlm: its flags and its directory."""
    flags, run = command("bert_mlm")
    assert run_pretraining.main(flags) == 0
    return flags, run


def test_command_trains_and_reports_terms_and_costs(bert):
    first, last = lines(bert[1])
    assert (first["step"], first["split"], last["split"]) == (1, "train", "held_out")
    assert {"loss", "masked_lm", "examples_seen", "token_slots_seen", "paper_flops", "hardware_flops"} <= set(first)
    assert last["masked_lm_loss"] > 0
    assert steps_in(str(bert[1] / "checkpoints")) == [1]


def test_a_finished_run_reports_no_peak(bert, caplog):
    caplog.set_level("INFO")
    assert run_pretraining.main(bert[0]) == 0
    assert any("nothing to train" in message for message in caplog.messages)
    assert not any("is relative to" in message for message in caplog.messages)


def test_the_tensors_of_a_checkpoint_have_the_names_that_0_3_gave_them(tiny_pretrained):
    names = sorted(name.partition("/.ATTRIBUTES")[0] for name in tensors(f"{tiny_pretrained}/checkpoints/step-3"))
    assert {name.split("/")[1] for name in names if name.startswith("optimizer/")} == {
        *("_first_moments", "_second_moments", "_iterations")
    }
    digest = hashlib.sha256("\n".join(name for name in names if name.startswith("task/")).encode())
    assert digest.hexdigest()[:16] == "6c7c945e6b932d60"


def test_evaluate_prints_the_reported_metrics(bert, capsys):
    assert run_pretraining.main([*bert[0], "--evaluate"]) == 0
    reported = lines(bert[1])[-1]
    assert json.loads(capsys.readouterr().out) == {name: each for name, each in reported.items() if name != "split"}


def test_as_masked_lm_prints_the_accuracy_at_masked_tokens(bert, capsys):
    assert run_pretraining.main([*bert[0], "--evaluate", "--as_masked_lm"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed) == ["step", "masked_tokens", "masked_lm_accuracy"]
    # The held-out examples are number 12 to 18. Number n has 2 + n % 6 words.
    assert printed["masked_tokens"] == sum(min(3, 2 + n % 6) for n in range(12, 19))


@pytest.mark.slow
def test_electra_as_a_masked_lm_reports_its_generator_and_an_upper_bound(command, data_dir):
    flags, run = command("electra")
    assert run_pretraining.main(flags) == 0
    evaluated = functools.partial(evaluate, run / "config.yaml", data_dir, run, as_masked_lm=True)
    metrics = evaluated(strategy="one_device")
    assert list(metrics) == ["step", "masked_tokens", "masked_lm_accuracy", "generator_accuracy", "candidates_accuracy"]
    assert max(metrics["masked_lm_accuracy"], metrics["generator_accuracy"]) <= metrics["candidates_accuracy"] < 1
    assert evaluated(strategy="mirrored") == metrics
    # Whole batches of four.
    few = evaluated(strategy="one_device", settings=["evaluation.as_masked_lm.max_examples=1"])
    assert few["masked_tokens"] == sum(min(3, 2 + n % 6) for n in range(12, 16))


@pytest.mark.slow
def test_masked_lm_questions_do_not_depend_on_the_objective(tiny_config, data_dir):
    def questions(**changes) -> list:
        stage = open_stages(tiny_config(**changes), [data_dir])[0].with_all_tokens_masked()
        batches = stage.evaluation_batches(tf.distribute.InputContext())
        return [batch["masked_lm_positions"].numpy().tolist() for batch in batches]

    changes = {"objective": {"name": "bert_mlm"}, "masking": {"masked_fraction": 0.15}, "train": {"seed": 5}}
    assert questions(evaluation=QUESTIONS) == questions(evaluation=QUESTIONS, **changes)
    assert questions(evaluation={"as_masked_lm": {"seed": 1}}) != questions(evaluation=QUESTIONS)


def test_batch_of_padding_changes_no_weight_and_is_finite(tiny_config, data_dir):
    config = tiny_config(objective={"name": "bert_mlm"}, optimizer={"weight_decay_rate": 0.0})
    (stage,) = open_stages(config, [data_dir])
    task = compile_task(build_objective(config))
    before = [variable.numpy() for variable in task.trainable_variables]
    batch = next(iter(stage.training_batches(0, tf.distribute.InputContext())))
    metrics = task.train_step(tf.nest.map_structure(tf.zeros_like, batch))
    assert all(math.isfinite(float(value)) for value in metrics.values())
    assert float(metrics["loss"]) == float(metrics["gradient_norm"]) == float(metrics["nonfinite"]) == 0.0
    assert all((a == b.numpy()).all() for a, b in zip(before, task.trainable_variables, strict=True))


def test_stages_are_consecutive_with_their_own_sizes(tiny_config):
    (only,) = plan_stages(tiny_config(train={"seed": 7}))
    assert (only.name, only.first_step, only.last_step, only.seed) == ("", 0, 8, 7)
    plans = plan_stages(tiny_config(stages=STAGES))
    assert [(plan.name, plan.first_step, plan.last_step) for plan in plans] == [("stages.0", 0, 3), ("stages.1", 3, 8)]
    assert [plan.batch_size for plan in plans] == [plan.evaluation_batch_size for plan in plans] == [6, 4]
    fixed = plan_stages(tiny_config(stages=STAGES, evaluation={"batch_size": 2}))
    assert [plan.evaluation_batch_size for plan in fixed] == [2, 2]
    in_parts = plan_stages(tiny_config(stages=STAGES, train={"gradient_accumulation_steps": 2}))
    assert [(plan.evaluation_batch_size, plan.max_evaluation_batches) for plan in in_parts] == [(3, 200), (2, 200)]


def test_a_stage_has_its_part_of_the_masking_schedule_or_its_own_fraction(tiny_config):
    falling = {"masking": {"masked_fraction": [0.4, 0.2]}}
    first, second = plan_stages(tiny_config(stages=STAGES, **falling))
    assert first.config.masking.masked_fraction == pytest.approx((0.4, 0.325))
    assert second.config.masking.masked_fraction == pytest.approx((0.325, 0.2))
    stages = [{**STAGES[0], "masked_fraction": 0.5}, STAGES[1]]
    plans = plan_stages(tiny_config(stages=stages, masking={"masked_fraction": 0.2}))
    assert [plan.config.masking.masked_fraction for plan in plans] == [0.5, 0.2]
    # Held-out losses compare: one fraction, that of the end, for every stage.
    for plan in (first, second, *plans, *plan_stages(tiny_config(**falling))):
        assert plan.evaluation_masking.masked_fraction == 0.2


def test_second_stage_reads_its_data_from_the_start_in_another_order(tiny_config, data_dir):
    first, second = open_stages(tiny_config(stages=STAGES), [data_dir, data_dir])
    assert first.num_training_tokens == sum(4 + n % 6 for n in range(12))
    batches = [
        next(iter(stage.training_batches(step, tf.distribute.InputContext())))["input_ids"].numpy().tolist()
        for stage, step in ((first, 0), (second, 3))
    ]
    assert batches[0][:4] != batches[1]


@pytest.mark.slow
@pytest.mark.parametrize("stages", [[], STAGES])
def test_a_later_phase_goes_on_with_the_text_and_the_masks_of_its_stage(tiny_config, data_dir, stages):
    """Of 8 steps, the second phase has the last 4: half of the only stage, or all but the first step of the second."""
    config = tiny_config(objective={"name": "two_stage"}, masking={"masked_fraction": [0.9, 0.1]}, stages=stages)
    opened = open_stages(config, [data_dir] * max(1, len(stages)))
    part = stages_of(build_objective(config), opened)[-1]
    assert (part.first_step, part.last_step) == (4, 8)

    def masked(stage, first_step: int, last_step: int) -> list:
        batches = stage.training_batches(first_step, tf.distribute.InputContext()).take(last_step - first_step)
        return [batch["masked_input_ids"].numpy().tolist() for batch in batches]

    whole = masked(opened[-1], opened[-1].first_step, 8)
    assert masked(part, 4, 8) == whole[-4:]
    assert masked(part, 6, 8) == whole[-2:]  # as a run does that continues at step 6


def test_each_stage_requires_a_data_set_with_the_same_vocabulary(tiny_config, data_dir, write_data, tmp_path):
    config = tiny_config(stages=STAGES)
    with pytest.raises(UserError, match="^data_dir"):
        open_stages(config, [data_dir])
    other = write_data(tmp_path / "other")
    (other / "vocab.txt").write_text((other / "vocab.txt").read_text().replace("w46", "other"))
    with pytest.raises(UserError, match="vocab"):
        open_stages(config, [data_dir, other])
    cased = write_data(tmp_path / "cased")
    manifest = Manifest.load(cased).model_copy(update={"lower_case": False})
    (cased / "manifest.json").write_text(manifest.to_json())
    with pytest.raises(UserError, match="different vocabularies or text settings"):
        open_stages(config, [data_dir, cased])


def test_batch_that_does_not_divide_among_replicas_and_micro_batches_is_an_error(tiny_config):
    train = {"batch_size": 12, "gradient_accumulation_steps": 4}
    with pytest.raises(UserError, match=r"2 replicas .*4 micro-batches .*train\.batch_size=8"):
        plan_stages(tiny_config(train=train))[0].require_divisible(2)


def test_the_advice_for_a_stage_that_does_not_divide_is_accepted_by_set(tiny_config, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(config_to_yaml(tiny_config(stages=STAGES)))
    overrides = []
    for setting in ("stages.0.batch_size", "stages.1.batch_size"):
        with pytest.raises(UserError, match=f"^{setting}") as caught:
            for plan in plan_stages(load_config(path, overrides)):
                plan.require_divisible(5)
        overrides += re.findall(r"(\S+=5)", str(caught.value))
    # The run's batch size is that of its last stage.
    assert overrides == ["stages.0.batch_size=5", "stages.1.batch_size=5", "train.batch_size=5"]
    plans = plan_stages(load_config(path, overrides))
    assert [plan.batch_size for plan in plans] == [5, 5]


@pytest.mark.slow
def test_a_run_with_a_frozen_generator_continues_without_its_source(bert, command, tmp_path):
    """The source is a masked language model of the generator's sizes: here the generator is as large as the encoder."""
    source = shutil.copytree(bert[1], tmp_path / "source")
    objective = {"auxiliary": str(source), "initial_temperature": 2.0, "generator": EQUAL_SIZES}
    train = {"num_steps": 4, "save_every_steps": 2, "log_every_steps": 1}
    (flags, whole), (killed_flags, killed) = (
        command("fast_electra", tmp_path / name, objective=objective, train=train) for name in ("whole", "killed")
    )
    assert run_pretraining.main(flags) == 0
    with killed_at(DeviceLoop, "train", 4):
        run_pretraining.main(killed_flags)
    shutil.rmtree(source)
    assert run_pretraining.main(killed_flags) == 0
    assert_same_run(killed, whole, "checkpoints/step-4")
    record = json.loads((whole / "warm_start.json").read_text())
    assert record["init_from"] is None and record["step"] == 0
    assert re.fullmatch(rf"the frozen generator from step 1 of {source}: \d+ variables", record["report"][0])


@pytest.mark.slow
def test_a_run_with_rows_without_a_token_never_predicts_them(command):
    """53 rows for 47 tokens. tests/tasks/pretrain/test_packed_and_padded.py has the steps."""
    flags, run = command("electra", encoder={"vocab_size": 53}, optimizer={"weight_decay_rate": 0.0})
    assert run_pretraining.main(flags) == 0
    reader = tf.train.load_checkpoint(str(run / "checkpoints/step-1"))
    (bias,) = (name for name in reader.get_variable_to_shape_map() if "task" in name and "output_bias" in name)
    assert (reader.get_tensor(bias)[47:] == -100.0).all() and (reader.get_tensor(bias)[:47] > -1.0).all()
