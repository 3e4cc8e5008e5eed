"""Flags and entry points of the dataset commands."""

import electra_tf.cli.flags  # noqa: F401  first, as it says in one line that TensorFlow is missing
