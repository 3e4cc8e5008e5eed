"""The peer in PyTorch: ELECTRA's joint step with Hugging Face's classes. Needs the packages of requirements-peers.txt.

It is as fast as these classes allow: only the generator's hidden states at masked positions are multiplied by the
vocabulary (`ElectraForMaskedLM.forward` uses all positions), the optimizer is fused, and tokens are sampled with Gumbel
noise (0.22 s, instead of 0.38 s with `torch.multinomial`).
"""

import math
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional
from transformers import (
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForTokenClassification,
    PreTrainedConfig,
)

_WEIGHT_DECAY, _CLIP_NORM, _REPLACED_TOKEN_WEIGHT, _BETAS = 0.01, 1.0, 50.0, (0.9, 0.999)
_SMALLEST_UNIFORM = 1e-9  # keeps the logarithms finite
_NOT_DECAYED = ("LayerNorm", "layer_norm", "norm.", "bias")


class JointElectra(torch.nn.Module):
    """Generator and discriminator with shared embeddings, and the joint loss of the paper.

    Args:
        discriminator, generator: entries of config.json, see `network_config`.
    """

    def __init__(self, discriminator: dict, generator: dict):
        super().__init__()
        of_generator, of_discriminator = network_config(generator), network_config(discriminator)
        self._is_modern = of_discriminator.model_type == "modernbert"
        if self._is_modern:
            self.generator = ModernBertForMaskedLM(of_generator)
            self.discriminator = ModernBertForTokenClassification(of_discriminator)
            embeddings = self.discriminator.model.embeddings
            if of_generator.hidden_size == of_discriminator.hidden_size:
                self.generator.model.embeddings = embeddings
                self.generator.decoder.weight = embeddings.tok_embeddings.weight
            else:
                _narrow(self.generator, embeddings)
            table, output = embeddings.tok_embeddings, self.generator.decoder
        else:
            self.generator = ElectraForMaskedLM(of_generator)
            self.discriminator = ElectraForPreTraining(of_discriminator)
            self.generator.electra.embeddings = self.discriminator.electra.embeddings
            table, output = self.discriminator.electra.embeddings.word_embeddings, self.generator.generator_lm_head
            output.weight = table.weight
        assert output.weight is table.weight, "the output table is not the word table"

    def forward(self, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the masked-LM loss over masked positions and the discriminator's loss over real tokens."""
        masked_lm_loss, scores, is_replaced = self.detect(batch)
        real = batch["input_mask"].float()
        losses = functional.binary_cross_entropy_with_logits(scores, is_replaced, reduction="none")
        return masked_lm_loss, (losses * real).sum() / real.sum()

    def detect(self, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns the masked-LM loss, the discriminator's logits [B, S], and 1.0 where a sample is another token."""
        logits = self._masked_logits(batch).float()  # [B*M, V]
        weights = batch["masked_lm_weights"].flatten()
        losses = functional.cross_entropy(logits, batch["masked_lm_ids"].flatten(), reduction="none")
        original = batch["input_ids"]
        with torch.no_grad():
            sampled = self._sample(logits).view_as(batch["masked_lm_positions"])
            # An unused slot has position 0, which keeps the original [CLS].
            sampled = torch.where(batch["masked_lm_weights"] > 0, sampled, original[:, :1])
            corrupted = original.scatter(1, batch["masked_lm_positions"], sampled)
            is_replaced = (corrupted != original).float()
        return (losses * weights).sum() / weights.sum(), self.scores(corrupted, batch), is_replaced

    def scores(self, input_ids: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """The discriminator's logits on tokens in place of a batch's, [B, S]."""
        scores = self.discriminator(input_ids, **self._others(batch)).logits.float()
        return scores[..., 0] if self._is_modern else scores

    def _others(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        segments = {} if self._is_modern else {"token_type_ids": batch["segment_ids"]}
        return {"attention_mask": batch["input_mask"], **segments}

    def _masked_logits(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        positions = batch["masked_lm_positions"][:, :, None]
        encoder = self.generator.model if self._is_modern else self.generator.electra
        hidden = encoder(batch["masked_input_ids"], **self._others(batch)).last_hidden_state
        hidden = hidden.gather(1, positions.expand(-1, -1, hidden.shape[-1])).flatten(0, 1)  # [B*M, G]
        if self._is_modern:
            return self.generator.decoder(self.generator.head(hidden))
        return self.generator.generator_lm_head(self.generator.generator_predictions(hidden))

    @staticmethod
    def _sample(logits: torch.Tensor) -> torch.Tensor:
        """Samples from the softmax with Gumbel noise: [B*M, V] -> [B*M]."""
        noise = -torch.log(-torch.log(torch.rand_like(logits) + _SMALLEST_UNIFORM) + _SMALLEST_UNIFORM)
        return (logits + noise).argmax(dim=-1)


class ProjectedEmbeddings(torch.nn.Module):
    """Shared embeddings and a projection to a generator's width, which ModernBertModel does not have."""

    def __init__(self, embeddings: torch.nn.Module, hidden_size: int):
        super().__init__()
        self.embeddings = embeddings
        self.project = torch.nn.Linear(embeddings.tok_embeddings.embedding_dim, hidden_size)
        torch.nn.init.xavier_uniform_(self.project.weight)
        torch.nn.init.zeros_(self.project.bias)

    def forward(self, *inputs, **named_inputs) -> torch.Tensor:
        return self.project(self.embeddings(*inputs, **named_inputs))


def _narrow(generator: ModernBertForMaskedLM, embeddings: torch.nn.Module) -> None:
    """Gives a generator the wider embeddings of the discriminator, and a head whose output has their width."""
    width, config = embeddings.tok_embeddings.embedding_dim, generator.config
    generator.model.embeddings = ProjectedEmbeddings(embeddings, config.hidden_size)
    dense = torch.nn.Linear(config.hidden_size, width, bias=False)
    stddev = config.initializer_range / math.sqrt(2 * config.num_hidden_layers)
    torch.nn.init.trunc_normal_(dense.weight, std=stddev, a=-2.0 * stddev, b=2.0 * stddev)
    norm = torch.nn.LayerNorm(width, eps=config.norm_eps, bias=False)
    generator.head = torch.nn.Sequential(OrderedDict(dense=dense, act=torch.nn.GELU(), norm=norm))
    generator.decoder = torch.nn.Linear(width, config.vocab_size)
    generator.decoder.weight = embeddings.tok_embeddings.weight
    torch.nn.init.zeros_(generator.decoder.bias)


class PyTorchStep:
    """One joint update: forward, backward, clipping by the global norm, AdamW, learning-rate schedule.

    Args:
        batches: in the layout of `synthetic_batch`, used in turn by `run`.
        discriminator, generator: see `JointElectra`.
        precision: `float32`, or `bfloat16` for autocast.
        compiled: whether to use `torch.compile`.
        seed: of the initial weights and the samples.
        device: `cpu` or `cuda`.
    """

    def __init__(
        self,
        batches: Sequence[dict[str, np.ndarray]],
        discriminator: dict,
        generator: dict,
        precision: str = "float32",
        compiled: bool = False,
        seed: int = 0,
        device: str = "cpu",
    ):
        torch.manual_seed(seed)
        self.model = JointElectra(discriminator, generator).to(device).train()
        self._losses = torch.compile(self.model) if compiled else self.model
        self._precision, self._device = precision, device
        self._parameters = list(self.model.parameters())
        self._optimizer = torch.optim.AdamW(_decay_groups(self.model), betas=_BETAS, eps=1e-6, fused=True)
        self._batches = [{name: each.to(device) for name, each in tensors(batch).items()} for batch in batches]
        self._num_steps_run = 0

    def run(self) -> dict[str, float]:
        """Runs one step on the next batch. Returns: its losses, after the update."""
        return {name: value.item() for name, value in self.begin().items()}

    def begin(self) -> dict[str, torch.Tensor]:
        """Begins one step on the next batch, and does not wait for a GPU. Returns: as `update`."""
        rate = 5e-4 * min(1.0, self._num_steps_run / 10_000) * (1.0 - self._num_steps_run / 1_000_000)
        return self.update(self._batches[self._num_steps_run % len(self._batches)], rate)

    def update(self, batch: dict[str, torch.Tensor], learning_rate: float) -> dict[str, torch.Tensor]:
        """Runs one step on a batch. Returns: its losses, scalars on the device."""
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


def network_config(entries: dict) -> PreTrainedConfig:
    """The configuration of a network from its entries of config.json, as our converter writes them."""
    if entries["model_type"] == "modernbert":
        return ModernBertConfig.from_dict({**entries, "pad_token_id": 0, "num_labels": 1})
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
