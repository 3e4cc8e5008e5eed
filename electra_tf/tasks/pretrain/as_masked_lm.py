"""Pre-trained models as masked language models that guess one masked token at a time.

ELECTRA's guess follows from what its discriminator says of the generator's best guesses, were that discriminator
optimal; a masked language model's is its most likely token. Source: paper, appendix G.
"""

import dataclasses
import math

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
from electra_tf.tasks.pretrain.two_stage import DiscriminatorStage, GeneratorStage
from electra_tf.tasks.terms import (
    Count,
    Term,
    weighted_sum,
)


def data_probabilities(
    replaced_logits: tf.Tensor, generator_probs: tf.Tensor, originals_per_sample: float
) -> tf.Tensor:
    """p_data(x | c) = D(x, c) p_G(x | c) / (a (1 - D(x, c)) + p_G(x | c)), which holds for the optimal D.

    Args:
        replaced_logits: float32, any shape; D, the probability that x is the original, is sigmoid(-logit).
        generator_probs: the same shape, p_G(x | c).
        originals_per_sample: a, how many original tokens the discriminator has seen for every sampled one.
    Returns: the same shape; not normalised, as no discriminator is optimal.
    Source: paper, appendix G.
    """
    # Two sigmoids: 1 - D would have no digits left where D is near 1.
    is_original, is_replaced = tf.sigmoid(-replaced_logits), tf.sigmoid(replaced_logits)
    return tf.math.divide_no_nan(is_original * generator_probs, originals_per_sample * is_replaced + generator_probs)


def one_masked_token_each(batch: Batch, tokens_per_example: int) -> dict[str, tf.Tensor]:
    """From examples with M masked positions, sequences with a single one.

    Args:
        batch: of `electra_tf.data.masking.mask_batch`.
        tokens_per_example: T, how many of the M are used at most: the first ones, which are a random choice.
    Returns: such a batch of B * T rows and one slot each; what an example is short of has weight 0.
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
        self.config = objective.config

    def evaluation_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Term]:
        """`masked_lm_accuracy`, over `masked_tokens` tokens, and what explains it.

        Args:
            batch: every masked token shown as [MASK].
        """
        asked = one_masked_token_each(batch, self.config.evaluation.as_masked_lm.tokens_per_example)
        token_ids, weights = asked["masked_lm_ids"][:, 0], asked["masked_lm_weights"][:, 0]
        hits = self.hits(asked, token_ids, context)
        shares = {name: weighted_sum(tf.cast(hit, tf.float32), weights) for name, hit in hits.items()}
        return {"masked_tokens": Count(tf.reduce_sum(weights)), **shares}

    def hits(self, batch: Batch, token_ids: tf.Tensor, context: ForwardContext) -> dict[str, tf.Tensor]:
        """What was guessed right.

        Args:
            batch: with one masked token a row.        token_ids: [B] int32, the originals.
        Returns: [B] bool by name.
        """
        raise NotImplementedError


class MaskedLmByArgmax(AsMaskedLm):
    """A masked language model itself: its most likely token."""

    def __init__(self, objective: BertMlm):
        super().__init__(objective)
        self._objective = objective

    def hits(self, batch: Batch, token_ids: tf.Tensor, context: ForwardContext) -> dict[str, tf.Tensor]:
        logits = self._objective.forward(batch, context).logits[:, 0]
        return {"masked_lm_accuracy": tf.argmax(logits, axis=-1, output_type=tf.int32) == token_ids}


class ByCandidates(AsMaskedLm):
    """Of the generator's most likely tokens the one that the discriminator, too, finds best.

    Beside `masked_lm_accuracy`, that of the whole, stand `generator_accuracy`, that of the generator alone, and
    `candidates_accuracy`, the share of originals among the candidates: the best that could be reached.
    """

    def __init__(self, objective: Electra):
        super().__init__(objective)
        self._objective = objective

    def hits(self, batch: Batch, token_ids: tf.Tensor, context: ForwardContext) -> dict[str, tf.Tensor]:
        logits = self._objective.generate(batch, context).logits[:, 0]  # [B, V]
        # As the discriminator has met them in training.
        probs = tf.nn.softmax(logits / self.config.objective.temperature)
        num_candidates = min(self.config.evaluation.as_masked_lm.num_candidates, logits.shape[-1])
        probs, candidates = tf.math.top_k(probs, num_candidates)  # K each
        best = tf.argmax(self.scores(self.discriminate(batch, candidates), probs), axis=-1, output_type=tf.int32)
        return {
            "masked_lm_accuracy": tf.gather(candidates, best, batch_dims=1) == token_ids,
            "generator_accuracy": candidates[:, 0] == token_ids,
            "candidates_accuracy": tf.reduce_any(candidates == token_ids[:, tf.newaxis], axis=-1),
        }

    def discriminate(self, batch: Batch, candidates: tf.Tensor) -> tf.Tensor:
        """The discriminator's answer to each candidate in the place of the masked token, one after the other.

        Args:
            batch: with one masked token a row.        candidates: [B, K] int32.
        Returns: [B, K] float32, of `answers`.
        """
        positions, weights = batch["masked_lm_positions"], batch["masked_lm_weights"]

        def judge_one(candidate: tf.Tensor) -> tf.Tensor:
            ids = put_at_positions(batch["input_ids"], candidate[:, tf.newaxis], positions, weights)
            return tf.gather(self.answers({**batch, "input_ids": ids}), positions[:, 0], batch_dims=1)

        # One at a time, for the memory.
        found = tf.map_fn(judge_one, tf.transpose(candidates), fn_output_signature=tf.float32, parallel_iterations=1)
        return tf.transpose(found)

    def answers(self, inputs: Batch) -> tf.Tensor:
        """What the discriminator says of every token. [B, S] float32."""
        raise NotImplementedError

    def scores(self, answers: tf.Tensor, generator_probs: tf.Tensor) -> tf.Tensor:
        """How good each candidate is, from the discriminator's answer and the generator's probability. All [B, K]."""
        raise NotImplementedError


class ElectraByFormula(ByCandidates):
    """ELECTRA: the candidates' `data_probabilities`."""

    def answers(self, inputs: Batch) -> tf.Tensor:
        return self._objective.detection_logits(inputs)

    def scores(self, answers: tf.Tensor, generator_probs: tf.Tensor) -> tf.Tensor:
        return data_probabilities(answers, generator_probs, self._objective.originals_per_sample)


