"""Loads the configuration and the objective module that a command's flags name."""

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from electra_tf.cli.process import errors_reported, import_tensorflow
from electra_tf.config.errors import UserError
from electra_tf.files import exists, is_remote


def config_of(arguments: argparse.Namespace) -> Any:
    """The `PretrainingConfig` that --config, --set and --objective_module name. Raises: UserError: it is wrong."""
    # Each objective's settings are in its own module, which imports TensorFlow.
    import_tensorflow(tpu=getattr(arguments, "strategy", None) == "tpu")
    from electra_tf.tasks.pretrain.config import load_config

    load_module(arguments.objective_module)
    return load_config(arguments.config, arguments.overrides)


def local_or_url(path: str | None) -> str | Path | None:
    """A path as the Python interface takes it for one of this machine, not for a name of the Hugging Face Hub."""
    return path if path is None or is_remote(path) else Path(path)


def require_free(arguments: argparse.Namespace, *flags: str, remedy: str = "") -> None:
    """Raises: UserError: a file that one of these flags names, and the command is to write, exists."""
    for flag in flags:
        if (file := getattr(arguments, flag)) and exists(file):
            raise UserError(f"--{flag}={file} exists; give another name{remedy}")


def print_order(arguments: argparse.Namespace, order: Callable[..., str]) -> int:
    """Calls an order with the flags, for which --objective_module is imported, and prints its result.

    Returns: the exit status.
    """
    with errors_reported() as status:
        import_tensorflow()
        load_module(arguments.objective_module)
        print(order(**{name: value for name, value in vars(arguments).items() if name != "objective_module"}))
    return status.code


def load_module(name: str | None) -> None:
    """Imports a module that registers an objective. A second import of the same module does nothing.

    Args:
        name: as in an import statement (`my_package.my_objective`), or the path of a .py file; None: no module.
    Raises: UserError: another module has the file's name. Errors in the module itself are not caught.
    """
    if name is None:
        return
    path = Path(name)
    if path.suffix != ".py":
        importlib.import_module(name)
        return
    if path.stem in sys.modules:
        if getattr(sys.modules[path.stem], "__file__", None) == str(path.resolve()):
            return
        raise UserError(f"--objective_module={path}: a module named {path.stem} is already imported; rename the file")
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert spec is not None and spec.loader is not None, "Python reads every .py file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # Autograph and dataclasses look a module up by its name
    spec.loader.exec_module(module)
