"""The initial values of the authors' code."""

import tf_keras


def truncated_normal(initializer_range: float) -> tf_keras.initializers.Initializer:
    """Tables and kernels: a normal of this standard deviation, cut at two of them (the real one is 0.88 of it)."""
    return tf_keras.initializers.TruncatedNormal(stddev=initializer_range)


def glorot_uniform() -> tf_keras.initializers.Initializer:
    """TensorFlow's default, which the authors left in place for embedding projection and last discriminator layer."""
    return tf_keras.initializers.GlorotUniform()
