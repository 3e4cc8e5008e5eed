"""ELECTRA pre-training for TensorFlow 2.

Shape legend. One letter means one thing in every docstring and comment of the project:

    B  examples in the batch of one replica      V  vocabulary entries
    S  positions in a sequence                   E  embedding size
    M  masked positions in a sequence            H  hidden size (of the discriminator or BERT)
    A  attention heads                           G  hidden size of the generator
    D  size of one attention head                F  feed-forward (intermediate) size
    L  layers                                    C  classes or choices of a task
"""

import importlib
import os
from typing import Any

__version__ = "0.4.0"

# The module of each public name. `__init__.pyi` has the same names for type checkers.
_MODULES = {
    **dict.fromkeys(("TrainingStopped", "UserError"), "config.errors"),
    **dict.fromkeys(("convert", "export"), "api.conversion"),
    **dict.fromkeys(("build_dataset", "build_vocab"), "api.data"),
    **dict.fromkeys(("EncoderLayer", "EncoderVectors"), "api.encoder"),
    **dict.fromkeys(("FinetuningResult", "finetune", "predict"), "api.finetuning"),
    **dict.fromkeys(("load", "push"), "api.loading"),
    "Model": "api.model",
    **dict.fromkeys(
        ("PretrainingResult", "build_model", "evaluate", "pretrain", "pretraining_batches"), "api.pretraining"
    ),
}
__all__ = sorted(_MODULES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Imports what is public when it is used, because TensorFlow takes seconds to import."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # no notes about the machine
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
