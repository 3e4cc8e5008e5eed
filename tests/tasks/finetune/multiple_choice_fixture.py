"""Writes tests/fixtures/multiple_choice.npz: training steps of transformers' classes for multiple choice in PyTorch.

    python -m tests.tasks.finetune.multiple_choice_fixture tests/fixtures/multiple_choice.npz

Needs torch and transformers 5. The optimizer is the authors' AdamW, which has no bias correction. The loss is the sum
over the examples, as in this program: transformers' mean times their number. Nothing is dropped.
"""

import json
import sys

import numpy as np

from tests.models.modernbert_fixture import SIZES, transformers_config, weight

NUM_STEPS = 6  # the first has the rate 0
RATE, WARMUP_STEPS, PLANNED_STEPS, DECAY, CLIP_NORM = 3e-3, 1, 10, 0.01, 1.0
NUM_EXAMPLES, NUM_CHOICES, NUM_TOKENS = 3, 4, 9
NUM_LAYERS = 2
ELECTRA = {**SIZES, "num_hidden_layers": NUM_LAYERS, "embedding_size": 8, "max_position_embeddings": 16}
ELECTRA |= {"layer_norm_eps": 2e-3}
CASES = ("electra", "electra linear", "modernbert")


def batches() -> list[dict[str, np.ndarray]]:
    """Sequences of 5 to 9 tokens, in two segments."""
    made = []
    for step in range(NUM_STEPS):
        random = np.random.default_rng(step)
        shape = [NUM_EXAMPLES, NUM_CHOICES, NUM_TOKENS]
        lengths = random.integers(5, NUM_TOKENS + 1, [*shape[:2], 1])
        mask = (np.arange(NUM_TOKENS) < lengths).astype(np.int64)
        segments = (np.arange(NUM_TOKENS) >= random.integers(2, 4, [*shape[:2], 1])) * mask
        ids = random.integers(3, SIZES["vocab_size"], shape) * mask
        labels = random.integers(0, NUM_CHOICES, NUM_EXAMPLES)
        made.append({"input_ids": ids, "input_mask": mask, "segment_ids": segments, "label_ids": labels})
    return made


def initial_weight(case: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The initial values of a tensor. In lower case, because `weight` knows a norm by its name."""
    return weight(f"{case}|{name}".lower(), shape)


def model_of(case: str):
    import torch
    import transformers

    if case == "modernbert":
        model = transformers.ModernBertForMultipleChoice(transformers_config(NUM_LAYERS))
    else:
        settings = ELECTRA | ({"summary_use_proj": False, "summary_activation": ""} if "linear" in case else {})
        model = transformers.ElectraForMultipleChoice(transformers.ElectraConfig(**settings))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.tensor(initial_weight(case, name, tuple(parameter.shape))))
    return model.eval()


def train(case: str) -> dict[str, np.ndarray]:
    """The configuration, the logits of the first batch, the losses of all, and the weights after the last one."""
    import torch

    model, losses, logits = model_of(case), [], None
    parameters = list(model.parameters())
    moments = [(torch.zeros_like(each), torch.zeros_like(each)) for each in parameters]
    for step, batch in enumerate(batches()):
        names = {"input_ids": "input_ids", "attention_mask": "input_mask", "labels": "label_ids"}
        names |= {"token_type_ids": "segment_ids"} if case != "modernbert" else {}
        output = model(**{theirs: torch.tensor(batch[ours]) for theirs, ours in names.items()})
        logits = output.logits.detach().numpy() if step == 0 else logits
        loss = NUM_EXAMPLES * output.loss
        losses.append(loss.item())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP_NORM)
        rate = RATE * min(1.0, step / WARMUP_STEPS) * (1.0 - step / PLANNED_STEPS)
        with torch.no_grad():
            for parameter, (first, second) in zip(parameters, moments, strict=True):
                first.mul_(0.9).add_(0.1 * parameter.grad)
                second.mul_(0.999).add_(0.001 * parameter.grad**2)
                decay = DECAY * parameter if parameter.ndim == 2 else 0.0
                parameter.sub_(rate * (first / (second.sqrt() + 1e-6) + decay))
                parameter.grad = None
    config = {**model.config.to_dict(), "architectures": [type(model).__name__]}
    results = {"config": np.array(json.dumps(config)), "logits": logits, "losses": np.array(losses)}
    return results | {f"weight|{name}": each.detach().numpy() for name, each in model.named_parameters()}


if __name__ == "__main__":
    results = {f"{case}|{name}": value for case in CASES for name, value in train(case).items()}
    np.savez_compressed(sys.argv[1], **results)
