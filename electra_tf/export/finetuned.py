"""Reading a fine-tuned model back."""

import os

import tensorflow as tf
import yaml

from electra_tf.config.errors import UserError
from electra_tf.config.validation import validate
from electra_tf.export.load import in_precision, load_tokenizer
from electra_tf.files import read_bytes, read_json
from electra_tf.runs.checkpoints import restore_strictly
from electra_tf.runs.directory import RunDirectory, run_in
from electra_tf.runs.source import find_source
from electra_tf.tasks.finetune import build_finetuning_task
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.seeds import FinetunedModel


def load_finetuned(
    model_dir: str | os.PathLike, prefix: str | None = None, precision: str | None = None
) -> FinetunedModel:
    """The model of a seed's directory.

    Args:
        prefix: of one of its checkpoints; None for that of the best evaluation where one was kept, else the newest.
        precision: as of `in_precision`.
    Raises: UserError: if there is no such directory, no checkpoint in it, or a damaged one.
    """
    run = run_in(model_dir)
    config = in_precision(config_in(run), precision)
    prefix = find_source(model_dir if prefix is None else prefix, "--model_dir").prefix
    task = build_finetuning_task(config)
    restore_strictly(tf.train.Checkpoint(task=task), prefix)
    return FinetunedModel(config, task, load_tokenizer(model_dir), prefix)


def config_in(run: RunDirectory) -> FinetuningConfig:
    """The configuration of a seed's directory. Raises: UserError: if it is not one of fine-tuning."""
    if not run.is_finetuned:
        raise UserError(f"{run.config_file} has no group `task`: it is not of fine-tuning; give OUTPUT/seed_0, say")
    return validate(yaml.safe_load(read_bytes(run.config_file)), FinetuningConfig, run.config_file)


def null_threshold(model_dir: str | os.PathLike, config: FinetuningConfig) -> float | None:
    """The null odds above which a question is left unanswered: chosen on the dev set, else set; None: none is."""
    chosen = read_json(os.path.join(model_dir, "null_threshold.json")).get("null_threshold")
    return config.task.null_threshold if chosen is None else chosen
