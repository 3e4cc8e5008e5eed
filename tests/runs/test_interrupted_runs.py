"""A run that is killed or stopped anywhere, and given the same command again, is the run that never was.

A kill is an exception from where the process would have died: everything that is not on disk is lost with it. (Real
ones are sent by tests/benchmarks/test_kills.py.)
"""

import json
from pathlib import Path

import pytest
import tensorflow as tf

from benchmarks.kills.run_files import differences
from electra_tf.runs.checkpoint import Checkpoints
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.interruption import Interrupted, Interruption
from electra_tf.runs.load import load_run
from electra_tf.runs.loop import Run, evaluate, pretrain
from electra_tf.runs.reporting import TrainingReporter
from electra_tf.tasks.pretrain.two_stage import DiscriminatorPhase
from electra_tf.text.manifest import MANIFEST_FILE, Manifest
from electra_tf.train.metrics import MetricAccumulator
from electra_tf.train.pretrainer import Evaluator


class Killed(BaseException):
    """The process is gone."""


class StopAt(Interruption):
    """A signal that arrives while the device is busy with a step of a loop of several."""

    def __init__(self, step: int):
        super().__init__()
        self.step = step

    def deferred(self, request_stop, has_progress):
        self._request_stop = request_stop
        return super().deferred(request_stop, has_progress)

    def look_at(self, step: tf.Tensor) -> None:
        if step == self.step:
            self._request_stop()


@pytest.fixture
def call(monkeypatch):
    """`call(run, data_dirs, kill=(method, step))` or `call(run, data_dirs, stop_at=step)`: pretrains up to there."""

    def until_killed(run, data_dirs, owner, name: str, step: int, after: bool) -> None:
        original = getattr(owner, name)

        def killing(self, *arguments, **options):
            is_it = int(run_step()) == step
            if is_it and not after:
                raise Killed
            result = original(self, *arguments, **options)
            if is_it:
                raise Killed
            return result

        objective = []
        build = Run.build

        def built(self):
            objective.append(build(self))
            return objective[0]

        def run_step():
            return objective[0].optimizer.iterations.numpy()

        with monkeypatch.context() as patched:
            patched.setattr(Run, "build", built)
            patched.setattr(owner, name, killing)
            with pytest.raises(Killed):
                pretrain(run, data_dirs)

    def until_stopped(run, data_dirs, step: int) -> None:
        interruption = StopAt(step)
        add, steps = MetricAccumulator.add, iter(range(1_000))
        first = RunDirectory(run.directory.path).latest_checkpoint()
        first_step = int(Path(first).name.removeprefix("step-")) if first else 0

        def watching(self, metrics):
            must_end = add(self, metrics)
            tf.py_function(lambda: interruption.look_at(first_step + next(steps) + 1), [], [])
            return must_end

        with monkeypatch.context() as patched:
            patched.setattr(MetricAccumulator, "add", watching)
            with pytest.raises(Interrupted):
                pretrain(run, data_dirs, interruption=interruption)
        # The device may have read the wish for the step before it was made.
        assert Path(run.directory.latest_checkpoint()).name in (f"step-{step}", f"step-{step + 1}")

    def call(run, data_dirs, *, kill=None, stop_at=None):
        if kill is not None:
            until_killed(run, data_dirs, *kill)
        else:
            until_stopped(run, data_dirs, stop_at)

    return call


def run_of(config, model_dir) -> Run:
    return Run(config, RunDirectory(model_dir), tf.distribute.OneDeviceStrategy("CPU:0"))


