"""Matrix products of one library in its own process, for `benchmarks.processor`: see `benchmarks.worker`.

    python -m benchmarks.products '{"kind": "pytorch", "num_threads": 2, "size": 2048}'

Commands: `step`, the first product, and `products N`, answered with the seconds of each of N products.
"""

from collections.abc import Callable

# The libraries differ, so each contender imports its own.
from benchmarks.worker import Commands, run_worker, timed


def answer_all(commands: Commands, product: Callable[[], object]) -> None:
    commands.answer_all(
        step=lambda: {"seconds": timed(product, 0)}, products=lambda count: {"seconds": timed(product, count)}
    )


def tensorflow(options: dict, commands: Commands) -> None:
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(options["num_threads"])
    size = options["size"]
    left, right = (tf.random.stateless_uniform([size, size], [0, seed]) for seed in range(2))
    answer_all(commands, lambda: tf.linalg.matmul(left, right))


def pytorch(options: dict, commands: Commands) -> None:
    import torch

    torch.set_num_threads(options["num_threads"])
    left, right = (torch.rand(options["size"], options["size"]) for _ in range(2))
    answer_all(commands, lambda: torch.mm(left, right))


if __name__ == "__main__":
    run_worker({"tensorflow": tensorflow, "pytorch": pytorch})
