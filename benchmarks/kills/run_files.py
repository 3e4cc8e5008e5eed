"""What the directory of a run holds: its state at a moment, and whether two finished runs are equal bit for bit.

Everything that this benchmark knows of the layout of a run's directory is here.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SPLITS = ("train", "held_out")


@dataclass(frozen=True)
class RunState:
    """What a run's directory shows at a moment."""

    reported_step: int
    saved_step: int | None
    evaluated_step: int
    is_writing_checkpoint: bool

    @classmethod
    def of(cls, model_dir: Path) -> "RunState":
        steps: dict[str, int] = dict.fromkeys(SPLITS, 0)
        steps.update((report["split"], report["step"]) for report in _whole_lines(model_dir / "metrics.jsonl"))
        saved = [_step_of(path.stem) for path in (model_dir / "checkpoints").glob("step-*.index")]
        return cls(
            reported_step=steps["train"],
            saved_step=max(saved, default=None),
            evaluated_step=steps["held_out"],
            is_writing_checkpoint=any((model_dir / "checkpoints").glob("step-*_temp*")),
        )

    def __str__(self) -> str:
        writing = ", while writing a checkpoint" if self.is_writing_checkpoint else ""
        return f"reported {self.reported_step}, evaluated {self.evaluated_step}, saved {self.saved_step}{writing}"


def differences(expected: Path, actual: Path) -> list[str]:
    """The differences between the directories of two finished runs; empty if they are equal.

    Compares every tensor of the last checkpoint and of each milestone, the lines of metrics.jsonl without rates, and
    TensorBoard's events without rates and times.
    """
    reports = [[_without_rates(report) for report in _whole_lines(run / "metrics.jsonl")] for run in (expected, actual)]
    found = [*_checkpoint_differences(expected, actual), *_list_differences("metrics.jsonl", *reports)]
    for split in SPLITS:
        events = [_events(run / "tensorboard" / split) for run in (expected, actual)]
        found += _list_differences(f"tensorboard/{split}", *events)
    return found


def _step_of(name: str) -> int:
    return int(name.removeprefix("step-"))


def _checkpoint_differences(expected: Path, actual: Path) -> Iterator[str]:
    for folder in ("checkpoints", "milestones"):
        names, others = (
            sorted((path.stem for path in (run / folder).glob("step-*.index")), key=_step_of)
            for run in (expected, actual)
        )
        if folder == "checkpoints":  # which older ones are kept depends on where the run was stopped
            names, others = names[-1:], others[-1:]
        if names != others:
            yield f"{folder}: {names} and {others}"
            continue
        for name in names:
            yield from _tensor_differences(expected / folder / name, actual / folder / name)


def _tensor_differences(expected: Path, actual: Path) -> Iterator[str]:
    tensors, others = _tensors(expected), _tensors(actual)
    if set(tensors) != set(others):
        yield f"{actual}: other variables than {expected}"
    for name in sorted(set(tensors) & set(others)):
        # As bytes: a NaN equals itself, and -0 differs from 0.
        if tensors[name].tobytes() != others[name].tobytes():
            yield f"{actual}: {name} differs"


def _tensors(prefix: Path) -> dict:
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(prefix))
    # The counter is TensorFlow's own, of the saves that were made; a killed run repeats some.
    not_state = ("_CHECKPOINTABLE", "save_counter")
    names = [name for name in reader.get_variable_to_shape_map() if not name.startswith(not_state)]
    return {name: reader.get_tensor(name) for name in names}


def _events(directory: Path) -> list[tuple]:
    """The scalars that TensorBoard shows, without those that a continued run has replaced."""
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

    from electra_tf.runs.directory import RATES

    if not directory.exists():
        return []
    logging.getLogger("tensorboard").setLevel(logging.WARNING)  # it tells of every file
    events = EventAccumulator(str(directory), size_guidance={"tensors": 0}).Reload()
    tags = sorted(set(events.Tags()["tensors"]) - set(RATES))
    return [(tag, event.step, event.tensor_proto.SerializeToString()) for tag in tags for event in events.Tensors(tag)]


def _whole_lines(metrics_file: Path) -> list[dict]:
    """The reports of a file whose last line may be incomplete."""
    if not metrics_file.exists():
        return []
    lines = metrics_file.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _without_rates(report: dict) -> dict:
    from electra_tf.runs.directory import RATES

    return {name: value for name, value in report.items() if name not in RATES}


def _list_differences(name: str, expected: list, actual: list) -> list[str]:
    if expected == actual:
        return []
    index = next((i for i, pair in enumerate(zip(expected, actual, strict=False)) if pair[0] != pair[1]), None)
    if index is None:
        return [f"{name}: {len(expected)} and {len(actual)} entries"]
    return [f"{name}: entry {index} is {actual[index]} instead of {expected[index]}"]
