"""Reading a run back, finished or not: its model and its tokenizer."""

import os
from typing import TypeVar

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import RunConfig
from electra_tf.files import read_bytes, read_json
from electra_tf.runs.checkpoints import checkpoint_prefix, damage, newest_whole, restore_strictly, step_of, steps_in
from electra_tf.runs.directory import RunDirectory, run_in
from electra_tf.tasks.pretrain import Objective, build_objective
from electra_tf.tasks.pretrain.config import load_config
from electra_tf.text.tokenizer import BertTokenizer
from electra_tf.text.vocabulary import Vocabulary
from electra_tf.train.timeline import phases_of, span_at

Config = TypeVar("Config", bound=RunConfig)


def load_run(
    model_dir: str | os.PathLike, step: int | None = None, precision: str | None = None, prefix: str | None = None
) -> Objective:
    """The objective of a pre-training run with its weights; before its last phase, the objective of its own phase.

    Args:
        step: of a checkpoint or a milestone of the run; None: the newest whole checkpoint. Newer damaged ones are
            warned of.
        precision: as of `in_precision`.
        prefix: of a whole checkpoint of the run, in place of a step.
    Raises: UserError: if `model_dir` holds no run, or no checkpoint yet, or no whole one.
    """
    run = run_in(model_dir)
    if prefix is None:
        prefix = newest_whole(run.checkpoints) if step is None else _checkpoint_of(run, step)
    if prefix is None:
        raise UserError(f"{run.checkpoints} holds no checkpoint yet; train first with run_pretraining.py")
    objective = build_objective(in_precision(load_config(run.config_file), precision))
    restore_strictly(tf.train.Checkpoint(task=objective), prefix)
    phases = phases_of(objective)
    phase = span_at(phases, step_of(prefix))
    return objective if phase is phases[-1] else phase.task


def in_precision(config: Config, precision: str | None) -> Config:
    """A configuration whose model computes in a precision of `train.precision`; None for its own.

    Weights stay float32: a checkpoint of either fits.
    """
    if precision is None:
        return config
    return config.model_copy(update={"train": config.train.model_copy(update={"precision": precision})})


def load_tokenizer(model_dir: str | os.PathLike) -> BertTokenizer:
    """The tokenizer of the text that a run was trained on.

    Raises: UserError: if `model_dir` holds no run or has not read data yet, or the settings are damaged.
    """
    run = run_in(model_dir)
    settings, vocabulary = read_json(run.tokenizer_file), read_bytes(run.vocab_file)
    if not settings or vocabulary is None:
        missing = run.vocab_file if settings else run.tokenizer_file
        raise UserError(f"{missing} is missing; if the run has not read any data yet, train first, else bring it back")
    if not settings.keys() <= {"lower_case", "strip_accents"} or not all(
        isinstance(v, bool) for v in settings.values()
    ):
        raise UserError(
            f"{run.tokenizer_file} is damaged: it holds {settings!r:.80}, expected lower_case and strip_accents, each "
            "true or false; copy the file again, or from a backup"
        )
    return BertTokenizer(Vocabulary.from_bytes(vocabulary, run.vocab_file), **settings)


def _checkpoint_of(run: RunDirectory, step: int) -> str:
    folders = (run.milestones, run.checkpoints)
    prefixes = [checkpoint_prefix(folder, step) for folder in folders if step in steps_in(folder)]
    if not prefixes:
        steps = sorted({step for folder in folders for step in steps_in(folder)})
        raise UserError(f"{run.path} has no checkpoint of step {step}; it has those of {', '.join(map(str, steps))}")
    reason = damage(prefixes[0])
    if reason is not None:
        raise UserError(f"{prefixes[0]} is damaged: {reason}; give another step")
    return prefixes[0]
