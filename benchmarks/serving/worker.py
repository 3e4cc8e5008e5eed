"""One contender of `benchmarks.serving` in its own process, which embeds texts on command.

    python -m benchmarks.serving.worker '{"kind": "ours", "num_threads": 2, "config": "texts.json", ...}'

Reads one command a line from standard input and answers each with one line of JSON on standard output: `step` (the
first call, so that start-up can be timed) and `calls NUM_TOKENS BATCH_SIZE K`. It ends at the end of its input. What
libraries print goes to standard error.
"""

import json
import os
import sys
import time
from collections.abc import Callable

Embed = Callable[[list[str]], tuple[int, ...]]  # texts -> the shape of their vectors


def start_ours(options: dict) -> Embed:
    """The `embed` signature of an export, as a program that knows TensorFlow alone calls it."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers the tokenizer's operations)

    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(options["settings"]["num_threads"])
    # The graph is a chain: a second thread for whole operations only hands them to and fro.
    tf.config.threading.set_inter_op_parallelism_threads(1)
    signature = tf.saved_model.load(options["settings"]["export"]).signatures["embed"]
    return lambda texts: signature(text=tf.constant(texts))["sequence_output"].numpy().shape


def start_pytorch(options: dict) -> Embed:
    from benchmarks.serving.pytorch import embedder

    return embedder(options["vocab_file"], options["encoder"], **options["settings"])


KINDS = {"ours": start_ours, "pytorch": start_pytorch}


def answer(command: str, embed: Embed, texts: dict[str, list[str]]) -> dict:
    """The answer to a command. Raises: ValueError: if there is no such command."""
    name, *numbers = command.split()
    if name == "step":
        embed(next(iter(texts.values()))[:1])
        return {"losses": {}}
    if name != "calls":
        raise ValueError(f"unknown command {command!r}")
    num_tokens, batch_size, num_calls = numbers
    batch = texts[num_tokens][: int(batch_size)]
    shape, seconds = embed(batch), []  # untimed: it refills the caches
    for _ in range(int(num_calls)):
        start = time.perf_counter()
        embed(batch)
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds, "shape": shape}


def main() -> None:
    options = json.loads(sys.argv[1])
    # Libraries size their thread pools by the cores they see, whatever they are told later.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options["num_threads"]])
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with open(options["config"], encoding="utf-8") as file:
        texts = json.load(file)
    embed = KINDS[options["kind"]](options)
    for line in sys.stdin:
        print(json.dumps(answer(line.strip(), embed, texts)), file=answers, flush=True)


if __name__ == "__main__":
    main()
