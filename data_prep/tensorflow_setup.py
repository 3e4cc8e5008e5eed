"""Imports TensorFlow for the builder, which uses one thread of it and no accelerator.

The fork server of `processes` imports this module, so TensorFlow must not run anything here: its threads do not survive
a fork.
"""

import sys
from types import ModuleType

if "tensorflow" not in sys.modules:  # else it is the user's program's, with its settings
    from electra_tf.cli.process import import_tensorflow

    import_tensorflow()
import tensorflow as tf
import tensorflow_text  # noqa: F401


def restrain_tensorflow() -> ModuleType:
    """Returns TensorFlow, limited to one thread (the processes of a build share the cores) and to the CPU."""
    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError:
        pass  # TensorFlow was used in this process before; the settings of that caller stay
    return tf
