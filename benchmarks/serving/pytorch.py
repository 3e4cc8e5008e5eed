"""The peer: the encoder and fast tokenizer of transformers, called as its documentation recommends."""

import torch
from transformers import ElectraModel, ElectraTokenizer

from benchmarks.serving.worker import answer_texts
from benchmarks.train_step.pytorch import network_config
from benchmarks.worker import Commands


def answer_all(options: dict, commands: Commands) -> None:
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

    answer_texts(options, commands, embed)
