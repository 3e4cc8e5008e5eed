"""What is trained: one file for each objective, and the registry that names them."""

from electra_tf.tasks.pretrain.registry import OBJECTIVES, build_objective, register_objective

__all__ = ["OBJECTIVES", "build_objective", "register_objective"]
