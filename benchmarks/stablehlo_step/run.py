"""Times an exported step on this machine's device. Needs JAX and NumPy alone."""

import argparse
import itertools
import time
from pathlib import Path

from benchmarks.stablehlo_step.files import BadInput, StepFiles, write_arrays
from benchmarks.stablehlo_step.measurement import check_timing_flags, published_peak, report, result, timed_rounds


def main(arguments: argparse.Namespace) -> int:
    check_timing_flags(arguments)
    files = StepFiles(arguments.step)
    files.require_one_replica()
    if arguments.final_state and Path(arguments.final_state).exists():
        raise BadInput(f"--final_state={arguments.final_state} exists; give a new file")

    import jax

    from benchmarks.stablehlo_step.program import Program

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
        write_arrays(arguments.final_state, program.arrays(state))
    return 0
