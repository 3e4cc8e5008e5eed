"""Experiments of the project, each with its records: `python -m experiments.NAME`."""

import electra_tf  # noqa: F401  before TensorFlow: it chooses the version of Keras that TensorFlow imports
