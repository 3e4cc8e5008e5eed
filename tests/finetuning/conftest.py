"""The tiny encoder."""

import pytest

from electra_tf.finetuning.pretrained import PretrainedEncoder, load_pretrained


@pytest.fixture(scope="session")
def tiny_encoder(tiny_pretrained) -> PretrainedEncoder:
    return load_pretrained(tiny_pretrained)
