"""Pre-trained models as masked language models that predict one masked token at a time.

ELECTRA's prediction follows from the discriminator's output for the generator's most likely tokens, under the
assumption that the discriminator is optimal; a masked language model's is its most likely token. Source: paper,
appendix G.
"""

import dataclasses
import math
from collections.abc import Callable

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import MaskingConfig
from electra_tf.models.context import ForwardContext
from electra_tf.ops.positions import put_at_positions
from electra_tf.tasks.base import Batch
from electra_tf.tasks.pretrain.bert_mlm import BertMlm
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.electra import Electra
from electra_tf.tasks.pretrain.electric import Electric
from electra_tf.tasks.pretrain.input import PretrainingStage
from electra_tf.tasks.pretrain.objective import Objective
from electra_tf.tasks.pretrain.two_stage import DiscriminatorPhase, GeneratorPhase
from electra_tf.tasks.terms import Count, Term, weighted_sum


def data_probabilities(
    replaced_logits: tf.Tensor, generator_probs: tf.Tensor, originals_per_sample: float
) -> tf.Tensor:
    """p_data(x | c) = D(x, c) p_G(x | c) / (a (1 - D(x, c)) + p_G(x | c)), which holds for the optimal D.

    Args:
        replaced_logits: float32, any shape; D, the probability that x is the original, is sigmoid(-logit).
        generator_probs: the same shape, p_G(x | c).
        originals_per_sample: a, the number of original tokens per sampled token in the discriminator's training.
    Returns: the same shape; not normalised, as no discriminator is optimal.
    Source: paper, appendix G.
    """
    # Two sigmoids, because 1 - D has no significant digits where D is near 1.
    is_original, is_replaced = tf.sigmoid(-replaced_logits), tf.sigmoid(replaced_logits)
    return tf.math.divide_no_nan(is_original * generator_probs, originals_per_sample * is_replaced + generator_probs)


def one_masked_token_each(batch: Batch, tokens_per_example: int) -> dict[str, tf.Tensor]:
    """Splits examples with M masked positions into sequences with one masked position.

    Args:
        batch: of `electra_tf.data.masking.mask_batch`.
        tokens_per_example: T, the maximum number of masked positions used: the first ones, which are random.
    Returns: a batch of B * T rows with one slot each; slots that an example does not have get weight 0.
    """
    num_tokens = min(tokens_per_example, batch["masked_lm_ids"].shape[1])
    slots = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
    asked = {name: tf.reshape(batch[name][:, :num_tokens], [-1, 1]) for name in slots}
    whole = {name: tf.repeat(values, num_tokens, axis=0) for name, values in batch.items() if name not in slots}
    shown = tf.gather(whole["masked_input_ids"], asked["masked_lm_positions"], batch_dims=1)
    masked_ids = put_at_positions(whole["input_ids"], shown, asked["masked_lm_positions"], asked["masked_lm_weights"])
    return {**whole, **asked, "masked_input_ids": masked_ids}


class AsMaskedLm:
    """A trained objective as a masked language model, for `electra_tf.train.trainer.Evaluator`.

    Attributes:
        config: the objective's.
    """

    def __init__(self, objective: Objective):
        self.config, self._objective = objective.config, objective

    def evaluation_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Term]:
        """`masked_lm_accuracy`, over `masked_tokens` tokens, and what explains it.

        Args:
            batch: every masked token is shown as [MASK].
        """
        asked = one_masked_token_each(batch, self.config.evaluation.as_masked_lm.tokens_per_example)
        token_ids, weights = asked["masked_lm_ids"][:, 0], asked["masked_lm_weights"][:, 0]
        correct = self.correct(asked, token_ids, context)
        shares = {name: weighted_sum(tf.cast(values, tf.float32), weights) for name, values in correct.items()}
        return {"masked_tokens": Count(tf.reduce_sum(weights)), **shares}

    def correct(self, batch: Batch, token_ids: tf.Tensor, context: ForwardContext) -> dict[str, tf.Tensor]:
        """Whether each prediction is the original token.

        Args:
            batch: with one masked token per row.        token_ids: [B] int32, the originals.
        Returns: [B] bool by name.
        """
        raise NotImplementedError


class ByArgmax(AsMaskedLm):
    """Predicts the most likely token of a masked language model."""

    def correct(self, batch: Batch, token_ids: tf.Tensor, context: ForwardContext) -> dict[str, tf.Tensor]:
        logits = self._objective.forward(batch, context).logits[:, 0]
        return {"masked_lm_accuracy": tf.argmax(logits, axis=-1, output_type=tf.int32) == token_ids}


