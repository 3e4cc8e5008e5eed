"""The command of an installed package: `electra-tf SUBCOMMAND ...` does what the scripts in the root of a clone do."""

import importlib
import sys

import electra_tf
from electra_tf.checkout import SUBCOMMANDS, data_prep_parent
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError, did_you_mean

_PURPOSES = {
    "build-vocab": "train a vocabulary on text",
    "build-data": "turn text into TFRecords",
    "pretrain": "train an encoder",
    "finetune": "fine-tune it on a task, predict, score",
    "score-minimal-pairs": "score pairs of sentences, without fine-tuning",
    "export": "write a SavedModel for TensorFlow Serving",
    "convert": "read and write Hugging Face folders and checkpoints of the authors' code",
    "flops": "count FLOPs, parameters and hours",
    "report": "compare runs",
}
_DATA_COMMANDS = ("build-vocab", "build-data")


def main(argv: list[str] | None = None) -> int:
    """Runs the subcommand that the arguments name (None: those of the process). Returns: its exit status."""
    name, *arguments = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name not in _PURPOSES:
        return run_command(lambda: _answer(name))
    sys.argv = [f"electra-tf {name}", *arguments]  # the name in messages
    return importlib.import_module(_module_of(name)).main()


def _answer(flag: str) -> None:
    if flag == "--version":
        print(f"electra-tf {electra_tf.__version__}")
    elif flag in ("-h", "--help", "help"):
        print(_help())
    else:
        raise UserError(f"electra-tf {flag}: no such subcommand{did_you_mean(flag, _PURPOSES)}")


def _help() -> str:
    width = max(map(len, _PURPOSES))
    return "\n".join(
        (
            "usage: electra-tf SUBCOMMAND [FLAG ...]",
            "",
            "ELECTRA pre-training for TensorFlow 2: from text to an encoder, and to what it is used for.",
            "",
            *(f"  {name:{width}}  {purpose}" for name, purpose in _PURPOSES.items()),
            "",
            "electra-tf SUBCOMMAND --help shows the flags of one; electra-tf --version the version.",
        )
    )


def _module_of(subcommand: str) -> str:
    script = next(script for script, name in SUBCOMMANDS.items() if name == subcommand)
    if subcommand not in _DATA_COMMANDS:
        return f"electra_tf.cli.{script}"
    # First, so that another `data_prep`, of the user's, is not taken for this one.
    sys.path.insert(0, str(data_prep_parent()))
    return f"data_prep.cli.{script}"
