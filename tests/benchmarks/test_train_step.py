import json
import subprocess

import pytest

from benchmarks import train_step, train_step_worker
from benchmarks.train_step_processes import CONTENDERS, NotAvailable, Process, Turn, options_of
from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml


def turns(*seconds: float) -> list[Turn]:
    return [Turn(value, [value], peak_bytes=1, share_of_others=0.0) for value in seconds]


@pytest.fixture
def config_file(tmp_path, tiny_config):
    path = tmp_path / "tiny.yaml"
    path.write_text(config_to_yaml(tiny_config()), encoding="utf-8")
    return path


def test_a_ratio_is_the_median_over_rounds_so_that_one_disturbed_round_does_not_count():
    rounds = {"ours_float32": turns(1.0, 1.0, 9.0), "pytorch_float32": turns(2.0, 1.5, 1.0)}
    assert train_step.speed_ratio(rounds, "ours_float32", "pytorch_float32") == 1.5


def test_the_share_of_the_matmul_rate_is_that_of_the_contenders_precision():
    rounds = {"ours_float32": turns(2.0, 4.0), "ours_bfloat16": turns(1.0, 1.0)}
    rates = [{"float32": 200.0, "bfloat16": 600.0}] * 2
    shares = train_step.shares_of_matmul(rounds, rates, work=300.0)
    assert shares == {"ours_float32": pytest.approx((0.75 + 0.375) / 2), "ours_bfloat16": pytest.approx(0.5)}


def test_without_a_matmul_rate_there_is_no_share():
    assert train_step.shares_of_matmul({"ours_float32": turns(2.0)}, [{}], work=300.0) == {}


def test_the_fastest_of_ours_is_held_against_the_floors_of_its_precision():
    rounds = {
        "ours_float32": turns(3.0),
        "ours_float32_xla": turns(2.0),
        "pytorch_float32": turns(2.5),
        "pytorch_float32_compile": turns(2.0),
        "ours_bfloat16": turns(1.0),
        "pytorch_bfloat16": turns(1.25),
    }
    shares = {name: 0.8 for name in rounds}
    verdicts = {verdict.name: (verdict.value, verdict.holds) for verdict in train_step.judge(rounds, shares)}
    assert verdicts == {
        "ours_float32_xla over pytorch_float32": (1.25, False),
        "ours_float32_xla over pytorch_float32_compile": (1.0, True),
        "ours_float32_xla, share of the matmul rate": (0.8, True),
        "ours_bfloat16 over pytorch_bfloat16": (1.25, True),
    }


def test_what_was_not_measured_is_not_judged():
    assert train_step.judge({"pytorch_float32": turns(1.0)}, {"pytorch_float32": 0.9}) == []


def test_the_peers_get_the_sizes_of_the_configuration(config_file):
    options = options_of(CONTENDERS["pytorch_bfloat16"], config_file, ["train.batch_size=7"], num_threads=3)
    assert options["settings"] == {"precision": "bfloat16", "compiled": False, "all_positions": False}
    assert options["shape"]["num_examples"] == 7 and options["shape"]["num_slots"] == 3
    assert [options["networks"][name]["hidden_size"] for name in ("discriminator", "generator")] == [16, 6]
    assert options["networks"]["generator"]["num_heads"] == 3
    json.dumps(options)


def test_another_objective_has_no_peers(tmp_path, tiny_config):
    path = tmp_path / "mlm.yaml"
    path.write_text(config_to_yaml(tiny_config(objective={"name": "bert_mlm"})), encoding="utf-8")
    with pytest.raises(UserError, match="'bert_mlm'"):
        options_of(CONTENDERS["ours_float32"], path, [], num_threads=1)


