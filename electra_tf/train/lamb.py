"""LAMB (You et al. 2020) with learning-rate multipliers, training phases and an update that can be left out."""

import keras
import tensorflow as tf

from electra_tf.train.adam import AdamWeightDecay
from electra_tf.train.schedule import steps_since


class Lamb(AdamWeightDecay):
    """LAMB with bias correction; a variable without weight decay has no layer adaptation either.

        u = m' / (sqrt(v') + epsilon) + weight_decay_rate * w        m', v' are m, v of Adam without their bias
        w -= learning_rate * |w| / |u| * u

    The bias correction counts steps from the beginning of each training phase: the moments of variables that only a
    later phase trains are zero until then.
    """

    def _scalars(self, apply_update: tf.Tensor) -> dict[str, tf.Tensor]:
        power = tf.cast(steps_since(self._first_steps, self.iterations) + 1, tf.float32)
        learning_rate = self.schedule(self.iterations)
        numbers = {"applies": apply_update, "learning_rate": learning_rate}
        for number, beta in enumerate((self.config.beta_1, self.config.beta_2), start=1):
            numbers |= {f"beta_{number}": tf.constant(beta), f"correction_{number}": 1.0 - tf.pow(beta, power)}
        return numbers

    def _update(self, variable: keras.Variable, gradient: tf.Tensor, scalars: dict[str, tf.Tensor]) -> None:
        state = (variable, *self._moments_of(variable))
        weight, first, second = before = [tf.convert_to_tensor(each) for each in state]
        first = first * scalars["beta_1"] + gradient * (1.0 - scalars["beta_1"])
        second = second * scalars["beta_2"] + tf.square(gradient) * (1.0 - scalars["beta_2"])
        deviation = tf.sqrt(second / scalars["correction_2"])
        update = first / scalars["correction_1"] / (deviation + self.config.epsilon)
        ratio = 1.0
        if self.decays(variable):
            update += self.config.weight_decay_rate * weight
            norms = tf.norm(weight), tf.norm(update)
            ratio = tf.where((norms[0] > 0) & (norms[1] > 0), tf.math.divide_no_nan(*norms), 1.0)
        rate = ratio * scalars["learning_rate"] * self.learning_rate_multiplier(variable)
        for each, old, new in zip(state, before, (weight - rate * update, first, second), strict=True):
            # By handles, as Adam. Without an update nothing changes.
            tf.raw_ops.AssignVariableOp(resource=each.handle, value=tf.where(scalars["applies"], new, old))
