"""Where this code runs from: a clone of the project, or an installed package."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_ROOT = _PACKAGE.parent


def in_checkout() -> bool:
    return (_ROOT / "setup.sh").is_file()


def configs_folder() -> Path:
    """The folder of the configurations that come with the project: `pretrain/` and `finetune/`."""
    return _ROOT / "configs" if in_checkout() else _PACKAGE / "configs"


def install_command(extra: str) -> str:
    """The command that installs an optional group of packages, such as `beam`."""
    return f"pip install -r requirements-{extra}.txt" if in_checkout() else f'pip install "electra-tf[{extra}]"'
