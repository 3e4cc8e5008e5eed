"""Drawing tokens from the generator's distribution. No gradient flows through a draw.

A sampler takes the scores, the context whose random stream it draws from, the temperature that divides the logits, and
the tokens that must not be drawn ([B, M] int32, or None), and returns [B, M] int32.
"""

import tensorflow as tf

from electra_tf.models.context import ForwardContext
from electra_tf.models.context_free_logits import ContextFreeLogits
from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.ops.reference import NEVER

# Keeps the logarithms finite where the uniform number is exactly 0; the authors add 1e-9 inside both.
_SMALLEST_UNIFORM = 1e-9


def sample_categorical(
    scores: VocabularyLogits | ContextFreeLogits,
    context: ForwardContext,
    temperature: float = 1.0,
    forbidden_ids: tf.Tensor | None = None,
) -> tf.Tensor:
    """Draws from softmax(logits / temperature) by inverting its running sum: two random numbers a token."""
    return scores.sample(context, temperature=temperature, forbidden_ids=forbidden_ids)


def sample_gumbel(
    scores: VocabularyLogits, context: ForwardContext, temperature: float = 1.0, forbidden_ids: tf.Tensor | None = None
) -> tf.Tensor:
    """Draws from the same distribution as the authors do, by adding Gumbel noise and taking the largest.

    It needs V random numbers a token and several tensors of the size of the logits.
    """
    assert context.random is not None, "sampling needs a random stream"
    logits = _adjusted(scores, temperature, forbidden_ids)
    uniform = context.random.scope("gumbel").uniform(tf.shape(logits)[0], tuple(logits.shape[1:]))
    noise = -tf.math.log(-tf.math.log(uniform + _SMALLEST_UNIFORM) + _SMALLEST_UNIFORM)
    return tf.argmax(logits + noise, axis=-1, output_type=tf.int32)


def sample_greedy(
    scores: VocabularyLogits, context: ForwardContext, temperature: float = 1.0, forbidden_ids: tf.Tensor | None = None
) -> tf.Tensor:
    """The most likely token, for comparisons without chance."""
    return tf.argmax(_adjusted(scores, temperature, forbidden_ids), axis=-1, output_type=tf.int32)


def _adjusted(scores: VocabularyLogits, temperature: float, forbidden_ids: tf.Tensor | None) -> tf.Tensor:
    """[B, M, V] float32: the logits over the temperature, -inf for the tokens that are ruled out."""
    logits = tf.stop_gradient(scores.logits) / temperature
    if forbidden_ids is None:
        return logits
    return tf.where(tf.range(logits.shape[-1]) == forbidden_ids[..., tf.newaxis], NEVER, logits)


SAMPLERS = {"categorical": sample_categorical, "gumbel": sample_gumbel, "greedy": sample_greedy}
