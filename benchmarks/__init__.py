"""What a user or a maintainer measures again: each command is `python -m benchmarks.NAME`."""

import electra_tf  # noqa: F401  before TensorFlow: it chooses the version of Keras that TensorFlow imports
