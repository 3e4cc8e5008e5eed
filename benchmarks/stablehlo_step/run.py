"""Times an exported step on this machine's device. Imports JAX, NumPy and the standard library alone."""

import argparse
import dataclasses
import itertools
import time
from collections.abc import Sequence

import jax
import numpy as np

from benchmarks.stablehlo_step.exported import StepFiles, report, timed_rounds

jax.config.update("jax_enable_x64", True)  # the step's number has 64 bits; all other types are explicit

State = tuple[jax.Array, ...]


def main(arguments: argparse.Namespace) -> int:
    files = StepFiles(arguments.step)
    before = time.perf_counter()
    program = Program(files)
    compile_seconds = time.perf_counter() - before
    batches = itertools.cycle([jax.device_put(batch) for batch in files.batches()])
    state, losses = tuple(map(jax.device_put, files.state())), []

    def step() -> None:
        nonlocal state
        state, metrics = program.run(state, next(batches))
        losses.append(metrics["loss"])

    seconds = timed_rounds(step, lambda: jax.block_until_ready(state), arguments)
    device, losses = jax.devices()[0], [float(loss) for loss in losses]
    report(
        files.manifest,
        seconds,
        arguments,
        device.device_kind,
        versions={**files.manifest["versions"], "jax": jax.__version__},
        compile_seconds=compile_seconds,
        peak_bytes=(device.memory_stats() or {}).get("peak_bytes_in_use"),
        first_loss=losses[0],
        last_loss=losses[-1],
        losses=losses,
    )
    if arguments.final_state:
        names = [each["name"] for each in files.manifest["state"]]
        np.savez(arguments.final_state, **dict(zip(names, jax.device_get(state), strict=True)))
    return 0


class Program:
    """An exported step, compiled for the default device."""

    def __init__(self, files: StepFiles):
        self._outputs = [each["output"] for each in files.manifest["state"]]
        self._metrics = files.manifest["metrics"]
        batch, state = ([_argument(each) for each in files.manifest[part]] for part in ("batch", "state"))
        changed = {output: each for output, each in zip(self._outputs, state, strict=True) if output is not None}
        results = [jax.ShapeDtypeStruct((), np.float32)] * len(self._metrics)
        results += [changed[output] for output in sorted(changed)]
        # `jax.export` gives a function of this signature, whose module is replaced by the program.
        stub = jax.jit(lambda *_: [jax.numpy.zeros(each.shape, each.dtype) for each in results], keep_unused=True)
        exported = jax.export.export(stub)(*batch, *state)
        self._call = dataclasses.replace(exported, mlir_module_serialized=files.program).call
        self._compiled = jax.jit(self._step, donate_argnums=0).lower(tuple(state), tuple(batch)).compile()

    def run(self, state: State, batch: Sequence[np.ndarray]) -> tuple[State, dict[str, jax.Array]]:
        """One step, which reuses the memory of `state`. Returns before the device is done."""
        return self._compiled(state, tuple(batch))

    def _step(self, state: State, batch: tuple[jax.Array, ...]) -> tuple[State, dict[str, jax.Array]]:
        results = self._call(*batch, *state)
        after = [
            value if output is None else results[output] for output, value in zip(self._outputs, state, strict=True)
        ]
        return tuple(after), dict(zip(self._metrics, results, strict=False))


def _argument(signature: dict) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(signature["shape"]), signature["dtype"])
