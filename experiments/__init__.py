"""Experiments with their records: `python -m experiments.NAME`."""

import electra_tf  # noqa: F401  before TensorFlow, because it selects the version of Keras
