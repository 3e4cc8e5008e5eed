"""Drawing tokens from the generator's distribution. No gradient flows through a draw."""

import tensorflow as tf

from electra_tf.models.context import ForwardContext

# Keeps the logarithms finite where the uniform number is exactly 0; the authors add 1e-9 inside both.
_SMALLEST_UNIFORM = 1e-9
# Subtracted from the original token's logit to rule it out (pretrain_helpers.py of the authors' code).
_RULED_OUT = 1000.0


def sample_gumbel(logits: tf.Tensor, context: ForwardContext) -> tf.Tensor:
    """Draws from softmax(logits) by adding Gumbel noise and taking the largest.

    Args:
        logits: [B, M, V] float32.        context: its random stream gives the noise, in float32.
    Returns: [B, M] int32.
    """
    assert context.random is not None, "sampling needs a random stream"
    uniform = context.random.scope("gumbel").uniform(tf.shape(logits)[0], tuple(logits.shape[1:]))
    noise = -tf.math.log(-tf.math.log(uniform + _SMALLEST_UNIFORM) + _SMALLEST_UNIFORM)
    return tf.argmax(logits + noise, axis=-1, output_type=tf.int32)


def sample_greedy(logits: tf.Tensor, context: ForwardContext) -> tf.Tensor:
    """The most likely token: [B, M, V] float32 -> [B, M] int32. For comparisons without chance."""
    return tf.argmax(logits, axis=-1, output_type=tf.int32)


def rule_out(logits: tf.Tensor, token_ids: tf.Tensor) -> tf.Tensor:
    """Makes the given tokens all but impossible to draw. [B, M, V] float32 and [B, M] int32 -> [B, M, V] float32."""
    return logits - _RULED_OUT * tf.one_hot(token_ids, logits.shape[-1], dtype=logits.dtype)


SAMPLERS = {"gumbel": sample_gumbel, "greedy": sample_greedy}
