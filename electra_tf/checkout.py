"""Where this code runs from: a clone of the project, or an installed package; and what its parts are called there."""

import re
from pathlib import Path

# The scripts in the root of a clone, and the subcommands of `electra-tf` that do the same.
SUBCOMMANDS = {
    "build_vocab": "build-vocab",
    "build_pretraining_dataset": "build-data",
    "run_pretraining": "pretrain",
    "run_finetuning": "finetune",
    "score_minimal_pairs": "score-minimal-pairs",
    "export_saved_model": "export",
    "convert_checkpoint": "convert",
    "profile_flops": "flops",
    "report": "report",
}

_PACKAGE = Path(__file__).resolve().parent
_ROOT = _PACKAGE.parent
_SCRIPT = re.compile(rf"\b(?:python )?({'|'.join(SUBCOMMANDS)})\.py\b")
_PAGE = re.compile(r"\bdocs/[\w/]+\.md\b")
_REPOSITORY = "https://github.com/electra-tf/electra_tf"


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


def install_command(extra: str) -> str:
    """The command that installs an optional group of packages, such as `beam`."""
    return f"pip install -r requirements-{extra}.txt" if in_checkout() else f'pip install "electra-tf[{extra}]"'


def with_command_names(text: str) -> str:
    """A message or help text that names scripts and pages, with what an installed package has in their place."""
    if in_checkout():
        return text
    text = _SCRIPT.sub(lambda match: f"electra-tf {SUBCOMMANDS[match[1]]}", text)
    return _PAGE.sub(rf"{_REPOSITORY}/blob/main/\g<0>", text)
