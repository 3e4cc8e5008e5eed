"""The code that computes a run, as far as it may change between two calls: the user's objective, and the versions."""

import hashlib
import logging
import sys
from typing import Any

import tensorflow as tf

import electra_tf
from electra_tf.config.errors import UserError
from electra_tf.files import read_bytes, read_rewritten
from electra_tf.tasks.base import Task
from electra_tf.train.run_directory import RunDirectory

logger = logging.getLogger(__name__)


def code_of(task: Task) -> dict[str, Any]:
    """The versions of this project and of TensorFlow, and the sha256 of each module of the user's own that is trained.

    A program or notebook that defines its objective has none: there other lines change, too.
    """
    classes = {each for phase in (task, *task.phases()) for each in type(phase).__mro__ if issubclass(each, Task)}
    names = sorted({each.__module__ for each in classes if each.__module__.split(".")[0] != electra_tf.__name__})
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names if name != "__main__"}
    hashes = {name: hashlib.sha256(read_bytes(file) or b"").hexdigest() for name, file in files.items() if file}
    return {"electra_tf": electra_tf.__version__, "tensorflow": tf.__version__, "objective_module": hashes}


def changed_versions(directory: RunDirectory, code: dict[str, Any]) -> dict[str, str]:
    """The versions of a run that is continued, if another one trained its last steps; a warning names both.

    Raises: UserError: the user's objective has another source.
    """
    before = read_rewritten(directory.code_file)
    for name, sha256 in code["objective_module"].items():
        recorded = before.get("objective_module", {}).values()
        if recorded and sha256 not in recorded:
            raise UserError(
                f"{sys.modules[name].__file__} is not the module that trained the run in {directory.path}: its sha256 "
                f"is {sha256:.12}, the run's {', '.join(f'{each:.12}' for each in recorded)}; continue with the module "
                f"as it was, or give a new {directory.flag}, with init_from={directory.path} for its weights"
            )
    versions = {name: code[name] for name in ("electra_tf", "tensorflow")}
    others = [name for name, now in versions.items() if before.get(name, now) != now]
    for name in others:
        logger.warning("the run goes on with another version: %s %s before, %s now", name, before[name], versions[name])
    return versions if others else {}
