"""All-Tokens MLM: every token of an input with a generator's samples in it is predicted (paper, section 3.5)."""

from typing import Literal, NamedTuple

import tensorflow as tf

from electra_tf.config.settings import NonNegative
from electra_tf.flops.passes import Head, NetworkPass, Phase
from electra_tf.models.context import ForwardContext
from electra_tf.models.generators import GeneratorOutput
from electra_tf.models.heads import CopyHead, MaskedLmHead
from electra_tf.ops.vocabulary import TokenLosses
from electra_tf.tasks.base import PRECISION_POLICIES
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.generator_objective import (
    CorruptedInput,
    GeneratorObjective,
    GeneratorObjectiveSettings,
    masked_tokens,
    sample_ratios,
)
from electra_tf.tasks.pretrain.losses import masked_lm_loss, with_copying
from electra_tf.tasks.pretrain.metrics import masked_lm_metrics
from electra_tf.tasks.terms import Ratio, Term, weighted_sum


class AllTokensMlmConfig(GeneratorObjectiveSettings):
    """Prediction of every token of an input whose masked tokens are samples of a generator (paper, section 3.5)."""

    name: Literal["all_tokens_mlm"]
    # Of the network that is kept, on the mean over all tokens. The paper gives no weight.
    all_tokens_lm_loss_weight: NonNegative = 1.0
    # A probability for each token that it is to be copied from the input; false: the softmax alone.
    copy_mechanism: bool = True

    def phases(self, run: PretrainingConfig) -> tuple[Phase, ...]:
        copy_head = (Head("unit", "all"),) if self.copy_mechanism else ()
        encoder = NetworkPass("encoder", run.encoder, (Head("vocabulary", "all"), *copy_head))
        return (Phase(run.train.num_steps, (*self.generator_passes(run), encoder)),)


class Prediction(NamedTuple):
    """What the kept network says of every token.

    Attributes:
        losses: [B, S] float32, -log p(original token) in nats.
        is_right: [B, S] float32, 1 where no token is likelier than the original one.
        copy_probability: [B, S] float32; None without the copy mechanism.
    """

    losses: tf.Tensor
    is_right: tf.Tensor
    copy_probability: tf.Tensor | None


class AllTokensMlmForward(NamedTuple):
    """Everything one forward pass computes."""

    generated: GeneratorOutput
    corrupted: CorruptedInput
    prediction: Prediction


