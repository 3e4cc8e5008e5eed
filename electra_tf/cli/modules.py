"""Python modules that a command's flag names: objectives that are not part of the project."""

import argparse
import importlib
import importlib.util
import sys
from pathlib import Path

from electra_tf.config.errors import UserError


def add_objective_module_flag(parser: argparse.ArgumentParser) -> None:
    """The flag of every command that reads a configuration; its value goes to `load_module` if it is given."""
    parser.add_argument(
        "--objective_module",
        metavar="MODULE",
        help="a Python module of your own that registers the configuration's objective, see docs/objectives.md",
    )


def load_module(name: str) -> None:
    """Imports a module for what it registers; once, however often it is named.

    Args:
        name: as in an import statement (`my_package.my_objective`), or the path of a .py file.
    Raises: UserError: if there is no such module, or importing it fails.
    """
    path = Path(name)
    try:
        if path.suffix == ".py":
            _import_file(path)
        else:
            importlib.import_module(name)
    except Exception as error:
        raise UserError(
            f"--objective_module={name} cannot be imported: {type(error).__name__}: {' '.join(str(error).split())}; "
            "expected the path of a .py file, or a module on PYTHONPATH"
        ) from None


def _import_file(path: Path) -> None:
    if path.stem in sys.modules:
        if getattr(sys.modules[path.stem], "__file__", None) == str(path.resolve()):
            return
        raise ImportError(f"a module {path.stem} is imported already; give the file another name")
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    module = importlib.util.module_from_spec(spec)
    # Autograph and dataclasses look a module up by its name.
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
