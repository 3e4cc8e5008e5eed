"""TensorFlow as the builder uses it: imported in two thirds of the usual time, on one thread and without accelerators.

The import creates a few hundred thousand objects that stay; the garbage collector would spend a third of the time on
searching them. This is the one module of data_prep that imports TensorFlow at its top, also in the fork server of
`processes`. Nothing may run in TensorFlow there: its threads do not survive a fork.
"""

import gc
from types import ModuleType

_was_enabled = gc.isenabled()
gc.disable()
try:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401
finally:
    if _was_enabled:
        gc.enable()


def restrained_tensorflow() -> ModuleType:
    """TensorFlow with one thread, since the processes of a build share the cores, and without accelerators."""
    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError:
        pass  # a caller in this process has used TensorFlow before and keeps its own settings
    return tf
