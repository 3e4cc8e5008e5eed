"""Masked LM on the tokens that a small network predicts to be hard (paper, appendix H)."""

from typing import Any, Literal, NamedTuple

import tensorflow as tf

from electra_tf.config.networks import EncoderConfig, TransformerGeneratorConfig
from electra_tf.config.settings import NonNegative, Positive
from electra_tf.data.batch import Batch, mask_and_segments, word_tokens
from electra_tf.flops.passes import HeadPass, NetworkPass, PhaseCost
from electra_tf.models.embeddings import Embeddings
from electra_tf.models.encoder import Encoder
from electra_tf.models.generators import Distribution
from electra_tf.models.heads import DifficultyModel
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.positions import put_at_positions, select_weighted
from electra_tf.tasks.pretrain.bert_mlm import BertMlm, BertMlmConfig
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.losses import (
    at_masked_positions,
    mask_token_metrics,
    masked_lm_accuracy,
    over_masked_tokens,
)
from electra_tf.tasks.pretrain.objective import register_objective
from electra_tf.tasks.terms import Term, Total, count_of, weighted_mean, weighted_total


class HardMlmConfig(BertMlmConfig):
    """A masked LM whose masks are drawn by the losses that a small network predicts (paper, appendix H)."""

    name: Literal["hard_mlm"]
    # The small network's sizes, the settings of `objective.generator`; it has its own embeddings.
    difficulty: TransformerGeneratorConfig = TransformerGeneratorConfig(size_fraction=0.25)
    # The weight of its squared error in nats. Small, because an untrained masked LM has a loss of 10 nats a token.
    difficulty_loss_weight: NonNegative = 0.01
    # A token is masked with a probability proportional to exp(predicted loss / mask_temperature), both in nats. A small
    # value masks the hardest tokens more often; a large one approaches uniform masking.
    mask_temperature: Positive = 2.0

    def require_fit(self, run: PretrainingConfig) -> None:
        super().require_fit(run)
        self.difficulty_encoder(run)  # raises if its sizes do not fit
        for setting, expected in (("scheme", "uniform"), ("selection", "distinct")):
            if (value := getattr(run.masking, setting)) != expected:
                raise ValueError(
                    f"masking.{setting} is {value!r}, but objective.name 'hard_mlm' draws masks by predicted losses; "
                    f"set it to {expected!r}"
                )

    def difficulty_encoder(self, run: PretrainingConfig) -> EncoderConfig:
        """The sizes of the network that predicts the losses."""
        return self.difficulty.encoder(run.encoder, "objective.difficulty")

    def phase_costs(self, run: PretrainingConfig) -> tuple[PhaseCost, ...]:
        (phase,) = super().phase_costs(run)
        difficulty = NetworkPass("difficulty", self.difficulty_encoder(run), (HeadPass("unit", "all"),))
        return (PhaseCost(phase.num_steps, (difficulty, *phase.passes)),)

    @property
    def learns_masked_lm(self) -> bool:
        # The loss of hard tokens may stay near ln V although the model learns.
        return False


class HardMlmForward(NamedTuple):
    """The results of one forward pass."""

    batch: Batch  # with the masks that are used
    predicted: tf.Tensor  # [B, S] float32, the losses that the small network predicts, in nats
    distribution: Distribution
    losses: tf.Tensor  # [B, M] float32, the masked LM's losses in nats


