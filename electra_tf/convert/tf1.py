"""The authors' TensorFlow 1 checkpoints."""

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.convert.names import NamedVariables, tf1_variables
from electra_tf.convert.stored_weights import StoredWeight, assign_strictly
from electra_tf.tasks.pretrain.objective import Objective

__all__ = ["NamedVariables", "tf1_variables", "load_authors_checkpoint"]


def load_authors_checkpoint(objective: Objective, checkpoint: str) -> None:
    """Copies a checkpoint of the authors' code into an objective, strictly: every variable, each of the right shape.

    Args:
        checkpoint: the prefix, e.g. `.../model.ckpt`; optimizer slots and the step in it are left aside.
    Raises: UserError: naming the missing variables, or both shapes.
    """
    try:
        reader = tf.train.load_checkpoint(checkpoint)
    except (tf.errors.OpError, ValueError) as error:
        raise UserError(f"{checkpoint} is not a readable TensorFlow checkpoint: {str(error).splitlines()[0]}") from None
    stored = [StoredWeight(name, name, variable) for name, variable in tf1_variables(objective).items()]
    assign_strictly(checkpoint, reader, stored)