class AllTokensMlm(GeneratorObjective):
    """A generator, and a network that predicts the original of all tokens, as a rule by copying what it reads.

    Its loss is the mean over all real tokens, [CLS] and [SEP] included, as ELECTRA's is. The scores of the vocabulary
    are wanted for B * S vectors here; see `VocabularyLogits.token_losses` for the memory they take.
    """

    def __init__(self, config: PretrainingConfig, **model_options):
        super().__init__(config, **model_options)
        dtype = PRECISION_POLICIES[config.train.precision]
        self.prediction_head = MaskedLmHead(
            config.encoder, self.discriminator.embeddings, name="encoder_predictions", dtype=dtype
        )
        self.copy_head = CopyHead(name="copy_predictions") if config.objective.copy_mechanism else None

    @property
    def loss_weights(self) -> dict[str, float]:
        settings = self.config.objective
        return {"masked_lm": settings.masked_lm_loss_weight, "all_tokens_lm": settings.all_tokens_lm_loss_weight}

    def term_weights(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        num_slots = tf.reduce_sum(batch["masked_lm_weights"])
        num_tokens = tf.reduce_sum(tf.cast(batch["input_mask"], tf.float32))
        weights = {
            "masked_lm": num_slots,
            "all_tokens_lm": num_tokens,
            "replaced_fraction": num_tokens,
            "sampled_masked_lm_accuracy": num_slots,
            "encoder_masked_lm_accuracy": num_slots,
        }
        if self.copy_head is not None:
            num_masked = tf.reduce_sum(tf.cast(masked_tokens(batch), tf.float32))
            weights |= {"copy_probability_masked": num_masked, "copy_probability_unmasked": num_tokens - num_masked}
        return weights

    def loss_terms(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, Ratio]:
        forward = self.forward(batch, context)
        return {**self._loss_ratios(batch, forward), **self._reported_ratios(batch, forward)}

    def evaluation_terms(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, Term]:
        forward = self.forward(batch, context)
        losses = self._loss_ratios(batch, forward)
        real, prediction = tf.cast(batch["input_mask"], tf.float32), forward.prediction
        terms = {
            "masked_lm_loss": losses["masked_lm"],
            **masked_lm_metrics(forward.generated.logits, batch["masked_lm_ids"], batch["masked_lm_weights"]),
            **self._reported_ratios(batch, forward),
            "encoder_masked_lm_loss": _over_masked(prediction.losses, batch),
            "all_tokens_lm_loss": losses["all_tokens_lm"],
            "all_tokens_lm_accuracy": weighted_sum(prediction.is_right, real),
        }
        if prediction.copy_probability is not None:
            replaced = tf.cast(forward.corrupted.is_replaced, tf.float32)
            terms["copy_probability_replaced"] = weighted_sum(prediction.copy_probability, replaced)
            terms["copy_probability_kept"] = weighted_sum(prediction.copy_probability, real - replaced)
        return terms

    def forward(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> AllTokensMlmForward:
        """Generator, sampling and the kept network's predictions, in that order."""
        generated = self.generate(batch, context)
        corrupted = self.corrupt(batch, generated.scores, context.scope("sampling"))
        hidden = self.encode(batch, corrupted, context).sequence_output
        return AllTokensMlmForward(generated, corrupted, self._predict(batch, corrupted, hidden, context))

    def _predict(
        self, batch: dict[str, tf.Tensor], corrupted: CorruptedInput, hidden: tf.Tensor, context: ForwardContext
    ) -> Prediction:
        found = self.prediction_head(hidden, context=context).token_losses(batch["input_ids"], corrupted.input_ids)
        if self.copy_head is None:
            return Prediction(found.token, tf.cast(found.token <= found.most_likely, tf.float32), None)
        copy_logits = self.copy_head(hidden, context=context)
        is_input = corrupted.is_replaced == 0
        return Prediction(
            with_copying(found.token, copy_logits, is_input),
            _is_right_with_copying(found, copy_logits, is_input),
            tf.stop_gradient(tf.sigmoid(copy_logits)),
        )

    def _loss_ratios(self, batch: dict[str, tf.Tensor], forward: AllTokensMlmForward) -> dict[str, Ratio]:
        real = tf.cast(batch["input_mask"], tf.float32)
        return {
            "masked_lm": masked_lm_loss(forward.generated.scores, batch["masked_lm_ids"], batch["masked_lm_weights"]),
            "all_tokens_lm": weighted_sum(forward.prediction.losses, real),
        }

    def _reported_ratios(self, batch: dict[str, tf.Tensor], forward: AllTokensMlmForward) -> dict[str, Ratio]:
        """No losses, but whether the network mends samples and copies the rest, or copies everything."""
        prediction = forward.prediction
        ratios = {
            **sample_ratios(batch, forward.corrupted),
            "encoder_masked_lm_accuracy": _over_masked(prediction.is_right, batch),
        }
        if prediction.copy_probability is not None:
            # How many tokens are replaced is not known before the forward pass; how many are masked is.
            masked, real = (tf.cast(tokens, tf.float32) for tokens in (masked_tokens(batch), batch["input_mask"]))
            ratios["copy_probability_masked"] = weighted_sum(prediction.copy_probability, masked)
            ratios["copy_probability_unmasked"] = weighted_sum(prediction.copy_probability, real - masked)
        return ratios


def _over_masked(values: tf.Tensor, batch: dict[str, tf.Tensor]) -> Ratio:
    """Of values [B, S], those at the masked positions."""
    return weighted_sum(tf.gather(values, batch["masked_lm_positions"], batch_dims=1), batch["masked_lm_weights"])


def _is_right_with_copying(found: TokenLosses, copy_logits: tf.Tensor, is_input: tf.Tensor) -> tf.Tensor:
    """[B, S] float32: 1 where the mixture of copy and softmax has no token likelier than the original."""
    of_input = with_copying(found.other, copy_logits, is_input=True)
    of_likeliest = with_copying(found.most_likely, copy_logits, is_input=False)
    of_token = with_copying(found.token, copy_logits, is_input=False)
    mended = (found.token <= found.most_likely) & (of_token <= of_input)
    return tf.cast(tf.where(is_input, of_input <= of_likeliest, mended), tf.float32)