class ElectricByEnergy(ByCandidates):
    """Electric, whose energies are log-probabilities already: the lowest."""

    def answers(self, inputs: Batch) -> tf.Tensor:
        return self._objective.energies(inputs)

    def scores(self, answers: tf.Tensor, generator_probs: tf.Tensor) -> tf.Tensor:
        return -answers


def with_questions(stage: PretrainingStage) -> PretrainingStage:
    """The same held-out split with every token masked, in an order that does not depend on the run's settings.

    So two runs on the same data and with the same evaluation batch, of ELECTRA and of BERT say, get the same questions.
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
    """The masked language model that an objective, or a phase of one, makes.

    Raises: UserError: if it makes none.
    """
    if isinstance(objective, GeneratorStage):
        raise UserError(
            "--as_masked_lm: the run stands in the first stage of objective.name 'two_stage', whose discriminator has "
            "learnt nothing yet; train on"
        )
    if isinstance(objective, DiscriminatorStage):
        objective = objective.networks
    if isinstance(objective, BertMlm):
        return MaskedLmByArgmax(objective)
    if isinstance(objective, Electric):
        return ElectricByEnergy(objective)
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
    return ElectraByFormula(objective)


def _require_samples_of_the_generator(config: PretrainingConfig) -> None:
    """The formula reckons with samples of p_G, drawn for every token with the same chance.

    Raises: UserError: if the discriminator has learnt from others.
    """
    refused = [
        ("objective.disallow_correct", config.objective.disallow_correct, True, "may sample the original"),
        ("objective.sampling", config.objective.sampling, "greedy", "is sampled from"),
        ("masking.scheme", config.masking.scheme, "rare_tokens", "is asked for every token alike"),
    ]
    for setting, found, unfit, expected in refused:
        if found == unfit:
            raise UserError(
                f"--as_masked_lm: {setting} is {str(found).lower()}, and the formula holds for a generator that "
                f"{expected}; give a run without it"
            )
