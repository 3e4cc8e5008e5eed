"""How a forward pass is run: for training or not, with which operations and which random numbers."""

from dataclasses import dataclass, replace

import tensorflow as tf

from electra_tf.ops.random import Draw, RandomStream
from electra_tf.ops.reference import REFERENCE, ReferenceOps


@dataclass(frozen=True)
class ForwardContext:
    """Passed down through every layer.

    Attributes:
        training: whether the pass is of a training step.
        random: the stream to draw from. Inference without sampling needs none.
        rematerialize: whether the gradient computes each layer again instead of keeping its tensors.
        dropout_enabled: whether training applies dropout; False for frozen networks.
        creates_variables: whether the pass is only to create variables; encoder layers are built, not computed.
        ops: the implementation of the operations: `REFERENCE` or an `electra_tf.ops.fused.FusedOps`.
    """

    training: bool = False
    random: RandomStream | None = None
    rematerialize: bool = False
    dropout_enabled: bool = True
    creates_variables: bool = False
    ops: ReferenceOps = REFERENCE

    def scope(self, name: str) -> "ForwardContext":
        """The context of a named part of the model: the same mode, its own random numbers."""
        return replace(self, random=self.random and self.random.scope(name))

    def frozen(self) -> "ForwardContext":
        """The context of a network that is not trained: no dropout and no rematerialisation."""
        return replace(self, dropout_enabled=False, rematerialize=False)

    def dropout(self, values: tf.Tensor, rate: float, name: str) -> tf.Tensor:
        """Zeroes a share `rate` of `values` and scales the rest by 1 / (1 - rate); the identity in inference.

        Args:
            values: [B, ...] with static inner dimensions.
            rate: in [0, 1).
            name: unique among the draws of this context.
        Returns: like `values`.
        """
        draw = self.draw(rate, name)
        return values if draw is None else self.ops.dropout(values, rate=rate, draw=draw)

    def draw(self, rate: float, name: str) -> Draw | None:
        """The random bits for dropping a share `rate`; None where nothing is dropped."""
        if not (self.training and self.dropout_enabled) or rate == 0.0:
            return None
        assert self.random is not None, "training needs a random stream"
        return self.random.scope(name).draw()


INFERENCE = ForwardContext()