def reports(model_dir) -> list[tuple[int, str]]:
    lines = (model_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [(line["step"], line["split"]) for line in map(json.loads, lines)]


def test_a_run_killed_and_stopped_anywhere_is_the_run_that_never_was(tiny_config, write_data, tmp_path, call):
    train = {"num_steps": 12, "log_every_steps": 5, "save_every_steps": 6, "milestone_fractions": (0.67, 1.0)}
    config = tiny_config(train=train, evaluation={"every_steps": 6, "max_batches": 2})
    data_dirs = [write_data(tmp_path / "data")]
    whole, parts = run_of(config, tmp_path / "whole"), run_of(config, tmp_path / "parts")
    pretrain(whole, data_dirs)
    call(parts, data_dirs, stop_at=2)
    call(parts, data_dirs, kill=(TrainingReporter, "train", 5, True))
    call(parts, data_dirs, kill=(Checkpoints, "save", 6, False))
    call(parts, data_dirs, kill=(Checkpoints, "save", 6, True))
    call(parts, data_dirs, kill=(Evaluator, "evaluate", 6, False))
    call(parts, data_dirs, stop_at=7)
    call(parts, data_dirs, kill=(TrainingReporter, "evaluation", 12, False))
    assert {"step": 12, **pretrain(parts, data_dirs)} == pytest.approx(evaluate(whole, data_dirs), nan_ok=True)
    assert differences(whole.directory.path, parts.directory.path) == []
    assert reports(parts.directory.path) == [
        (1, "train"),
        (5, "train"),
        (6, "held_out"),
        (10, "train"),
        (12, "train"),
        (12, "held_out"),
    ]


def test_two_phases_interrupted_in_each_and_at_the_switch_are_the_whole_run(tiny_config, write_data, tmp_path, call):
    """After step 5 the discriminator takes over the generator's weights, in the middle of an interval between reports.

    The batch grows after step 7: phases and stages of the input are independent of each other.
    """
    sizes = {"size_fraction": 1.0, "num_heads": None, "intermediate_size": None}
    config = tiny_config(
        objective={"name": "two_stage", "generator": sizes, "generator_steps": 5},
        train={"num_steps": 11, "batch_size": 4, "log_every_steps": 4, "save_every_steps": 5},
        stages=[
            {"num_steps": 7, "max_seq_length": 10, "batch_size": 2},
            {"num_steps": 4, "max_seq_length": 10, "batch_size": 4},
        ],
    )
    data_dirs = [write_data(tmp_path / "first"), write_data(tmp_path / "second")]
    whole, parts = run_of(config, tmp_path / "whole"), run_of(config, tmp_path / "parts")
    pretrain(whole, data_dirs)
    call(parts, data_dirs, stop_at=2)
    call(parts, data_dirs, kill=(TrainingReporter, "train", 5, True))
    call(parts, data_dirs, kill=(Checkpoints, "save", 5, True))
    call(parts, data_dirs, kill=(DiscriminatorPhase, "begin", 5, True))
    assert set(evaluate(parts, data_dirs)) == {"step", "masked_lm_loss", "masked_lm_accuracy"}
    call(parts, data_dirs, stop_at=6)
    pretrain(parts, data_dirs)
    assert differences(whole.directory.path, parts.directory.path) == []
    assert reports(parts.directory.path) == [
        (1, "train"),
        (4, "train"),
        (5, "train"),
        (5, "held_out"),
        (7, "train"),
        (7, "held_out"),
        (8, "train"),
        (11, "train"),
        (11, "held_out"),
    ]
    lines = [json.loads(line) for line in (parts.directory.path / "metrics.jsonl").read_text().splitlines()]
    learnt = ["masked_lm" if line["step"] <= 5 else "replaced_token" for line in lines]
    assert all(name in line or f"{name}_loss" in line for name, line in zip(learnt, lines, strict=True))
    assert not any("masked_lm" in line for line in lines if line["step"] > 5)
    # On the same masks: the generator is frozen.
    ends = {line["step"]: line["masked_lm_loss"] for line in lines if line["split"] == "held_out"}
    assert ends[7] == pytest.approx(ends[5], rel=1e-6)
    # Milestones: of the first stage what is kept is the generator, as figure 3 of the paper evaluates it.
    first, second = load_run(parts.directory.path, 3), load_run(parts.directory.path, 6)
    assert first.encoder is first.networks.generator.encoder
    assert second.encoder is second.discriminator


def longer(data_dir: Path, max_seq_length: int) -> Path:
    """The same examples, cut for longer sequences."""
    manifest = Manifest.load(str(data_dir)).model_copy(update={"max_seq_length": max_seq_length})
    (data_dir / MANIFEST_FILE).write_text(manifest.to_json(), encoding="utf-8")
    return data_dir


def test_two_stages_interrupted_in_each_and_between_are_the_whole_run(tiny_config, write_data, tmp_path, call):
    config = tiny_config(
        data={"max_seq_length": 12},
        train={"num_steps": 11, "batch_size": 4, "log_every_steps": 4, "save_every_steps": 5},
        stages=[
            {"num_steps": 5, "max_seq_length": 10, "batch_size": 6},
            {"num_steps": 6, "max_seq_length": 12, "batch_size": 4},
        ],
    )
    data_dirs = [write_data(tmp_path / "short"), longer(write_data(tmp_path / "long", held_out=(5,)), 12)]
    whole, parts = run_of(config, tmp_path / "whole"), run_of(config, tmp_path / "parts")
    pretrain(whole, data_dirs)
    call(parts, data_dirs, stop_at=2)
    call(parts, data_dirs, kill=(Evaluator, "evaluate", 5, False))
    call(parts, data_dirs, stop_at=6)
    pretrain(parts, data_dirs)
    assert differences(whole.directory.path, parts.directory.path) == []
    assert reports(parts.directory.path) == [
        (1, "train"),
        (4, "train"),
        (5, "train"),
        (5, "held_out"),
        (8, "train"),
        (11, "train"),
        (11, "held_out"),
    ]
    assert evaluate(parts, data_dirs)["step"] == 11
