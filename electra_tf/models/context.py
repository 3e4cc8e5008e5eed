"""How a forward pass is run: for training or not, and with which random numbers."""

from dataclasses import dataclass, replace

import tensorflow as tf

from electra_tf.ops import fused
from electra_tf.ops.random import Draw, RandomStream


@dataclass(frozen=True)
class ForwardContext:
    """Passed down through every layer that may draw random numbers.

    Attributes:
        training: whether dropout is applied.
        random: the stream to draw from. Inference without sampling needs none.
        rematerialize: whether each layer is computed again on the way back instead of being kept.
        drops: whether training draws dropout. A network that is not trained, in a step that trains another, has none.
    """

    training: bool = False
    random: RandomStream | None = None
    rematerialize: bool = False
    drops: bool = True

    def scope(self, name: str) -> "ForwardContext":
        """The context of a named part of the model: the same mode, its own random numbers."""
        return replace(self, random=self.random and self.random.scope(name))

    def frozen(self) -> "ForwardContext":
        """The context of a network that is not trained: no dropout, and nothing to be computed again."""
        return replace(self, drops=False, rematerialize=False)

    def dropout(self, values: tf.Tensor, rate: float, name: str) -> tf.Tensor:
        """Zeroes a share `rate` of `values`, scales the rest by 1 / (1 - rate); in inference returns them as they are.

        Args:
            values: [B, ...] with static inner dimensions.
            rate: in [0, 1).
            name: unique among the draws of this context.
        Returns: like `values`.
        """
        draw = self.draw(rate, name)
        return values if draw is None else fused.dropout(values, rate=rate, draw=draw)

    def draw(self, rate: float, name: str) -> Draw | None:
        """The random bits for dropping a share `rate`; None where nothing is dropped."""
        if not (self.training and self.drops) or rate == 0.0:
            return None
        assert self.random is not None, "training needs a random stream"
        return self.random.scope(name).draw()


INFERENCE = ForwardContext()
