"""Pre-trained models as masked language models that predict one masked token at a time.

ELECTRA's prediction follows from the discriminator's output for the generator's most likely tokens, under the
assumption that the discriminator is optimal; a masked language model's is its most likely token. Source: paper,
appendix G.
"""

import math
from collections.abc import Callable

import tensorflow as tf

from electra_tf.data.batch import PRETRAINING_BATCH, Batch
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.positions import put_at_positions
from electra_tf.tasks.base import Evaluated
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.objective import Objective
from electra_tf.tasks.terms import Sum, Term, weighted_mean


def data_probabilities(
    replaced_logits: tf.Tensor, generator_probs: tf.Tensor, originals_per_sample: float
) -> tf.Tensor:
    """p_data(x | c) = D(x, c) p_G(x | c) / (a (1 - D(x, c)) + p_G(x | c)), which holds for the optimal D.

    Args:
        replaced_logits: float32, any shape; D, the probability that x is the original, is sigmoid(-logit).
        originals_per_sample: a, the number of original tokens per sampled token in the discriminator's training.
    Returns: not normalised, because no discriminator is optimal. Source: paper, appendix G.
    """
    # Two sigmoids, because 1 - D has no significant digits where D is near 1.
    is_original, is_replaced = tf.sigmoid(-replaced_logits), tf.sigmoid(replaced_logits)
    return tf.math.divide_no_nan(is_original * generator_probs, originals_per_sample * is_replaced + generator_probs)


def one_masked_token_each(batch: Batch, tokens_per_example: int) -> dict[str, tf.Tensor]:
    """Splits examples with M masked positions into B * T rows with one; slots that an example lacks have weight 0.

    Args: tokens_per_example: T, the largest number of masked positions to use: the first ones, which are random.
    """
    num_tokens = min(tokens_per_example, batch["masked_lm_ids"].shape[1])
    names = [name for name, (axes, _) in PRETRAINING_BATCH.tensors.items() if axes == "M"]
    slots = {name: tf.reshape(batch[name][:, :num_tokens], [-1, 1]) for name in names}
    whole = {name: tf.repeat(values, num_tokens, axis=0) for name, values in batch.items() if name not in names}
    shown = tf.gather(whole["masked_input_ids"], slots["masked_lm_positions"], batch_dims=1)
    masked_ids = put_at_positions(whole["input_ids"], shown, slots["masked_lm_positions"], slots["masked_lm_weights"])
    return {**whole, **slots, "masked_input_ids": masked_ids}


class MaskedLmByArgmax(Evaluated):
    """A masked language model that predicts its most likely token, for `electra_tf.train.device_loop.DeviceLoop`."""

    config: PretrainingConfig

    def __init__(self, objective: Objective) -> None:
        self.objective, self.config = objective, objective.config

    def evaluation_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Term]:
        """The results of `correct`, and the number of `masked_tokens`; all are shown as [MASK] in the batch."""
        rows = one_masked_token_each(batch, self.config.evaluation.as_masked_lm.tokens_per_example)
        weights = rows["masked_lm_weights"][:, 0]
        correct = self.correct(rows, self.objective.generate(rows, context).logits[:, 0])
        shares = {name: weighted_mean(values, weights) for name, values in correct.items()}
        return {"masked_tokens": Sum(tf.reduce_sum(weights)), **shares}

    def correct(self, batch: Batch, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Whether the prediction of each row's only masked token is right: [B] bool by the name of a metric.

        Args: logits: [B, V] float32, the masked language model's, or the generator's, for that token.
        """
        predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
        return {"masked_lm_accuracy": predicted == batch["masked_lm_ids"][:, 0]}


class MaskedLmByDiscriminator(MaskedLmByArgmax):
    """Chooses among the generator's most likely tokens the one that scores highest.

    Besides `masked_lm_accuracy` it reports `generator_accuracy`, the accuracy of the generator alone, and
    `candidates_accuracy`, the share of originals that are among the candidates, which is an upper bound.

    Args:
        discriminate: the discriminator's output, [B, S] float32, for a batch.
        score: the scores of candidates from its outputs and the generator's probabilities, [B, K] each.
    """

    def __init__(
        self,
        objective: Objective,
        discriminate: Callable[[Batch], tf.Tensor],
        score: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    ) -> None:
        super().__init__(objective)
        self.discriminate, self.score = discriminate, score

    def correct(self, batch: Batch, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        # At the temperature of the samples that the discriminator was trained on.
        probs = tf.nn.softmax(logits / self.config.objective.temperature)
        num_candidates = min(self.config.evaluation.as_masked_lm.num_candidates, logits.shape[-1])
        probs, candidates = tf.math.top_k(probs, num_candidates)  # K each
        positions, weights = batch["masked_lm_positions"], batch["masked_lm_weights"]

        def output_for(candidate: tf.Tensor) -> tf.Tensor:  # [B] -> [B]
            ids = put_at_positions(batch["input_ids"], candidate[:, tf.newaxis], positions, weights)
            return tf.gather(self.discriminate({**batch, "input_ids": ids}), positions[:, 0], batch_dims=1)

        # One candidate at a time saves memory.
        outputs = tf.map_fn(output_for, tf.transpose(candidates), fn_output_signature=tf.float32, parallel_iterations=1)
        scores = tf.where(probs > 0.0, self.score(tf.transpose(outputs), probs), -math.inf)  # 0: it has no token
        best = tf.argmax(scores, axis=-1, output_type=tf.int32)
        token_ids = batch["masked_lm_ids"]  # [B, 1]
        return {
            "masked_lm_accuracy": tf.gather(candidates, best, batch_dims=1) == token_ids[:, 0],
            "generator_accuracy": candidates[:, 0] == token_ids[:, 0],
            "candidates_accuracy": tf.reduce_any(candidates == token_ids, axis=-1),
        }
