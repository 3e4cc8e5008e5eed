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
from electra_tf.data.batch import PRETRAINING_BATCH, Batch
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.positions import put_at_positions
from electra_tf.tasks.base import Evaluated
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
    Returns: the same shape; not normalised, because no discriminator is optimal.
    Source: paper, appendix G.
    """
    # Two sigmoids, because 1 - D has no significant digits where D is near 1.
    is_original, is_replaced = tf.sigmoid(-replaced_logits), tf.sigmoid(replaced_logits)
    return tf.math.divide_no_nan(is_original * generator_probs, originals_per_sample * is_replaced + generator_probs)


def one_masked_token_each(batch: Batch, tokens_per_example: int) -> dict[str, tf.Tensor]:
    """Splits examples with M masked positions into sequences with one masked position.

    Args:
        batch: a result of `electra_tf.data.masking.mask_batch`.
        tokens_per_example: T, the largest number of masked positions to use: the first ones, which are random.
    Returns: a batch of B * T rows with one slot each; slots that an example lacks have weight 0.
    """
    num_tokens = min(tokens_per_example, batch["masked_lm_ids"].shape[1])
    slots = [name for name, (axes, _) in PRETRAINING_BATCH.tensors.items() if axes == "M"]
    asked = {name: tf.reshape(batch[name][:, :num_tokens], [-1, 1]) for name in slots}
    whole = {name: tf.repeat(values, num_tokens, axis=0) for name, values in batch.items() if name not in slots}
    shown = tf.gather(whole["masked_input_ids"], asked["masked_lm_positions"], batch_dims=1)
    masked_ids = put_at_positions(whole["input_ids"], shown, asked["masked_lm_positions"], asked["masked_lm_weights"])
    return {**whole, **asked, "masked_input_ids": masked_ids}


# From a batch with one masked token per row and the original tokens, [B] int32, to [B] bool by the name of a metric:
# whether its prediction is right.
Predictor = Callable[[Batch, tf.Tensor, ForwardContext], dict[str, tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class AsMaskedLm(Evaluated):
    """A trained objective as a masked language model, for `electra_tf.train.trainer.Evaluator`."""

    config: PretrainingConfig
    predict: Predictor

    def evaluation_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Term]:
        """`masked_lm_accuracy`, the number of `masked_tokens`, and the other metrics of `predict`.

        Args:
            batch: with every masked token shown as [MASK].
        """
        asked = one_masked_token_each(batch, self.config.evaluation.as_masked_lm.tokens_per_example)
        weights = asked["masked_lm_weights"][:, 0]
        correct = self.predict(asked, asked["masked_lm_ids"][:, 0], context)
        shares = {name: weighted_sum(values, weights) for name, values in correct.items()}
        return {"masked_tokens": Count(tf.reduce_sum(weights)), **shares}


def by_argmax(objective: BertMlm) -> Predictor:
    """Predicts the most likely token of a masked language model."""

    def predict(batch: Batch, token_ids: tf.Tensor, context: ForwardContext) -> dict[str, tf.Tensor]:
        logits = objective.generate(batch, context).logits[:, 0]
        return {"masked_lm_accuracy": tf.argmax(logits, axis=-1, output_type=tf.int32) == token_ids}

    return predict


def by_candidates(objective: Electra, discriminate: Callable, score: Callable) -> Predictor:
    """Chooses among the generator's most likely tokens the one with the highest score.

    Besides `masked_lm_accuracy` it reports `generator_accuracy`, the accuracy of the generator alone, and
    `candidates_accuracy`, the share of originals that are among the candidates, which is an upper bound.

    Args:
        discriminate: the discriminator's [B, S] float32 output for a batch.
        score: computes the score of each candidate from the discriminator's [B, K] outputs and the generator's [B, K]
            probabilities.
    """

    def predict(batch: Batch, token_ids: tf.Tensor, context: ForwardContext) -> dict[str, tf.Tensor]:
        logits = objective.generate(batch, context).logits[:, 0]  # [B, V]
        # At the temperature of the samples that the discriminator was trained on.
        probs = tf.nn.softmax(logits / objective.config.objective.temperature)
        num_candidates = min(objective.config.evaluation.as_masked_lm.num_candidates, logits.shape[-1])
        probs, candidates = tf.math.top_k(probs, num_candidates)  # K each
        positions, weights = batch["masked_lm_positions"], batch["masked_lm_weights"]

        def output_for(candidate: tf.Tensor) -> tf.Tensor:  # [B] -> [B]
            ids = put_at_positions(batch["input_ids"], candidate[:, tf.newaxis], positions, weights)
            return tf.gather(discriminate({**batch, "input_ids": ids}), positions[:, 0], batch_dims=1)

        # One candidate at a time saves memory.
        outputs = tf.map_fn(output_for, tf.transpose(candidates), fn_output_signature=tf.float32, parallel_iterations=1)
        best = tf.argmax(score(tf.transpose(outputs), probs), axis=-1, output_type=tf.int32)
        return {
            "masked_lm_accuracy": tf.gather(candidates, best, batch_dims=1) == token_ids,
            "generator_accuracy": candidates[:, 0] == token_ids,
            "candidates_accuracy": tf.reduce_any(candidates == token_ids[:, tf.newaxis], axis=-1),
        }

    return predict


def with_questions(stage: PretrainingStage) -> PretrainingStage:
    """The same held-out split with every token masked, in an order independent of the run's settings.

    Two runs on the same data and with the same evaluation batch, for example ELECTRA and BERT, predict the same tokens.
    """
    plan, settings = stage.plan, stage.plan.config.evaluation.as_masked_lm
    max_batches = -(-settings.max_examples // plan.evaluation_batch_size)
    changes = {
        "masking": MaskingConfig(masked_fraction=1.0, mask_token_fraction=1.0),
        "evaluation": plan.config.evaluation.model_copy(update={"max_batches": max_batches}),
    }
    config = plan.config.model_copy(update=changes)
    return PretrainingStage(dataclasses.replace(plan, config=config, seed=settings.seed), stage.data)


def as_masked_lm(objective: Objective) -> AsMaskedLm:
    """The masked language model of an objective, or of a phase of one.

    Raises: UserError: if it is none.
    """
    return AsMaskedLm(objective.config, _predictor(objective))


def _predictor(objective: Objective) -> Predictor:
    if isinstance(objective, GeneratorPhase):
        raise UserError(
            "--as_masked_lm: the discriminator of objective.name 'two_stage' is not trained yet in the first phase; "
            "continue the run"
        )
    if isinstance(objective, DiscriminatorPhase):
        objective = objective.networks
    if isinstance(objective, BertMlm):
        return by_argmax(objective)
    if isinstance(objective, Electric):
        # Energies are negative log-probabilities: the lowest is the best.
        return by_candidates(objective, objective.energies, lambda energies, generator_probs: -energies)
    config, name = objective.config, objective.config.objective.name
    if not isinstance(objective, Electra):
        raise UserError(
            f"--as_masked_lm: objective.name is {name!r}, which is neither a masked language model nor a "
            "discriminator beside a generator; give a run of electra or bert_mlm"
        )
    for setting, value, unfit in (
        ("objective.disallow_correct", config.objective.disallow_correct, True),
        ("objective.sampling", config.objective.sampling, "greedy"),
        ("masking.scheme", config.masking.scheme, "rare_tokens"),
    ):
        if value == unfit:
            raise UserError(
                f"--as_masked_lm: {setting} is {str(value).lower()}, but the formula requires samples of the "
                "generator's distribution at positions selected with equal probability; give a run without it"
            )
    ratio = objective.originals_per_sample
    if math.isinf(ratio):
        raise UserError(
            f"--as_masked_lm: the discriminator of objective.name {name!r} learnt from originals alone, but the "
            "formula requires one that learnt from samples too"
        )
    return by_candidates(objective, objective.detection_logits, lambda *args: data_probabilities(*args, ratio))