@register_objective(HardMlmConfig)
class HardMlm(BertMlm):
    """A masked LM, and a small network that learns to predict the masked LM's loss of each token.

    In training the masks of a batch are drawn again by the losses that the small network predicts from the unmasked
    text: equally many in each example, shown in the same ways. Held-out losses are over the batch's own masks, so they
    are comparable with those of `bert_mlm`; `hard_masked_lm_loss` is over masks drawn as in training.
    """

    def __init__(self, config: PretrainingConfig, **model_options: Any) -> None:
        super().__init__(config, **model_options)
        sizes, dtype = config.objective.difficulty_encoder(config), self.layer_dtype
        # Own embeddings, so that the masked LM differs from the baseline in its masks only.
        embeddings = Embeddings(sizes, name="difficulty_embeddings", dtype=dtype)
        encoder = Encoder(sizes, embeddings, name="difficulty", dtype=dtype)
        self.difficulty = DifficultyModel(encoder, name="difficulty_network", dtype=dtype)

    def denominators(self, batch: Batch) -> dict[str, tf.Tensor]:
        return {**super().denominators(batch), "words": count_of(word_tokens(batch))}

    def forward(self, batch: Batch, context: ForwardContext) -> HardMlmForward:
        predicted = self.predict_losses(batch, context)
        if context.training:
            batch = self.with_hard_masks(batch, predicted, context)
        distribution = self.generate(batch, context).distribution
        return HardMlmForward(batch, predicted, distribution, distribution.losses(batch["masked_lm_ids"]))

    def loss_totals(self, batch: Batch, forward: HardMlmForward) -> dict[str, Total]:
        predicted = at_masked_positions(forward.predicted, forward.batch)
        error = tf.square(predicted - tf.stop_gradient(forward.losses))
        return {
            "masked_lm": over_masked_tokens(forward.losses, batch),
            "difficulty": over_masked_tokens(error, batch),
        }

    def extra_metrics(self, batch: Batch, forward: HardMlmForward) -> dict[str, Total]:
        return {
            "difficulty_of_masked": over_masked_tokens(at_masked_positions(forward.predicted, forward.batch), batch),
            "difficulty_of_all": weighted_total(forward.predicted, word_tokens(batch), "words"),
        }

    def held_out_metrics(self, batch: Batch, forward: HardMlmForward, context: ForwardContext) -> dict[str, Term]:
        hard = self.with_hard_masks(batch, forward.predicted, context)
        losses = self.generate(hard, context).distribution.losses(hard["masked_lm_ids"])
        return {
            "hard_masked_lm_loss": weighted_mean(losses, hard["masked_lm_weights"]),
            "masked_lm_accuracy": masked_lm_accuracy(forward.distribution.logits, batch),
            # Not in training, where the batch has the unigram losses of other masks.
            **self.as_ratios(batch, mask_token_metrics(forward.distribution, batch)),
        }

    def predict_losses(self, batch: Batch, context: ForwardContext) -> tf.Tensor:
        """[B, S] float32: the predicted loss of each token, in nats, if it were masked."""
        return self.difficulty(batch["input_ids"], **mask_and_segments(batch), context=context.fold_in("difficulty"))

    def with_hard_masks(self, batch: Batch, predicted: tf.Tensor, context: ForwardContext) -> dict[str, tf.Tensor]:
        """The batch with its masks drawn again: equally many in each row, hard tokens with a higher probability.

        Each slot keeps its kind of replacement: [MASK], a random token or the original. No gradient flows into the
        predicted losses, [B, S] float32.
        """
        candidates, weights = word_tokens(batch), batch["masked_lm_weights"]
        hardness = tf.where(candidates, tf.stop_gradient(predicted), -tf.float32.max)
        below_hardest = hardness - tf.reduce_max(hardness, axis=1, keepdims=True)
        log_weights = below_hardest / self.config.objective.mask_temperature
        num_slots, used = weights.shape[1], tf.cast(weights, tf.int32)
        positions = select_weighted(candidates, log_weights, num_slots, context.stream("hard_masks")) * used
        original = tf.gather(batch["input_ids"], positions, batch_dims=1) * used
        shown = at_masked_positions(batch["masked_input_ids"], batch)
        shown = tf.where(shown == batch["masked_lm_ids"], original, shown)
        return {
            **batch,
            "masked_input_ids": put_at_positions(batch["input_ids"], shown, positions, weights),
            "masked_lm_positions": positions,
            "masked_lm_ids": original,
        }
