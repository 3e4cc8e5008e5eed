"""Writes tests/fixtures/modernbert_steps.npz: joint training steps of transformers' classes in PyTorch.

    python -m tests.train.modernbert_steps_fixture tests/fixtures/modernbert_steps.npz

Needs torch and transformers 5. The generator has the discriminator's width, half its layers and its embeddings. The
optimizer is the authors' AdamW, which has no bias correction. Samples are the most likely tokens.
"""

import sys

import numpy as np

from tests.models.modernbert_fixture import SIZES, transformers_config, weight

NUM_STEPS = 6  # the first has the rate 0
RATE, WARMUP_STEPS, PLANNED_STEPS, DECAY, CLIP_NORM = 3e-3, 1, 10, 0.01, 1.0
REPLACED_TOKEN_WEIGHT = 50.0


def batches() -> list[dict[str, np.ndarray]]:
    """Four examples each, of 15 tokens and 3 masked ones; the last has 9 tokens and an unused slot."""
    made = []
    for step in range(NUM_STEPS):
        random = np.random.default_rng(step)
        input_ids, input_mask = random.integers(5, SIZES["vocab_size"], [4, 15]), np.ones([4, 15], np.int64)
        input_mask[3, 9:] = 0
        input_ids *= input_mask
        positions = np.stack([np.sort(random.choice(np.arange(1, 9), 3, replace=False)) for _ in range(4)])
        weights = np.ones([4, 3], np.float32)
        positions[3, 2], weights[3, 2] = 0, 0.0
        masked_input_ids = input_ids.copy()
        for row, column in zip(*np.nonzero(weights), strict=True):
            masked_input_ids[row, positions[row, column]] = 4
        ids = np.take_along_axis(input_ids, positions, axis=1) * (weights > 0)
        batch = {"input_ids": input_ids, "input_mask": input_mask, "masked_input_ids": masked_input_ids}
        batch |= {"masked_lm_positions": positions, "masked_lm_ids": ids, "masked_lm_weights": weights}
        made.append(batch)
    return made


def joint_losses(generator, discriminator, batch):
    """The masked-LM loss over the slots, and the discriminator's loss over real tokens."""
    import torch
    from torch.nn import functional

    positions, mask = batch["masked_lm_positions"], batch["input_mask"]
    hidden = generator.model(batch["masked_input_ids"], attention_mask=mask).last_hidden_state
    hidden = hidden.gather(1, positions[:, :, None].expand(-1, -1, hidden.shape[-1]))
    logits = generator.decoder(generator.head(hidden))
    losses = functional.cross_entropy(logits.flatten(0, 1), batch["masked_lm_ids"].flatten(), reduction="none")
    weights = batch["masked_lm_weights"].flatten()
    original = batch["input_ids"]
    sampled = torch.where(batch["masked_lm_weights"] > 0, logits.argmax(dim=-1), original[:, :1])
    corrupted = original.scatter(1, positions, sampled)
    scores = discriminator(corrupted, attention_mask=mask).logits[..., 0]
    errors = functional.binary_cross_entropy_with_logits(scores, (corrupted != original).float(), reduction="none")
    return (losses * weights).sum() / weights.sum(), (errors * mask).sum() / mask.sum()


def networks():
    """The two networks with the weights of `weight` and shared embeddings."""
    import torch
    import transformers

    made = {}
    for network, num_layers in (("generator", 2), ("discriminator", 4)):
        config = transformers_config(num_layers, num_labels=1)
        kind = transformers.ModernBertForTokenClassification
        made[network] = (transformers.ModernBertForMaskedLM if network == "generator" else kind)(config)
    made["discriminator"].model.embeddings = made["generator"].model.embeddings
    with torch.no_grad():
        for network, model in made.items():
            for name, parameter in model.named_parameters():
                parameter.copy_(torch.tensor(weight(f"{network}|{name}", tuple(parameter.shape))))
    return made


def train() -> dict[str, np.ndarray]:
    import torch

    made = networks()
    parameters = {id(each): each for model in made.values() for each in model.parameters()}.values()
    moments = [(torch.zeros_like(each), torch.zeros_like(each)) for each in parameters]
    results = {"masked_lm": [], "replaced_token": [], "gradient_norm": []}
    for step, batch in enumerate(batches()):
        losses = joint_losses(**made, batch={name: torch.tensor(values) for name, values in batch.items()})
        (losses[0] + REPLACED_TOKEN_WEIGHT * losses[1]).backward()
        norm = torch.nn.utils.clip_grad_norm_(list(parameters), CLIP_NORM)
        rate = RATE * min(1.0, step / WARMUP_STEPS) * (1.0 - step / PLANNED_STEPS)
        with torch.no_grad():
            for parameter, (first, second) in zip(parameters, moments, strict=True):
                first.mul_(0.9).add_(0.1 * parameter.grad)
                second.mul_(0.999).add_(0.001 * parameter.grad**2)
                decay = DECAY * parameter if parameter.ndim == 2 else 0.0
                parameter.sub_(rate * (first / (second.sqrt() + 1e-6) + decay))
                parameter.grad = None
        for name, value in zip(results, (*losses, norm), strict=True):
            results[name].append(value.item())
    weights = {
        f"{network}|{name}": each.detach().numpy()
        for network, model in made.items()
        for name, each in model.named_parameters()
    }
    return {name: np.array(values) for name, values in results.items()} | weights


if __name__ == "__main__":
    np.savez_compressed(sys.argv[1], **train())
