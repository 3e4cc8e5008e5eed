"""Where this code runs from: a clone of the project, or an installed package."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_ROOT = _PACKAGE.parent


def in_checkout() -> bool:
    """True also for an editable installation of a clone."""
    return not (_PACKAGE / "configs").is_dir()  # which only a wheel has


def configs_folder() -> Path:
    """The folder of the configurations that come with the project: `pretrain/` and `finetune/`."""
    return _ROOT / "configs" if in_checkout() else _PACKAGE / "configs"


def data_prep_parent() -> Path:
    """The folder to import `data_prep` from.

    An installed top-level module of that general name would be in the way of others, so a wheel keeps it in a folder
    that only the commands that build data put on their path.
    """
    return _ROOT if in_checkout() else _PACKAGE / "bundled"