class DeadProcess(subprocess.Popen):
    """A process that has ended before anyone writes to it."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.wait()


@pytest.mark.parametrize("process_class", [subprocess.Popen, DeadProcess], ids=["at_any_time", "at_once"])
def test_a_process_that_dies_says_why(config_file, tmp_path, monkeypatch, process_class):
    monkeypatch.setattr(subprocess, "Popen", process_class)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'No module named torch' >&2\nexit 3\n", encoding="utf-8")
    python.chmod(0o755)
    options = options_of(CONTENDERS["pytorch_float32"], config_file, [], num_threads=1)
    with (
        pytest.raises(NotAvailable, match="peer ended with status 3: No module named torch"),
        Process("peer", CONTENDERS["pytorch_float32"], str(python), options),
    ):
        pass


def test_ours_runs_in_turns_and_a_peer_without_its_packages_is_listed(config_file, tmp_path, capsys):
    report = tmp_path / "report.json"
    arguments = [
        *(f"--config={config_file}", "--contenders=ours_float32,pytorch_float32", "--peers_python=/nowhere/python"),
        *("--batch_size=4", "--threads=1", "--rounds=2", "--steps_per_round=3", "--patience=0", f"--json={report}"),
    ]
    assert train_step.main([*arguments, "--gflop_per_example=1e6"]) == 0
    printed = capsys.readouterr().out
    assert "missing pytorch_float32: /nowhere/python: No such file or directory" in printed
    assert "PASS  ours_float32, share of the matmul rate" in printed
    measured = json.loads(report.read_text(encoding="utf-8"))["contenders"]["ours_float32"]
    assert [len(turn["all_seconds"]) for turn in measured["turns"]] == [3, 3]
    assert measured["start_to_first_step_seconds"] > 0.1
    assert measured["turns"][-1]["peak_bytes"] > 2**26
    losses = measured["losses_of_step_1"]
    assert losses["loss"] == pytest.approx(losses["masked_lm"] + 50.0 * losses["replaced_token"], rel=1e-5)


def test_a_floor_that_is_not_held_fails(config_file):
    arguments = [f"--config={config_file}", "--contenders=ours_float32", "--patience=0", "--batch_size=2"]
    assert train_step.main([*arguments, "--rounds=1", "--steps_per_round=1", "--gflop_per_example=1e-9"]) == 1


def test_an_unknown_contender_is_refused(capsys):
    with pytest.raises(SystemExit) as refused:
        train_step.parse_flags(["--contenders=ours_float64"])
    assert refused.value.code == 2
    assert "'ours_float64'" in capsys.readouterr().err


def test_model_gardens_step_trains_on_the_same_batch(tiny_config):
    from benchmarks.train_step_batches import BatchShape
    from benchmarks.train_step_model_garden import ModelGardenStep

    config = tiny_config()
    networks = {
        "discriminator": config.encoder.model_dump(),
        "generator": config.objective.generator.encoder(config.encoder).model_dump(),
    }
    step = ModelGardenStep(BatchShape(3, 10, 4, config.encoder.vocab_size), **networks, num_batches=1)
    first = step.run()
    assert first["loss"] == pytest.approx(first["masked_lm"] + 50.0 * first["replaced_token"], rel=1e-5)
    assert first["masked_lm"] == pytest.approx(3.85, abs=0.3)  # ln 47
    assert step.run()["loss"] != first["loss"]


def test_pytorchs_step_trains_on_the_same_batch(tiny_config):
    pytest.importorskip("torch", reason="the peers have an environment of their own")
    from benchmarks.train_step_batches import BatchShape
    from benchmarks.train_step_pytorch import PyTorchStep

    config = tiny_config()
    networks = {
        "discriminator": config.encoder.model_dump(),
        "generator": config.objective.generator.encoder(config.encoder).model_dump(),
    }
    step = PyTorchStep(BatchShape(3, 10, 4, config.encoder.vocab_size), **networks, num_batches=1)
    first = step.run()
    assert first["loss"] == pytest.approx(first["masked_lm"] + 50.0 * first["replaced_token"], rel=1e-5)
    assert first["masked_lm"] == pytest.approx(3.85, abs=0.3)  # ln 47


class FakeStep:
    def __init__(self):
        self.num_runs = 0

    def run(self) -> dict[str, float]:
        self.num_runs += 1
        return {"loss": 1.5}


def test_a_turn_begins_with_a_step_that_is_not_timed():
    step = FakeStep()
    assert len(train_step_worker.timed_steps(step, 4)) == 4
    assert step.num_runs == 5


def test_the_worker_answers_commands_and_refuses_others():
    step = FakeStep()
    assert train_step_worker.answer("step", step, None) == {"losses": {"loss": 1.5}}
    assert len(train_step_worker.answer("steps 2", step, None)["seconds"]) == 2
    rates = train_step_worker.answer("matmul", step, lambda precision, size: lambda: None)
    assert rates.keys() == {"float32", "bfloat16"} and min(rates.values()) > 0
    with pytest.raises(ValueError, match="'jump'"):
        train_step_worker.answer("jump", step, None)
