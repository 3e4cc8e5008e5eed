"""The initial values of the authors' code."""

import tf_keras


def truncated_normal(initializer_range: float) -> tf_keras.initializers.Initializer:
    """A normal of the given standard deviation, cut at two of them (so the real one is 0.88 of it): tables and kernels."""
    return tf_keras.initializers.TruncatedNormal(stddev=initializer_range)


def glorot_uniform() -> tf_keras.initializers.Initializer:
    """TensorFlow's default, which the authors left in place for the embedding projection and the last discriminator layer."""
    return tf_keras.initializers.GlorotUniform()
