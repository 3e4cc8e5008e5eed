"""The command of the project: `electra-tf SUBCOMMAND ...`."""

import importlib
import sys

import electra_tf
from electra_tf.checkout import data_prep_parent
from electra_tf.cli.process import errors_reported
from electra_tf.config.errors import UserError, did_you_mean

# The module of each subcommand, and what it does.
SUBCOMMANDS = {
    "build-vocab": ("data_prep.cli.build_vocab", "train a vocabulary on text"),
    "build-data": ("data_prep.cli.build_pretraining_dataset", "turn text into TFRecords"),
    "pretrain": ("electra_tf.cli.run_pretraining", "train an encoder"),
    "finetune": ("electra_tf.cli.run_finetuning", "fine-tune it on a task, predict, score"),
    "score-minimal-pairs": ("electra_tf.cli.score_minimal_pairs", "score pairs of sentences, without fine-tuning"),
    "export": ("electra_tf.cli.export_saved_model", "write a SavedModel for TensorFlow Serving"),
    "convert": ("electra_tf.cli.convert_checkpoint", "read and write Hugging Face's and the authors' formats"),
    "push": ("electra_tf.cli.push", "upload a model, and the milestones of its run, to the Hugging Face Hub"),
    "flops": ("electra_tf.cli.profile_flops", "count FLOPs, parameters and hours"),
    "report": ("electra_tf.cli.report", "compare runs"),
}


def main(argv: list[str] | None = None) -> int:
    """Runs the subcommand that the arguments name (None: those of the process). Returns: its exit status."""
    name, *arguments = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name not in SUBCOMMANDS:
        with errors_reported() as status:
            if name == "--version":
                print(f"electra-tf {electra_tf.__version__}")
                return status.code
            if name not in ("-h", "--help", "help"):
                raise UserError(f"electra-tf {name}: no such subcommand{did_you_mean(name, SUBCOMMANDS)}")
            width = max(map(len, SUBCOMMANDS))
            print(
                "usage: electra-tf SUBCOMMAND [FLAG ...]",
                "",
                "ELECTRA pre-training for TensorFlow 2: from text to an encoder, and to what it is used for.",
                "",
                *(f"  {command:{width}}  {purpose}" for command, (_, purpose) in SUBCOMMANDS.items()),
                "",
                "electra-tf SUBCOMMAND --help shows the flags of one; electra-tf --version the version.",
                "Pages (docs/...) are in https://github.com/electra-tf/electra_tf",
                sep="\n",
            )
        return status.code
    module, _ = SUBCOMMANDS[name]
    sys.argv = [f"electra-tf {name}", *arguments]  # the name in messages
    if module.startswith("data_prep."):
        # First, so that another `data_prep`, of the user's, is not taken for this one.
        sys.path.insert(0, str(data_prep_parent()))
    return importlib.import_module(module).main()
