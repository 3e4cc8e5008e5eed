"""The peer in PyTorch: ELECTRA's joint step with Hugging Face's classes. Needs the packages of requirements-peers.txt.

It is as fast as these classes allow: only the generator's hidden states at masked positions are multiplied by the
vocabulary (`ElectraForMaskedLM.forward` uses all positions), the optimizer is fused, and tokens are sampled with Gumbel
noise (0.22 s, instead of 0.38 s with `torch.multinomial`).
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from benchmarks.train_step.batches import NUM_BATCHES, BatchShape, synthetic_batch
from benchmarks.train_step.worker import answer_steps
from benchmarks.worker import Commands

_WEIGHT_DECAY, _CLIP_NORM, _REPLACED_TOKEN_WEIGHT, _BETAS = 0.01, 1.0, 50.0, (0.9, 0.999)
_SMALLEST_UNIFORM = 1e-9  # keeps the logarithms finite
_NOT_DECAYED = ("LayerNorm", "layer_norm", "bias")


class JointElectra(torch.nn.Module):
    """Generator and discriminator with shared embeddings, and the joint loss of the paper.

    Args:
        discriminator, generator: entries of config.json, see `network_config`.
    """

    def __init__(self, discriminator: dict, generator: dict):
        super().__init__()
        self.generator = ElectraForMaskedLM(network_config(generator))
        self.discriminator = ElectraForPreTraining(network_config(discriminator))
        embeddings = self.generator.electra.embeddings = self.discriminator.electra.embeddings
        self.generator.generator_lm_head.weight = embeddings.word_embeddings.weight

    def forward(self, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the masked-LM loss over masked positions and the discriminator's loss over real tokens."""
        inputs = {"attention_mask": batch["input_mask"], "token_type_ids": batch["segment_ids"]}
        hidden = self.generator.electra(batch["masked_input_ids"], **inputs).last_hidden_state
        positions = batch["masked_lm_positions"][:, :, None].expand(-1, -1, hidden.shape[-1])
        hidden = hidden.gather(1, positions).flatten(0, 1)  # [B*M, G]
        logits = self.generator.generator_lm_head(self.generator.generator_predictions(hidden)).float()  # [B*M, V]
        losses = functional.cross_entropy(logits, batch["masked_lm_ids"].flatten(), reduction="none")
        weights, original = batch["masked_lm_weights"].flatten(), batch["input_ids"]
        with torch.no_grad():
            sampled = _sample(logits).view_as(batch["masked_lm_positions"])
            # An unused slot has position 0, which keeps the original [CLS].
            sampled = torch.where(batch["masked_lm_weights"] > 0, sampled, original[:, :1])
            corrupted = original.scatter(1, batch["masked_lm_positions"], sampled)
            is_replaced = (corrupted != original).float()
        scores, real = self.discriminator(corrupted, **inputs).logits.float(), batch["input_mask"].float()
        replaced_token = functional.binary_cross_entropy_with_logits(scores, is_replaced, reduction="none")
        return (losses * weights).sum() / weights.sum(), (replaced_token * real).sum() / real.sum()


def _sample(logits: torch.Tensor) -> torch.Tensor:
    """Samples from the softmax with Gumbel noise: [B*M, V] -> [B*M]."""
    noise = -torch.log(-torch.log(torch.rand_like(logits) + _SMALLEST_UNIFORM) + _SMALLEST_UNIFORM)
    return (logits + noise).argmax(dim=-1)


class PyTorchStep:
    """One joint update: forward, backward, clipping by the global norm, AdamW, learning-rate schedule.

    Args:
        batches: in the layout of `synthetic_batch`, used in turn by `run`.
        discriminator, generator: see `JointElectra`.
        precision: `float32`, or `bfloat16` for autocast.
        compiled: whether to use `torch.compile`.
        device: `cpu` or `cuda`.
    """

    def __init__(
        self,
        batches: Sequence[dict[str, np.ndarray]],
        discriminator: dict,
        generator: dict,
        precision: str = "float32",
        compiled: bool = False,
        device: str = "cpu",
    ):
        torch.manual_seed(0)
        self.model = JointElectra(discriminator, generator).to(device).train()
        self._losses = torch.compile(self.model) if compiled else self.model
        self._precision, self._device = precision, device
        self._parameters = list(self.model.parameters())
        self._optimizer = torch.optim.AdamW(_decay_groups(self.model), betas=_BETAS, eps=1e-6, fused=True)
        self._batches = [{name: each.to(device) for name, each in tensors(batch).items()} for batch in batches]
        self._num_steps_run = 0

    def run(self, num_steps: int = 1) -> dict[str, float]:
        """Runs steps on the next batches, and waits for the last. Returns: its losses, after the update."""
        for _ in range(num_steps):
            losses = self.begin()
        return {name: value.item() for name, value in losses.items()}

    def begin(self) -> dict[str, torch.Tensor]:
        """Begins one step on the next batch without waiting for a GPU. Returns: its losses, scalars on the device."""
        learning_rate = 5e-4 * min(1.0, self._num_steps_run / 10_000) * (1.0 - self._num_steps_run / 1_000_000)
        batch = self._batches[self._num_steps_run % len(self._batches)]
        self._num_steps_run += 1
        with torch.autocast(self._device, torch.bfloat16, enabled=self._precision == "bfloat16"):
            masked_lm, replaced_token = self._losses(batch)
        loss = masked_lm + _REPLACED_TOKEN_WEIGHT * replaced_token
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, _CLIP_NORM)
        # The authors' AdamW does not correct its moments, PyTorch's does.
        first, second = (1.0 - beta**self._num_steps_run for beta in _BETAS)
        correction = first / math.sqrt(second)
        for group in self._optimizer.param_groups:
            group["lr"], group["weight_decay"] = correction * learning_rate, group["decay"] / correction
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return {"loss": loss.detach(), "masked_lm": masked_lm.detach(), "replaced_token": replaced_token.detach()}


def answer_all(options: dict, commands: Commands) -> None:
    """Answers the commands of `benchmarks.train_step.worker`."""
    torch.set_num_threads(options["num_threads"])
    batches = [synthetic_batch(BatchShape(**options["shape"]), seed) for seed in range(NUM_BATCHES)]
    answer_steps(commands, PyTorchStep(batches, **options["networks"], **options["settings"]).run)


def network_config(entries: dict) -> ElectraConfig:
    """The configuration of a network from its entries of config.json, as our converter writes them."""
    return ElectraConfig.from_dict(entries)


def _decay_groups(model: torch.nn.Module) -> list[dict]:
    """Parameter groups: weight decay for all but biases and LayerNorms, as in the authors' code."""
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        (others if any(part in name for part in _NOT_DECAYED) else decayed).append(parameter)
    return [{"params": decayed, "decay": _WEIGHT_DECAY}, {"params": others, "decay": 0.0}]


def tensors(batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """The arrays as tensors; integers become int64, which PyTorch's embedding lookups require."""
    return {
        name: torch.from_numpy(values if values.dtype == np.float32 else values.astype(np.int64))
        for name, values in batch.items()
    }
