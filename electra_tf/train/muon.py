"""Muon (Jordan et al. 2024): orthogonal updates for the matrices of the layers, Adam for everything else."""

import re

import keras
import tensorflow as tf

from electra_tf.train.adam import AdamWeightDecay

_MATRIX_OF_LAYER = re.compile(r"/layer_\d+/.*kernel$")
# A quintic that moves all singular values from (0, 1] to about 0.7 to 1.2, steepest at 0; by Jordan.
_COEFFICIENTS, _NUM_ITERATIONS, _EPSILON = (3.4445, -4.7750, 2.0315), 5, 1e-7
_SCALE = 0.2  # the root mean square of Adam's updates, so that both have one learning rate


class Muon(AdamWeightDecay):
    """Muon for each kernel [I, O] of the encoder layers; `AdamWeightDecay` for embeddings, biases, norms and heads.

        m = momentum m + (1 - momentum) g
        u = orthogonalized((1 - momentum) g + momentum m)
        w -= learning_rate * (0.2 sqrt(max(I, O)) u + weight_decay_rate * w)

    Source: Jordan et al. 2024 for the update, Liu et al. 2025 (Moonlight) for its scale, as
    `torch.optim.Muon(adjust_lr_fn="match_rms_adamw")`.
    """

    def _scalars(self, clip_scale: tf.Tensor, apply_update: tf.Tensor) -> dict[str, tf.Tensor]:
        numbers = {
            "momentum": tf.where(apply_update, self.config.momentum, 1.0),
            "muon_rate": tf.where(apply_update, self.schedule(self.iterations), 0.0),
        }
        return super()._scalars(clip_scale, apply_update) | numbers

    def _update(self, variable: keras.Variable, gradient: tf.Tensor, scalars: dict[str, tf.Tensor]) -> None:
        if not _MATRIX_OF_LAYER.search(variable.path):
            super()._update(variable, gradient, scalars)
            return
        moment, _ = self._moments_of(variable)
        weight, momentum = tf.convert_to_tensor(variable), scalars["momentum"]
        # 0 where the scale is 0, even if the gradient is not finite.
        gradient = tf.math.multiply_no_nan(gradient, scalars["clip_scale"]) * (1.0 - momentum)
        mean = momentum * tf.convert_to_tensor(moment) + gradient
        update = _SCALE * max(variable.shape) ** 0.5 * orthogonalized(gradient + momentum * mean)
        if self.decays(variable):
            update += self.config.weight_decay_rate * weight
        rate = scalars["muon_rate"] * self.learning_rate_multiplier(variable)
        tf.raw_ops.AssignVariableOp(resource=moment.handle, value=mean)
        tf.raw_ops.AssignSubVariableOp(resource=variable.handle, value=rate * update)


def orthogonalized(matrix: tf.Tensor) -> tf.Tensor:
    """U V^T of a matrix U S V^T [I, O], roughly: singular values of 0.7 to 1.2, by Newton-Schulz iterations."""
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = tf.transpose(matrix) if is_tall else matrix
    x = x / (tf.norm(x) + _EPSILON)
    a, b, c = _COEFFICIENTS
    for _ in range(_NUM_ITERATIONS):
        gram = tf.matmul(x, x, transpose_b=True)
        x = a * x + tf.matmul(b * gram + c * tf.matmul(gram, gram), x)
    return tf.transpose(x) if is_tall else x
