"""The configuration that a command's flags name, and Python modules with objectives that are not of the project."""

import argparse
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from electra_tf.cli.flags import import_tensorflow
from electra_tf.config.errors import UserError, close_name
from electra_tf.config.loader import groups_in, read_values
from electra_tf.config.schema import MaskingConfig, RunConfig

if TYPE_CHECKING:
    from electra_tf.tasks.pretrain.config import PretrainingConfig


def add_objective_module_flag(parser: argparse.ArgumentParser) -> None:
    """The flag of every command that reads a configuration; its value goes to `load_module` if it is given."""
    parser.add_argument(
        "--objective_module",
        metavar="MODULE",
        help="a Python module of your own that registers the configuration's objective, see docs/objectives.md",
    )


def config_of(arguments: argparse.Namespace) -> "PretrainingConfig":
    """The configuration of `--config`, `--set` and `--objective_module`.

    The settings of objectives stand beside their models, which import TensorFlow. So what takes no objective to be seen
    is refused before, in a fraction of a second: a file that is not there, or a name with a slip of the pen.

    Raises: UserError: if it cannot be read, or is no configuration.
    """
    known = settings_of(RunConfig) | {"objective": None, "stages": None, "masking": set(MaskingConfig.model_fields)}
    refuse_misspelt(*read_values(arguments.config, arguments.overrides), known)
    import_tensorflow(tpu=getattr(arguments, "strategy", None) == "tpu")
    from electra_tf.tasks.pretrain.config import load_config

    if arguments.objective_module:
        load_module(arguments.objective_module)
    return load_config(arguments.config, arguments.overrides)


def settings_of(model: type[BaseModel]) -> dict[str, set[str] | None]:
    """The names of the settings in each group of a kind of run; None for what is no group.

    Of a group that is one of several kinds, those of all of them.
    """
    known: dict[str, set[str] | None] = {}
    for name in model.model_fields:
        kinds = groups_in(model, name)
        known[name] = {setting for kind in kinds for setting in kind.model_fields} if kinds else None
    return known


def refuse_misspelt(values: dict, source: str, known: dict[str, set[str] | None]) -> None:
    """Refuses a setting that is unknown and near a known one, before anything slow is imported.

    Args:
        values, source: of `read_values`.        known: see `settings_of`.
    Raises: UserError: naming both.
    """
    groups = {"": (values, list(known))}
    groups |= {f"{group}.": (values.get(group), names) for group, names in known.items() if names is not None}
    for prefix, (settings, names) in groups.items():
        for name in settings if isinstance(settings, dict) else ():
            elsewhere = any(name in other for _, other in groups.values())  # then the full check knows better
            if name not in names and not elsewhere and (near := close_name(str(name), names)):
                raise UserError(f"config {source}: {prefix}{name} is not a setting; did you mean {near}?")


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
