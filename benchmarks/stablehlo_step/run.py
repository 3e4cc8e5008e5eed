"""Times an exported step on this machine's device. Imports JAX, NumPy and the standard library alone."""

import argparse
import dataclasses
import itertools
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np

from benchmarks.stablehlo_step.files import STATE, StepFiles
from benchmarks.stablehlo_step.measurement import published_peak, report, result, timed_rounds

jax.config.update("jax_enable_x64", True)  # the step's number has 64 bits; everything else states its own type

_TRUNCATED_DEVIATION = 0.87962566103423978  # of a normal distribution that is cut off at 2 deviations
State = tuple[jax.Array, ...]


def main(arguments: argparse.Namespace) -> int:
    files = StepFiles(arguments.step)
    before = time.perf_counter()
    program = Program(files)
    compile_seconds = time.perf_counter() - before
    batches = itertools.cycle([jax.device_put(batch) for batch in files.batches()])
    state, losses = program.initial_state(arguments.state, arguments.seed), []

    def step() -> None:
        nonlocal state
        state, metrics = program.run(state, next(batches))
        losses.append(metrics["loss"])

    for _ in range(arguments.warmup):
        step()
    seconds = timed_rounds(step, lambda: jax.block_until_ready(state), arguments.rounds, arguments.steps)
    kind, memory = program.device.device_kind, program.device.memory_stats() or {}
    losses = [float(loss) for loss in losses]
    row = result(
        files.manifest,
        seconds,
        arguments.peak_flops or published_peak(files.manifest, kind),
        contender="electra_tf",
        precision=files.manifest["precision"],
        device=kind,
        versions={**files.manifest["versions"], "jax": jax.__version__},
        compile_seconds=compile_seconds,
        peak_bytes=memory.get("peak_bytes_in_use"),
        first_loss=losses[0],
        last_loss=losses[-1],
        losses=losses,
    )
    report(row, arguments.output)
    if arguments.final_state:
        np.savez(arguments.final_state, **program.arrays(state))
    return 0


class Program:
    """The step, compiled for the default device, `device`."""

    def __init__(self, files: StepFiles):
        self._files, self.device = files, jax.devices()[0]
        self._state, self._metrics = files.manifest["state"], files.manifest["metrics"]
        batch, state = (list(map(_argument, signatures)) for signatures in (files.manifest["batch"], self._state))
        results = [jax.ShapeDtypeStruct((), np.float32)] * len(self._metrics)
        written = {each["output"]: argument for each, argument in zip(self._state, state, strict=True)}
        written.pop(None, None)
        results += [written[index] for index in sorted(written)]
        self._call = _callable_of(files.program, [*batch, *state], results)
        self._compiled = jax.jit(self._step, donate_argnums=0).lower(tuple(state), tuple(batch)).compile()

    def run(self, state: State, batch: Sequence[np.ndarray]) -> tuple[State, dict[str, jax.Array]]:
        """One step, which takes the memory of `state`. Returns before the device is done."""
        return self._compiled(state, tuple(batch))

    def initial_state(self, path: str | None, seed: int) -> State:
        """The state in a file; without one the export's; if that has none, a random one."""
        if path is None and (self._files.directory / STATE).exists():
            path = self._files.directory / STATE
        if path is not None:
            return tuple(map(jax.device_put, self._files.state_from(path)))
        keys = jax.random.split(jax.random.key(seed), len(self._state))
        return tuple(_drawn(key, each) for key, each in zip(keys, self._state, strict=True))

    def arrays(self, state: State) -> dict[str, np.ndarray]:
        """The state by name, on the host."""
        return dict(zip([each["name"] for each in self._state], jax.device_get(state), strict=True))

    def _step(self, state: State, batch: tuple[jax.Array, ...]) -> tuple[State, dict[str, jax.Array]]:
        results = self._call(*batch, *state)
        outputs = zip([each["output"] for each in self._state], state, strict=True)
        after = tuple(value if output is None else results[output] for output, value in outputs)
        return after, dict(zip(self._metrics, results, strict=False))


def _callable_of(
    program: bytes, arguments: Sequence[jax.ShapeDtypeStruct], results: Sequence[jax.ShapeDtypeStruct]
) -> Callable:
    """A function of JAX that calls a portable artifact of StableHLO.

    `jax.export` gives a function of this signature, and its module is replaced by the program.
    """
    stub = jax.jit(lambda *_: [jax.numpy.zeros(each.shape, each.dtype) for each in results], keep_unused=True)
    return dataclasses.replace(jax.export.export(stub)(*arguments), mlir_module_serialized=program).call


def _argument(signature: dict) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(signature["shape"]), signature["dtype"])


def _drawn(key: jax.Array, signature: dict) -> jax.Array:
    shape, dtype, initial = tuple(signature["shape"]), signature["dtype"], signature["initial"]
    if initial is None:
        raise ValueError(f"{signature['name']} depends on the data and cannot be drawn; export the step with --state")
    if "constant" in initial:
        return jax.numpy.full(shape, initial["constant"], dtype)
    drawn = jax.random.truncated_normal(key, -2.0, 2.0, shape, dtype)
    return drawn * np.dtype(dtype).type(initial["deviation"] / _TRUNCATED_DEVIATION)
