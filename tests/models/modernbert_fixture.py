"""Writes tests/fixtures/modernbert.npz, the results of ModernBertForMaskedLM. Needs torch and transformers 5.

    python tests/models/modernbert_fixture.py tests/fixtures/modernbert.npz

The weights are random numbers that `weight` gives by name and shape, so that they need not be stored.
"""

import sys
import zlib

import numpy as np

SIZES = {"vocab_size": 23, "hidden_size": 12, "intermediate_size": 10, "num_hidden_layers": 4, "num_attention_heads": 3}


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The values of transformers' tensor of this name: of the size of trained ones, no two tensors alike."""
    values = np.random.default_rng(zlib.crc32(name.encode())).normal(size=shape).astype(np.float32)
    if len(shape) == 2:
        return values * np.float32(shape[1] ** -0.5)
    return np.float32(0.1) * values + np.float32("norm.weight" in name)


def transformers_config(num_layers: int, **settings):
    """Transformers' configuration of a network of these sizes, every setting away from its default."""
    import transformers

    thetas = {"full_attention": 800.0, "sliding_attention": 50.0}
    types = list(thetas)
    values = {
        **SIZES,
        "num_hidden_layers": num_layers,
        "local_attention": 4,
        "layer_types": [types[layer % 2] for layer in range(num_layers)],
        "rope_parameters": {name: {"rope_type": "default", "rope_theta": theta} for name, theta in thetas.items()},
        "norm_eps": 2e-3,
        "max_position_embeddings": 64,
        **{f"{name}_token_id": number for number, name in enumerate(("pad", "bos", "eos"))},
        "cls_token_id": 1,
        "sep_token_id": 2,
        "attn_implementation": "eager",
    }
    return transformers.ModernBertConfig(**values | settings)


def compute(has_biases: bool) -> dict[str, np.ndarray]:
    """The model's results on random batches, every setting away from its default."""
    import torch
    import transformers

    names = ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias")
    model = transformers.ModernBertForMaskedLM(transformers_config(4, **dict.fromkeys(names, has_biases))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.tensor(weight(name, tuple(parameter.shape))))
    random = np.random.default_rng(7)
    input_ids, input_mask = random.integers(3, 23, [2, 15]), np.ones([2, 15], np.int64)
    input_mask[1, 9:] = 0
    batch = {"input_ids": torch.tensor(input_ids), "attention_mask": torch.tensor(input_mask)}
    hidden = model.model(**batch).last_hidden_state
    upstream = random.normal(size=[2, 15, 12]).astype(np.float32) * input_mask[..., np.newaxis]
    (hidden * torch.tensor(upstream, dtype=torch.float32)).sum().backward()
    results = {"input_ids": input_ids, "input_mask": input_mask, "upstream": upstream.astype(np.float32)}
    results |= {"hidden": hidden.detach().numpy(), "logits": model(**batch).logits.detach().numpy()}
    gradients = {f"gradient|{name}": each.grad for name, each in model.named_parameters() if each.grad is not None}
    return results | {name: gradient.numpy() for name, gradient in gradients.items()}


if __name__ == "__main__":
    cases = {"plain": compute(False), "biases": compute(True)}
    np.savez_compressed(
        sys.argv[1], **{f"{c}|{name}": value for c, values in cases.items() for name, value in values.items()}
    )
