"""Masked LM on the tokens that a small network guesses to be hard (paper, appendix H)."""

from typing import Literal

import tensorflow as tf

from electra_tf.config.networks import EncoderConfig, TransformerGeneratorConfig
from electra_tf.config.settings import NonNegative, Positive
from electra_tf.data.masking import put_at_positions
from electra_tf.data.selection import select_weighted
from electra_tf.flops.passes import Head, NetworkPass, Phase
from electra_tf.models.context import ForwardContext
from electra_tf.models.embeddings import Embeddings
from electra_tf.models.encoder import Encoder
from electra_tf.models.heads import DifficultyModel
from electra_tf.tasks.base import PRECISION_POLICIES
from electra_tf.tasks.pretrain.bert_mlm import BertMlm, BertMlmConfig
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.layout import word_tokens
from electra_tf.tasks.pretrain.metrics import masked_lm_metrics
from electra_tf.tasks.terms import Ratio, Term, weighted_sum


class HardMlmConfig(BertMlmConfig):
    """A masked LM whose masks fall where a small network guesses that it will struggle (paper, appendix H)."""

    name: Literal["hard_mlm"]
    # The network that guesses, as fractions of the encoder; it has tables of its own.
    difficulty: TransformerGeneratorConfig = TransformerGeneratorConfig(size_fraction=0.25)
    # Of its squared error in nats. A hundredth: an untrained masked LM loses 10 nats a token.
    difficulty_loss_weight: NonNegative = 0.01
    # A token is drawn in proportion to exp(guessed loss / this), both in nats: the smaller, the more of the masks fall
    # on the hardest tokens; a large one is uniform masking.
    mask_temperature: Positive = 2.0

    def require_fit(self, run: PretrainingConfig) -> None:
        super().require_fit(run)
        self.difficulty_encoder(run)  # or what is wrong with its sizes
        for setting, expected in (("strategy", "uniform"), ("selection", "distinct")):
            if (found := getattr(run.masking, setting)) != expected:
                raise ValueError(
                    f"masking.{setting} is {found!r}, but objective.name 'hard_mlm' has its masks fall where its small "
                    f"network says; set it to {expected!r}"
                )

    def difficulty_encoder(self, run: PretrainingConfig) -> EncoderConfig:
        """The sizes of the network that guesses."""
        return self.difficulty.encoder(run.encoder, "objective.difficulty")

    def phases(self, run: PretrainingConfig) -> tuple[Phase, ...]:
        (phase,) = super().phases(run)
        difficulty = NetworkPass("difficulty", self.difficulty_encoder(run), (Head("unit", "all"),))
        return (Phase(phase.num_steps, (difficulty, *phase.passes)),)

    @property
    def learns_masked_lm(self) -> bool:
        # Of tokens that are chosen for being hard the loss may stay near ln V, which is no sign that nothing is learnt.
        return False


