"""Random numbers that belong to an example, not to a device. A leaf: imports nothing of the project."""

from electra_tf.random.stream import Draw, RandomStream

__all__ = ["Draw", "RandomStream"]
