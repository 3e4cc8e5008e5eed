"""Pre-training objectives: one file each, with settings, model and cost, registered by a decorator."""

import importlib
import pkgutil

from electra_tf.tasks.pretrain.objective import OBJECTIVES, Objective, build_objective, register_objective

__all__ = ["OBJECTIVES", "Objective", "build_objective", "register_objective"]

# Importing a module registers its objective, so that no list has to be edited.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