class HardMlm(BertMlm):
    """A masked LM, and beside it a network that learns from its losses which tokens it finds hard.

    In training the masks of a batch are drawn anew by what that network guesses of the unmasked text: as many in each
    example, shown in the same ways. Held-out losses are over the batch's own masks, so that they compare with those of
    the baseline; `hard_masked_lm_loss` is over masks that are drawn as in training.
    """

    def __init__(self, config: PretrainingConfig, **model_options):
        super().__init__(config, **model_options)
        sizes, dtype = config.objective.difficulty_encoder(config), PRECISION_POLICIES[config.train.precision]
        # Tables of its own: the masked LM is to be the baseline's but for its masks.
        embeddings = Embeddings(sizes, name="difficulty_embeddings", dtype=dtype)
        encoder = Encoder(sizes, embeddings, name="difficulty", dtype=dtype)
        self.difficulty = DifficultyModel(encoder, name="difficulty_network", dtype=dtype)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {**super().loss_weights, "difficulty": self.config.objective.difficulty_loss_weight}

    def term_weights(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        num_masked = tf.reduce_sum(batch["masked_lm_weights"])
        return {
            **super().term_weights(batch),
            "difficulty": num_masked,
            "difficulty_of_masked": num_masked,
            "difficulty_of_all": tf.reduce_sum(tf.cast(word_tokens(batch), tf.float32)),
        }

    def loss_terms(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, Ratio]:
        guessed = self.guess(batch, context)
        if context.training:
            batch = self.with_hard_masks(batch, guessed, context)
        losses = self.forward(batch, context).scores.losses(batch["masked_lm_ids"])
        return {"masked_lm": weighted_sum(losses, batch["masked_lm_weights"]), **_ratios(batch, guessed, losses)}

    def evaluation_terms(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, Term]:
        guessed = self.guess(batch, context)
        scores, weights = self.forward(batch, context).scores, batch["masked_lm_weights"]
        losses = scores.losses(batch["masked_lm_ids"])
        ratios = _ratios(batch, guessed, losses)
        hard = self.with_hard_masks(batch, guessed, context)
        hard_losses = self.forward(hard, context).scores.losses(hard["masked_lm_ids"])
        return {
            "masked_lm_loss": weighted_sum(losses, weights),
            **masked_lm_metrics(scores.logits, batch["masked_lm_ids"], weights),
            "hard_masked_lm_loss": weighted_sum(hard_losses, weights),
            "difficulty_loss": ratios.pop("difficulty"),
            **ratios,
        }

    def guess(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> tf.Tensor:
        """The loss of every token, were it masked. [B, S] float32, in nats."""
        return self.difficulty(
            batch["input_ids"],
            input_mask=batch["input_mask"],
            segment_ids=batch["segment_ids"],
            context=context.scope("difficulty"),
        )

    def with_hard_masks(
        self, batch: dict[str, tf.Tensor], guessed: tf.Tensor, context: ForwardContext
    ) -> dict[str, tf.Tensor]:
        """The batch with its masks at other places: the same number in each row, the harder a token the likelier.

        What a slot shows, [MASK], a random token or the original, it goes on to show.

        Args:
            guessed: [B, S] float32; no gradient flows into it.
        """
        candidates, weights = word_tokens(batch), batch["masked_lm_weights"]
        hardness = tf.where(candidates, tf.stop_gradient(guessed), -tf.float32.max)
        below_hardest = hardness - tf.reduce_max(hardness, axis=1, keepdims=True)
        log_chances = below_hardest / self.config.objective.mask_temperature
        num_slots, used = weights.shape[1], tf.cast(weights, tf.int32)
        positions = select_weighted(candidates, log_chances, num_slots, context.random.scope("hard_masks")) * used
        original = tf.gather(batch["input_ids"], positions, batch_dims=1) * used
        shown = tf.gather(batch["masked_input_ids"], batch["masked_lm_positions"], batch_dims=1)
        shown = tf.where(shown == batch["masked_lm_ids"], original, shown)
        return {
            **batch,
            "masked_input_ids": put_at_positions(batch["input_ids"], shown, positions, weights),
            "masked_lm_positions": positions,
            "masked_lm_ids": original,
        }


def _ratios(batch: dict[str, tf.Tensor], guessed: tf.Tensor, losses: tf.Tensor) -> dict[str, Ratio]:
    """The squared error of the guesses at the masked tokens, and the guesses there and everywhere.

    Args:
        guessed: [B, S] float32.        losses: [B, M] float32, what the masked LM did lose; no gradient flows into it.
    """
    of_masked = tf.gather(guessed, batch["masked_lm_positions"], batch_dims=1)
    error = tf.square(of_masked - tf.stop_gradient(losses))
    return {
        "difficulty": weighted_sum(error, batch["masked_lm_weights"]),
        "difficulty_of_masked": weighted_sum(of_masked, batch["masked_lm_weights"]),
        "difficulty_of_all": weighted_sum(guessed, tf.cast(word_tokens(batch), tf.float32)),
    }
