"""The checkpoint of a run that a path names, and a new run that goes on from it."""

import os
import re
from typing import NamedTuple, TypeVar

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import RunConfig
from electra_tf.files import exists, is_remote
from electra_tf.runs.checkpoints import (
    checkpoint_prefix,
    holds_optimizer,
    newest_whole,
    restore_strictly,
    step_of,
    steps_in,
)
from electra_tf.runs.directory import RunDirectory
from electra_tf.tasks.base import Task
from electra_tf.text.vocabulary import StoredTokenizer

Config = TypeVar("Config", bound=RunConfig)

# A path may be the name of a checkpoint's file, as a shell completes it.
_FILE_ENDING = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")


class RunCheckpoint(NamedTuple):
    """A checkpoint of a run.

    Attributes:
        prefix: the path of its files without their endings.
    """

    run: RunDirectory
    prefix: str

    @property
    def step(self) -> int:
        return step_of(self.prefix)


def checkpoint_prefix_of(path: str) -> str | None:
    """The prefix of the checkpoint that a path names, as a prefix or as one of its files; None if there is none."""
    prefix = path if tf.io.gfile.isdir(path) else _FILE_ENDING.sub("", path)
    return prefix if exists(f"{prefix}.index") and not tf.io.gfile.isdir(f"{prefix}.index") else None


def find_checkpoint(path: str | os.PathLike, flag: str) -> RunCheckpoint | None:
    """The checkpoint of a run that a path names; None if the path belongs to no run.

    Args:
        path: one of these:
            a run's directory, for its newest whole checkpoint (after fine-tuning the best one, if it was kept);
            its `checkpoints/`, `milestones/` or `best/`, for the newest whole one there;
            one of its checkpoints, or a file of it.
        flag: the flag that gives the path, for messages.
    Raises: UserError: if the run has no whole checkpoint.
    """
    path = os.fspath(path)
    path = path.rstrip("/") if is_remote(path) else os.path.abspath(path)
    if (prefix := checkpoint_prefix_of(path)) is not None:
        run = _run_around(os.path.dirname(prefix))
        return None if run is None else RunCheckpoint(run, prefix)
    run, folders = RunDirectory(path), [path]
    if exists(run.config_file):
        folders = [run.best, run.checkpoints] if run.is_finetuned else [run.checkpoints]
    elif (run := _run_around(path)) is None:
        return None
    for folder in folders:
        if (prefix := newest_whole(folder)) is not None:
            return RunCheckpoint(run, prefix)
    raise UserError(
        f"{flag}={path} is a run without a checkpoint; train it first (fine-tuning with --keep=none keeps none)"
    )


def _run_around(folder: str) -> RunDirectory | None:
    """The run of a folder of checkpoints, or of a local link to one; None for another folder."""
    for each in (folder,) if is_remote(folder) else (folder, os.path.realpath(folder)):
        directory, name = os.path.split(each)
        run = RunDirectory(directory)
        if name in ("checkpoints", "milestones", "best") and exists(run.config_file):
            return run
    return None


def continue_from(task: Task, path: str, tokenizer: StoredTokenizer | None) -> list[str]:
    """Gives a compiled task the weights, the optimizer and the step of a run of the same model.

    Args:
        tokenizer: that of the task's data; None: unknown.
    Returns: lines for the log.
    Raises: UserError: there is no such checkpoint, it holds no optimizer, or its model, its vocabulary or its number of
        steps does not fit.
    """
    place = f"--init_from={path}"
    if (found := find_checkpoint(path, "--init_from")) is None:
        if not exists(path) and checkpoint_prefix_of(path) is None:
            raise UserError(f"{place}: there is no such run and no such checkpoint{_steps_around(path)}")
        raise UserError(f"{place} --with_optimizer: expected a run, as only its checkpoints hold an optimizer")
    if not holds_optimizer(found.prefix):
        raise UserError(f"{place} holds no optimizer (convert_checkpoint.py writes none); leave --with_optimizer out")
    found.run.require_same_model(task.config, place)
    if task.config.varies_with_num_steps:
        raise UserError(
            f"{place} --with_optimizer: its phases or its temperature depend on train.num_steps, so it cannot go on "
            "with another one; leave --with_optimizer out"
        )
    if tokenizer is not None:
        found.run.require_same_tokenizer(tokenizer)
    num_steps = task.config.train.num_steps
    if found.step >= num_steps:
        raise UserError(f"{place} is at step {found.step}, but train.num_steps is {num_steps}; raise train.num_steps")
    restore_strictly(tf.train.Checkpoint(task=task, optimizer=task.optimizer), found.prefix)
    lines = [f"weights, optimizer and step from step {found.step} of {found.run.path}"]
    if 0 < (stable := found.run.stable_steps(type(task.config))) < found.step:
        milestone = checkpoint_prefix(found.run.milestones, stable)
        advice = f"; before the decay: {milestone}" if exists(f"{milestone}.index") else ""
        lines.append(f"warning: its learning rate decays from step {stable} on, and may rise again now{advice}")
    return lines


def _steps_around(path: str) -> str:
    """The steps that the run of a path that does not exist has in the same folder, for a message."""
    folder = os.path.dirname(path.rstrip("/") if is_remote(path) else os.path.abspath(path))
    steps = steps_in(folder) if _run_around(folder) else []
    return f"; {folder} has the steps {', '.join(map(str, steps))}" if steps else ""


def in_precision(config: Config, precision: str | None) -> Config:
    """The configuration with another `train.precision`; None: unchanged.

    Weights are float32 in either precision, so the same checkpoint fits.
    """
    if precision is None:
        return config
    return config.model_copy(update={"train": config.train.model_copy(update={"precision": precision})})
