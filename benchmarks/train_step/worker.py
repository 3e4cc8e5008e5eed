"""One contender of `benchmarks.train_step` in its own process: see `benchmarks.worker`.

    python -m benchmarks.train_step.worker '{"kind": "ours", "num_threads": 2, ...}'

Commands: `step`, answered with the losses of a step, and `steps N`, answered with the seconds of each of N steps.
"""

from collections.abc import Callable

from benchmarks.worker import Commands, peak_bytes, run_worker, timed


def answer_steps(commands: Commands, step: Callable[[], dict[str, float]]) -> None:
    """Answers all commands. `step` trains on the next batch, and returns its losses after the update."""
    commands.answer_all(
        step=lambda: {"losses": step()},
        steps=lambda num_steps: {"seconds": timed(step, num_steps), "peak_bytes": peak_bytes()},
    )


if __name__ == "__main__":
    run_worker("benchmarks.train_step")
