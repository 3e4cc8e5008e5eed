"""ELECTRA pre-training for TensorFlow 2.

Shape legend. One letter means one thing in every docstring and comment of the project:

    B  examples in the batch of one replica      V  vocabulary entries
    S  positions in a sequence                   E  embedding size
    M  masked positions in a sequence            H  hidden size (of the discriminator or BERT)
    A  attention heads                           G  hidden size of the generator
    D  size of one attention head                F  feed-forward (intermediate) size
    L  layers                                    C  classes or choices of a task
"""
# ruff: noqa: F403, F405  (the names of `__all__` are those of `electra_tf.api`)

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from electra_tf.api import *
    from electra_tf.config.errors import TrainingStopped, UserError

__version__ = "0.3.0"

__all__ = [
    "EncoderLayer",
    "EncoderVectors",
    "FinetuningResult",
    "Model",
    "PretrainingResult",
    "TrainingStopped",
    "UserError",
    "build_dataset",
    "build_model",
    "build_vocab",
    "finetune",
    "load",
    "pretrain",
    "pretraining_batches",
]
_ERRORS = ("TrainingStopped", "UserError")

if not TYPE_CHECKING:  # to which every name would be known

    def __getattr__(name: str):
        """Imports what is public when it is used, because TensorFlow takes seconds to import."""
        if name in __all__:
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # no notes about the machine
            module = importlib.import_module("electra_tf.config.errors" if name in _ERRORS else "electra_tf.api")
            return getattr(module, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
