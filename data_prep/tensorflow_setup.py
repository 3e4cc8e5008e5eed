"""Imports TensorFlow for the builder in two thirds of the usual time; it uses one thread and no accelerator.

Garbage collection is off during the import: it would take a third of the time, and the objects stay anyway. The fork
server of `processes` imports this module, so TensorFlow must not run anything here: its threads do not survive a fork.
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


def restrain_tensorflow() -> ModuleType:
    """Returns TensorFlow, limited to one thread (the processes of a build share the cores) and to the CPU."""
    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.set_visible_devices([], "GPU")
    except RuntimeError:
        pass  # TensorFlow was used in this process before; the settings of that caller stay
    return tf
