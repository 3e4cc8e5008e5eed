"""An exported step under JAX. Imports JAX, NumPy and the standard library alone."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from benchmarks.stablehlo_step.files import (
    EXAMPLES,
    MASK,
    STATE,
    STEP,
    BadInput,
    StepFiles,
    first_line,
    read_arrays,
    state_from,
)

jax.config.update("jax_enable_x64", True)  # the step's number has 64 bits; everything else states its own type

_TRUNCATED_DEVIATION = 0.87962566103423978  # of a normal distribution that is cut off at 2 deviations
State = tuple[jax.Array, ...]


class Program:
    """The step, compiled for the default device.

    Attributes:
        device: which.        batch_size: B.
    """

    def __init__(self, files: StepFiles):
        self.files, self.manifest = files, files.manifest
        self.device = jax.devices()[0]
        self.batch_size = self.manifest["batch_size"]
        self._names = [each["name"] for each in self.manifest["state"]]
        self._outputs = [each["output"] for each in self.manifest["state"]]
        self._metrics = self.manifest["metrics"]
        batch, state = (list(map(_argument, self.manifest[part])) for part in ("batch", "state"))
        results = [jax.ShapeDtypeStruct((), np.float32)] * len(self._metrics)
        written = {each["output"]: argument for each, argument in zip(self.manifest["state"], state, strict=True)}
        written.pop(None, None)
        results += [written[index] for index in sorted(written)]
        self._call = callable_of(files.read(STEP), [*batch, *state], results)
        try:
            self.compiled = jax.jit(self._step, donate_argnums=0).lower(tuple(state), tuple(batch)).compile()
        except (RuntimeError, ValueError) as error:
            raise BadInput(
                f"{files.directory / STEP} was not compiled ({first_line(error)}); export the step again"
            ) from None

    def run(self, state: State, batch: Sequence[np.ndarray]) -> tuple[State, dict[str, jax.Array]]:
        """One step, which takes the memory of `state`. Returns before the device is done."""
        return self.compiled(state, tuple(batch))

    def initial_state(self, path: str | None, seed: int) -> State:
        """The state in a file; without one that of the export, or where that has none, one that is drawn."""
        if path is None and (self.files.directory / STATE).exists():
            path = self.files.directory / STATE
        if path is not None:
            values = state_from(path, self.manifest)
            return tuple(jax.device_put(values[name]) for name in self._names)
        keys = jax.random.split(jax.random.key(seed), len(self._names))
        return tuple(_drawn(key, each) for key, each in zip(keys, self.manifest["state"], strict=True))

    def arrays(self, state: State) -> dict[str, np.ndarray]:
        """The state by name, on the host."""
        return dict(zip(self._names, jax.device_get(state), strict=True))

    def step_of(self, state: State) -> int:
        """How many steps a state has behind it."""
        return int(state[self._names.index(self.manifest["step_variable"])])

    def _step(self, state: State, batch: tuple[jax.Array, ...]) -> tuple[State, dict[str, jax.Array]]:
        results = self._call(*batch, *state)
        kept = zip(self._outputs, state, strict=True)
        after = tuple(value if output is None else results[output] for output, value in kept)
        return after, dict(zip(self._metrics, results, strict=False))


class MaskedExamples:
    """The batches of a data set: each step's examples, masked on the device as the input pipeline masks them.

    Attributes:
        num_steps: how many batches there are.
    """

    def __init__(self, files: StepFiles):
        manifest, examples = files.manifest, read_arrays(files.directory / EXAMPLES)
        self._ids, self._lengths = examples["input_ids"], examples["segment_lengths"]
        self._order = examples["order"].reshape(-1, manifest["batch_size"])
        self._first_step, self.num_steps = manifest["first_step"], len(self._order)
        shape = (manifest["batch_size"], manifest["max_seq_length"])
        arguments = [jax.ShapeDtypeStruct(size, np.int32) for size in (shape, (shape[0], 2))]
        arguments.append(jax.ShapeDtypeStruct((), np.int64))
        self._mask = jax.jit(callable_of(files.read(MASK), arguments, list(map(_argument, manifest["batch"]))))

    def batch(self, step: int) -> list[jax.Array]:
        """The batch of the step after `step`, in the order of the program's arguments."""
        rows = self._order[step - self._first_step]
        ids, lengths = (values[rows].astype(np.int32) for values in (self._ids, self._lengths))
        return self._mask(ids, lengths, np.int64(step))


def callable_of(
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
        raise BadInput(f"{signature['name']} follows from the data and cannot be drawn; export the step with --state")
    if "constant" in initial:
        return jax.numpy.full(shape, initial["constant"], dtype)
    drawn = jax.random.truncated_normal(key, -2.0, 2.0, shape, dtype)
    return drawn * np.dtype(dtype).type(initial["deviation"] / _TRUNCATED_DEVIATION)
