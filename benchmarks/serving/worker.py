"""One contender of `benchmarks.serving` in its own process: see `benchmarks.worker`.

    python -m benchmarks.serving.worker '{"kind": "ours", "num_threads": 2, "config": "texts.json", ...}'

Commands: `step`, the first call, and `calls NUM_TOKENS BATCH_SIZE N`, answered with the seconds of each of N calls.
"""

import json
from collections.abc import Callable

# Imports count as a contender's start, so each contender imports its own libraries.
from benchmarks.worker import Commands, run_worker, timed

Embed = Callable[[list[str]], tuple[int, ...]]  # texts -> the shape of their vectors


def ours(options: dict, commands: Commands) -> None:
    """Calls the `embed` signature of an export; needs only TensorFlow."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers the tokenizer's operations)

    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(options["settings"]["num_threads"])
    tf.config.threading.set_inter_op_parallelism_threads(options["num_threads"])  # a server's default: its cores
    signature = tf.saved_model.load(options["settings"]["export"]).signatures["embed"]
    answer_all(options, commands, lambda texts: signature(text=tf.constant(texts))["sequence_output"].numpy().shape)


def pytorch(options: dict, commands: Commands) -> None:
    """Calls the encoder and fast tokenizer of transformers as its documentation recommends."""
    import torch
    from transformers import ElectraModel, ElectraTokenizer

    from benchmarks.train_step.pytorch import network_config

    torch.set_num_threads(options["settings"]["num_threads"])
    tokenizer = ElectraTokenizer(vocab=options["vocab_file"])
    assert tokenizer.is_fast
    model = ElectraModel(network_config(options["encoder"])).eval()
    run = torch.compile(model) if options["settings"]["compiled"] else model
    longest = options["encoder"]["max_position_embeddings"]

    def embed(texts: list[str]) -> tuple[int, ...]:
        inputs = tokenizer(texts, padding=True, truncation=True, max_length=longest, return_tensors="pt")
        with torch.inference_mode():
            return run(**inputs).last_hidden_state.numpy().shape

    answer_all(options, commands, embed)


def answer_all(options: dict, commands: Commands, embed: Embed) -> None:
    with open(options["config"], encoding="utf-8") as file:
        texts = json.load(file)

    def calls(num_tokens: int, batch_size: int, num_calls: int) -> dict:
        batch = texts[str(num_tokens)][:batch_size]
        return {"shape": embed(batch), "seconds": timed(lambda: embed(batch), num_calls)}

    commands.answer_all(step=lambda: {"shape": embed(next(iter(texts.values()))[:1])}, calls=calls)


if __name__ == "__main__":
    run_worker({"ours": ours, "pytorch": pytorch})