class ByCandidates(AsMaskedLm):
    """Predicts, of the generator's most likely tokens, the one with the highest score by generator and discriminator.

    Besides `masked_lm_accuracy` it reports `generator_accuracy`, that of the generator alone, and
    `candidates_accuracy`, the fraction of originals among the candidates, which is an upper bound.

    Args:
        outputs: the discriminator's [B, S] float32 output for a batch.
        score: from [B, K] outputs and the generator's [B, K] probabilities, the score of each candidate.
    """

    def __init__(self, objective: Electra, outputs: Callable, score: Callable):
        super().__init__(objective)
        self._outputs, self._score = outputs, score

    def correct(self, batch: Batch, token_ids: tf.Tensor, context: ForwardContext) -> dict[str, tf.Tensor]:
        logits = self._objective.generate(batch, context).logits[:, 0]  # [B, V]
        # With the temperature of the samples that the discriminator was trained on.
        probs = tf.nn.softmax(logits / self.config.objective.temperature)
        num_candidates = min(self.config.evaluation.as_masked_lm.num_candidates, logits.shape[-1])
        probs, candidates = tf.math.top_k(probs, num_candidates)  # K each
        scores = self._score(self.discriminate(batch, candidates), probs)
        best = tf.argmax(scores, axis=-1, output_type=tf.int32)
        return {
            "masked_lm_accuracy": tf.gather(candidates, best, batch_dims=1) == token_ids,
            "generator_accuracy": candidates[:, 0] == token_ids,
            "candidates_accuracy": tf.reduce_any(candidates == token_ids[:, tf.newaxis], axis=-1),
        }

    def discriminate(self, batch: Batch, candidates: tf.Tensor) -> tf.Tensor:
        """The discriminator's output for each candidate at the masked position.

        Args:
            batch: with one masked token per row.        candidates: [B, K] int32.
        Returns: [B, K] float32.
        """
        positions, weights = batch["masked_lm_positions"], batch["masked_lm_weights"]

        def discriminate_one(candidate: tf.Tensor) -> tf.Tensor:
            ids = put_at_positions(batch["input_ids"], candidate[:, tf.newaxis], positions, weights)
            return tf.gather(self._outputs({**batch, "input_ids": ids}), positions[:, 0], batch_dims=1)

        # One candidate at a time, to save memory.
        outputs = tf.map_fn(
            discriminate_one, tf.transpose(candidates), fn_output_signature=tf.float32, parallel_iterations=1
        )
        return tf.transpose(outputs)


def with_questions(stage: PretrainingStage) -> PretrainingStage:
    """The same held-out split with every token masked, in an order that does not depend on the run's settings.

    Two runs on the same data and with the same evaluation batch, for example ELECTRA and BERT, predict the same tokens.
    """
    plan, settings = stage.plan, stage.plan.config.evaluation.as_masked_lm
    changes = {
        "masking": MaskingConfig(masked_fraction=1.0, mask_token_fraction=1.0),
        "evaluation": plan.config.evaluation.model_copy(
            update={"max_batches": -(-settings.max_examples // plan.evaluation_batch_size)}
        ),
    }
    config = plan.config.model_copy(update=changes)
    return PretrainingStage(dataclasses.replace(plan, config=config, seed=settings.seed), stage.data)


def as_masked_lm(objective: Objective) -> AsMaskedLm:
    """The masked language model of an objective, or of a phase of one.

    Raises: UserError: if it has none.
    """
    if isinstance(objective, GeneratorPhase):
        raise UserError(
            "--as_masked_lm: the run is in the first phase of objective.name 'two_stage', whose discriminator is not "
            "trained yet; continue the run"
        )
    if isinstance(objective, DiscriminatorPhase):
        objective = objective.networks
    if isinstance(objective, BertMlm):
        return ByArgmax(objective)
    if isinstance(objective, Electric):
        # Energies are negative log-probabilities: the lowest is the best.
        return ByCandidates(objective, objective.energies, lambda energies, generator_probs: -energies)
    settings = objective.config.objective
    if not isinstance(objective, Electra):
        raise UserError(
            f"--as_masked_lm: objective.name is {settings.name!r}, which is neither a masked language model nor a "
            "discriminator beside a generator; give a run of electra or bert_mlm"
        )
    _require_samples_of_the_generator(objective.config)
    if math.isinf(objective.originals_per_sample):
        raise UserError(
            f"--as_masked_lm: objective.name is {settings.name!r}, whose discriminator has learnt from originals "
            "alone; the formula needs one that has learnt from samples too"
        )
    ratio = objective.originals_per_sample
    return ByCandidates(objective, objective.detection_logits, lambda *args: data_probabilities(*args, ratio))


def _require_samples_of_the_generator(config: PretrainingConfig) -> None:
    """The formula needs samples of p_G at positions selected with equal probability.

    Raises: UserError: if the discriminator was trained on other samples.
    """
    refused = [
        ("objective.disallow_correct", config.objective.disallow_correct, True, "may sample the original"),
        ("objective.sampling", config.objective.sampling, "greedy", "is sampled from"),
        ("masking.scheme", config.masking.scheme, "rare_tokens", "is asked for every token alike"),
    ]
    for setting, value, unfit, expected in refused:
        if value == unfit:
            raise UserError(
                f"--as_masked_lm: {setting} is {str(value).lower()}, and the formula holds for a generator that "
                f"{expected}; give a run without it"
            )
