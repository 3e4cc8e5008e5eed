"""Flags and entry points of the dataset commands."""

import electra_tf.cli.flags  # noqa: F401  first: if TensorFlow is missing, it ends with one line
