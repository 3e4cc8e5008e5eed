"""All-Tokens MLM: prediction of every token of an input that a generator has corrupted (paper, section 3.5)."""

from typing import Any, Literal, NamedTuple

import tensorflow as tf

from electra_tf.config.settings import NonNegative
from electra_tf.data.batch import Batch
from electra_tf.flops.passes import HeadPass, NetworkPass
from electra_tf.models.generators import GeneratorOutput
from electra_tf.models.heads import CopyHead, MaskedLmHead
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.vocabulary import TokenLosses
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.generator_objective import (
    CorruptedInput,
    GeneratorObjective,
    GeneratorObjectiveSettings,
    masked_tokens,
)
from electra_tf.tasks.pretrain.losses import at_masked_positions, over_masked_tokens
from electra_tf.tasks.pretrain.objective import register_objective
from electra_tf.tasks.terms import Term, Total, count_of, weighted_mean, weighted_total


class AllTokensMlmConfig(GeneratorObjectiveSettings):
    """Prediction of every token of an input with a generator's samples at the masked positions (paper, section 3.5)."""

    name: Literal["all_tokens_mlm"]
    # The weight of the encoder's loss, a mean over all tokens. The paper gives none.
    all_tokens_lm_loss_weight: NonNegative = 1.0
    # Each token is copied from the input with a predicted probability; false: the softmax alone.
    copy_mechanism: bool = True

    def encoder_pass(self, run: PretrainingConfig) -> NetworkPass:
        copy_head = (HeadPass("unit", "all"),) if self.copy_mechanism else ()
        return NetworkPass("encoder", run.encoder, (HeadPass("vocabulary", "all"), *copy_head))


class AllTokensMlmForward(NamedTuple):
    """The results of one forward pass."""

    generated: GeneratorOutput
    corrupted: CorruptedInput
    losses: tf.Tensor  # [B, S] float32, the encoder's -log p(original token) in nats
    is_correct: tf.Tensor  # [B, S] bool, true where no token is more likely than the original one
    copy_probability: tf.Tensor | None = None  # [B, S] float32; None without the copy mechanism


@register_objective(AllTokensMlmConfig)
class AllTokensMlm(GeneratorObjective):
    """A generator, and an encoder that predicts the original of all tokens, mostly by copying its input.

    As in ELECTRA, the encoder's loss is the mean over all real tokens, [CLS] and [SEP] included. The logits of the
    vocabulary are needed for B * S vectors; see `VocabularyLogits.token_losses` for their memory.
    """

    def __init__(self, config: PretrainingConfig, **model_options: Any) -> None:
        super().__init__(config, **model_options)
        self.prediction_head = MaskedLmHead(
            config.encoder, self.discriminator.embeddings, name="encoder_predictions", dtype=self.layer_dtype
        )
        self.copy_head = CopyHead(name="copy_predictions") if config.objective.copy_mechanism else None

    def denominators(self, batch: Batch) -> dict[str, tf.Tensor]:
        denominators = super().denominators(batch)
        # Masked tokens, because the number of replaced ones does not follow from the batch alone.
        num_masked = count_of(masked_tokens(batch))
        num_unmasked = denominators["tokens"] - num_masked
        return {**denominators, "masked_positions": num_masked, "unmasked_positions": num_unmasked}

    def forward(self, batch: Batch, context: ForwardContext) -> AllTokensMlmForward:
        generated = self.generate(batch, context)
        corrupted = self.corrupt(batch, generated.distribution, context.fold_in("sampling"))
        hidden = self.encode(batch, corrupted, context).sequence_output
        losses = self.prediction_head(hidden, context=context).token_losses(batch["input_ids"], corrupted.input_ids)
        if self.copy_head is None:
            return AllTokensMlmForward(generated, corrupted, losses.token, losses.token <= losses.most_likely)
        copy_logits = self.copy_head(hidden, context=context)
        is_input = corrupted.is_replaced == 0
        return AllTokensMlmForward(
            generated,
            corrupted,
            with_copying(losses.token, copy_logits, is_input),
            _is_correct_with_copying(losses, copy_logits, is_input),
            tf.stop_gradient(tf.sigmoid(copy_logits)),
        )

    def loss_totals(self, batch: Batch, forward: AllTokensMlmForward) -> dict[str, Total]:
        loss = weighted_total(forward.losses, batch["input_mask"], "tokens")
        return {**super().loss_totals(batch, forward), "all_tokens_lm": loss}

    def extra_metrics(self, batch: Batch, forward: AllTokensMlmForward) -> dict[str, Total]:
        totals = {
            "replaced_fraction": weighted_total(forward.corrupted.is_replaced, batch["input_mask"], "tokens"),
            **super().extra_metrics(batch, forward),
            "encoder_masked_lm_accuracy": over_masked_tokens(at_masked_positions(forward.is_correct, batch), batch),
        }
        if forward.copy_probability is not None:
            copy, masked = forward.copy_probability, masked_tokens(batch)
            unmasked = batch["input_mask"] - masked
            totals["copy_probability_masked"] = weighted_total(copy, masked, "masked_positions")
            totals["copy_probability_unmasked"] = weighted_total(copy, unmasked, "unmasked_positions")
        return totals

    def held_out_metrics(self, batch: Batch, forward: AllTokensMlmForward, context: ForwardContext) -> dict[str, Term]:
        at_masked = at_masked_positions(forward.losses, batch)
        terms: dict[str, Term] = {
            **super().held_out_metrics(batch, forward, context),
            "all_tokens_lm_accuracy": weighted_mean(forward.is_correct, batch["input_mask"]),
            "encoder_masked_lm_loss": weighted_mean(at_masked, batch["masked_lm_weights"]),
        }
        if forward.copy_probability is not None:
            copy, replaced = forward.copy_probability, forward.corrupted.is_replaced
            terms["copy_probability_replaced"] = weighted_mean(copy, replaced)
            terms["copy_probability_kept"] = weighted_mean(copy, batch["input_mask"] - replaced)
        return terms


def with_copying(losses: tf.Tensor, copy_logits: tf.Tensor, is_input: tf.Tensor | bool) -> tf.Tensor:
    """-log p(token) in nats, [B, S], where p(x) = copy * [x is the input token] + (1 - copy) * softmax(x).

    Computed with logarithms, so that neither a certain copy nor an impossible token gives log 0.

    Args:
        losses: [B, S] float32, -log softmax(token).        copy_logits: [B, S] float32, whose sigmoid is copy.
        is_input: [B, S] bool, whether the token is the input token.
    Source: paper section 3.5, "All-Tokens MLM".
    """
    log_copied, log_drawn = tf.math.log_sigmoid(copy_logits), tf.math.log_sigmoid(-copy_logits) - losses
    log_either = tf.reduce_logsumexp(tf.stack([log_copied, log_drawn], axis=-1), axis=-1)
    return -tf.where(is_input, log_either, log_drawn)


def _is_correct_with_copying(losses: TokenLosses, copy_logits: tf.Tensor, is_input: tf.Tensor) -> tf.Tensor:
    """[B, S] bool: true where no token is more likely than the original in the mixture of copy and softmax."""
    of_input = with_copying(losses.other, copy_logits, is_input=True)
    of_most_likely = with_copying(losses.most_likely, copy_logits, is_input=False)
    of_token = with_copying(losses.token, copy_logits, is_input=False)
    restored = (losses.token <= losses.most_likely) & (of_token <= of_input)
    return tf.where(is_input, of_input <= of_most_likely, restored)
