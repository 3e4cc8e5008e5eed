"""Speed compared with peers, and parity with the authors' code: `python -m benchmarks.NAME`."""

import electra_tf  # noqa: F401  before TensorFlow, because it selects the version of Keras
