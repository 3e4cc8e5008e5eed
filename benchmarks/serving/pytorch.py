"""The peer: transformers' encoder and fast tokenizer on PyTorch. Needs the packages of requirements-peers.txt."""

from collections.abc import Callable

import torch
from transformers import ElectraModel, ElectraTokenizer

from benchmarks.train_step.pytorch import encoder_config


def embedder(
    vocab_file: str, encoder: dict, num_threads: int, compiled: bool
) -> Callable[[list[str]], tuple[int, ...]]:
    """What maps texts to the shape of their vectors, as transformers' documentation does it: [N, T, H]."""
    torch.set_num_threads(num_threads)
    tokenizer = ElectraTokenizer(vocab=vocab_file)
    assert tokenizer.is_fast
    model = ElectraModel(encoder_config(encoder)).eval()
    run = torch.compile(model) if compiled else model
    longest = encoder["max_position_embeddings"]

    def embed(texts: list[str]) -> tuple[int, ...]:
        inputs = tokenizer(texts, padding=True, truncation=True, max_length=longest, return_tensors="pt")
        with torch.inference_mode():
            return run(**inputs).last_hidden_state.numpy().shape

    return embed
