"""How long a run takes from its start to its first step, at whatever step it stands."""

import shutil
import subprocess
import time
from pathlib import Path

from benchmarks.killed_runs import PROJECT

_PATIENCE_SECONDS = 600.0


def run_standing_at(step: int, source: Path, directory: Path, settings: list[str]) -> None:
    """Makes the directory of a run that stands at a step, with the weights of another one.

    Args:
        source: the directory of a run that has a checkpoint.
        settings: of the new run, `a.b=value`, over the source's.
    """
    import tensorflow as tf

    from electra_tf.runs.checkpoint import Checkpoints
    from electra_tf.runs.loop import Run
    from electra_tf.runs.directory import RunDirectory
    from electra_tf.tasks.pretrain.config import load_config
    from electra_tf.train.metrics import metric_accumulator

    config = load_config(source / "config.yaml", settings)
    run = Run(config, RunDirectory(directory), tf.distribute.OneDeviceStrategy("CPU:0"))
    objective = run.build()
    window = metric_accumulator(objective)
    Checkpoints(objective, RunDirectory(source), chief=True, keep=1, window=window).restore_latest()
    objective.optimizer.iterations.assign(step)
    run.directory.create()
    run.directory.adopt_config(config, chief=True)
    for name in ("vocab.txt", "tokenizer_settings.json"):
        shutil.copy(source / name, directory / name)
    checkpoints = Checkpoints(objective, run.directory, chief=True, keep=1, window=window)
    checkpoints.save(step)
    checkpoints.close()


def seconds_to_first_step(command: list[str], directory: Path, step: int) -> float:
    """Seconds from giving a command to the report of the step after `step`; the run is then killed.

    Raises: RuntimeError: if the run ends before.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        [*command, f"--model_dir={directory}"], cwd=PROJECT, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    lines = []
    try:
        for line in process.stderr:
            lines.append(line)
            if line.startswith(f"step {step + 1}/"):
                return time.monotonic() - started
            if time.monotonic() - started > _PATIENCE_SECONDS:
                break
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    raise RuntimeError(f"the run in {directory} made no step:\n{''.join(lines[-20:])}")
