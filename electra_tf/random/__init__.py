"""Random numbers that belong to an example, not to a device. A leaf: imports nothing of the project."""

from electra_tf.random.stream import RandomStream
from electra_tf.random.threefry import Draw

__all__ = ["Draw", "RandomStream"]
