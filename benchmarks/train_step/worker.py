"""One contender of `benchmarks.train_step` in its own process: see `benchmarks.worker`.

    python -m benchmarks.train_step.worker '{"kind": "ours", "num_threads": 2, ...}'

Commands: `step`, answered with the losses of a step, and `steps N`, answered with the seconds of each of N steps.
"""

from collections.abc import Callable

# Imports count as a contender's start, so each contender imports its own libraries.
from benchmarks.train_step.batches import NUM_BATCHES, BatchShape, synthetic_batch
from benchmarks.worker import Commands, peak_bytes, run_worker, timed


def ours(options: dict, commands: Commands) -> None:
    from electra_tf.cli.process import import_tensorflow

    import_tensorflow()
    from benchmarks.train_step.ours import OurStep

    overrides = [*options["overrides"], *options["settings"]]
    answer_all(commands, OurStep(options["config"], overrides, options["num_threads"]).run)


def pytorch(options: dict, commands: Commands) -> None:
    import torch

    from benchmarks.train_step.pytorch import PyTorchStep

    torch.set_num_threads(options["num_threads"])
    batches = [synthetic_batch(BatchShape(**options["shape"]), seed) for seed in range(NUM_BATCHES)]
    answer_all(commands, PyTorchStep(batches, **options["networks"], **options["settings"]).run)


def answer_all(commands: Commands, step: Callable[[], dict[str, float]]) -> None:
    """Answers all commands. `step` trains on the next batch, and returns its losses after the update."""
    commands.answer_all(
        step=lambda: {"losses": step()},
        steps=lambda num_steps: {"seconds": timed(step, num_steps), "peak_bytes": peak_bytes()},
    )


if __name__ == "__main__":
    run_worker({"ours": ours, "pytorch": pytorch})
