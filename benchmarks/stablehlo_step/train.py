"""Trains by an exported step on the examples that were exported with it. Needs JAX and NumPy alone."""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from benchmarks.stablehlo_step.files import BadInput, StepFiles, write_arrays


def main(arguments: argparse.Namespace) -> int:
    for name in ("steps", "log_every", "save_every"):
        if (number := getattr(arguments, name)) is not None and number < 1:
            raise BadInput(f"--{name}={number}: expected 1 or more")
    files, output = StepFiles(arguments.step), Path(arguments.output_dir)
    if output.exists() and any(output.iterdir()):
        raise BadInput(f"--output_dir={output} is not empty; give a new directory")

    from benchmarks.stablehlo_step.program import MaskedExamples, Program

    examples, program = MaskedExamples(files), Program(files)
    same = all(
        np.array_equal(masked, given, equal_nan=True)
        for step, batch in enumerate(files.batches()[: examples.num_steps], files.manifest["first_step"])
        for masked, given in zip(map(np.asarray, examples.batch(step)), batch, strict=True)
    )
    print(f"{program.device.device_kind}: the first batches {'equal' if same else 'DIFFER FROM'} the input pipeline's")
    output.mkdir(parents=True, exist_ok=True)
    state = program.initial_state(arguments.state, arguments.seed)
    first, end = program.step_of(state), files.manifest["first_step"] + examples.num_steps
    if not files.manifest["first_step"] <= first < end:
        raise BadInput(
            f"the state is of step {first}; {files.directory} has the steps from "
            f"{files.manifest['first_step']} to {end}; export more with --steps"
        )
    last = min(end, first + (arguments.steps or end))
    _loop(program, examples, state, range(first, last), output, arguments)
    return 0


def _loop(program, examples, state, steps: range, output: Path, arguments: argparse.Namespace) -> None:
    window, before, saved = [], time.perf_counter(), None
    for step in (number + 1 for number in steps):
        state, metrics = program.run(state, examples.batch(step - 1))
        window.append(metrics)
        if step % arguments.log_every == 0 or step in (1, steps.stop):
            line = _means(window)
            now = time.perf_counter()
            line["examples_per_second"] = program.batch_size * len(window) / (now - before)
            _log(output / "metrics.jsonl", {"step": step, "split": "train", **line})
            window, before = [], now
        if step % arguments.save_every == 0 or step == steps.stop:
            arrays = program.arrays(state)
            if arguments.weights_only and step == steps.stop:
                counter = program.manifest["step_variable"]
                arrays = {name: value for name, value in arrays.items() if name == counter or "optimizer/" not in name}
            write_arrays(output / f"step-{step}.npz", arrays)
            if saved is not None:
                saved.unlink()
            saved = output / f"step-{step}.npz"


def _means(window: list[dict]) -> dict[str, float]:
    """Means over the steps of a window; the learning rate of the last one.

    Raises: BadInput: if a loss or gradient was not finite: such a step changes no weight, and may not count.
    """
    columns = {name: np.array([float(metrics[name]) for metrics in window]) for name in window[0]}
    if columns.pop("nonfinite").any():
        raise BadInput("a loss or gradient is not finite; go on from the last checkpoint with a lower learning rate")
    return {name: float(values[-1] if name == "learning_rate" else values.mean()) for name, values in columns.items()}


def _log(path: Path, line: dict) -> None:
    print(f"step {line['step']} | loss {line['loss']:.4f} | {line['examples_per_second']:.1f} examples/s", flush=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
