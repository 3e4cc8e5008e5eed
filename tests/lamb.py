"""Skips what needs LAMB where tf-models-official is not installed: it has no release for TensorFlow 2.21."""

from importlib.util import find_spec

import pytest

needs_lamb = pytest.mark.skipif(find_spec("official") is None, reason="LAMB: tf-models-official is not installed")
OPTIMIZERS = ["adamw", pytest.param("lamb", marks=needs_lamb)]
