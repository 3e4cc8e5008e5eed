"""The checkpoint of a run that a path names, and a new run that goes on from it."""

import logging
import os
import re
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.loader import read_values
from electra_tf.config.schema import RunConfig
from electra_tf.files import exists, is_remote, read_json
from electra_tf.runs.checkpoints import (
    checkpoint_prefix,
    holds_optimizer,
    newest_whole,
    restore_strictly,
    step_of,
    steps_in,
)
from electra_tf.runs.directory import RunDirectory
from electra_tf.tasks.base import InputStage, Task
from electra_tf.text.manifest import seen_held_out_text
from electra_tf.text.vocabulary import StoredTokenizer

logger = logging.getLogger(__name__)

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
    path = _absolute(path)
    if (run := run_at(path)) is None:
        return None
    if (prefix := checkpoint_prefix_of(path)) is not None:
        return RunCheckpoint(run, prefix)
    folders = [path]
    if run.path == path:
        folders = [run.best, run.checkpoints] if run.is_finetuned else [run.checkpoints]
    for folder in folders:
        if (prefix := newest_whole(folder)) is not None:
            return RunCheckpoint(run, prefix)
    raise UserError(
        f"{flag}={path} is a run without a checkpoint; train it first (fine-tuning with --keep=none keeps none)"
    )


def run_at(path: str | os.PathLike) -> RunDirectory | None:
    """The run that a path names, see `find_checkpoint`; None if the path belongs to no run."""
    path = _absolute(path)
    if (prefix := checkpoint_prefix_of(path)) is not None:
        return _run_around(os.path.dirname(prefix))
    run = RunDirectory(path)
    return run if exists(run.config_file) else _run_around(path)


def _absolute(path: str | os.PathLike) -> str:
    return os.fspath(path).rstrip("/") if is_remote(path) else os.path.abspath(path)


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


def check_data(stages: Sequence[InputStage], source: str | None, seed: int | None) -> None:
    """Checks what a new run reads, and warns if `source` has read its held-out text or the same batches before.

    Args:
        source: where its weights are from; None: they are random.
        seed: its `train.seed`; None if it goes on from the source's step.
    Raises: UserError: held-out text of a stage may be training text of an earlier one.
    """
    data = [(stage.source, stage.hold_out) for stage in stages]
    if seen := seen_held_out_text(data):
        raise UserError(f"--data_dir: {seen}")
    if source is None or (run := run_at(source)) is None:
        return
    if seen := seen_held_out_text([*run.hold_outs, *data]):
        logger.warning("warning: %s", seen)
    pairs = zip(stages, read_json(run.data_file).get("data", ()), strict=False)  # any others have other seeds
    is_same_data = any(stage.identity == identity for stage, identity in pairs)
    if is_same_data and seed is not None and seed == read_values(run.config_file)[0]["train"].get("seed"):
        logger.warning(
            "warning: data and train.seed are those of %s, so the run reads the same examples in the same order, with "
            "the same masks if the batch size is the same; for others give --set train.seed=%d", run.path, seed + 1
        )  # fmt: skip


def _steps_around(path: str) -> str:
    """The steps that the run of a path that does not exist has in the same folder, for a message."""
    folder = os.path.dirname(_absolute(path))
    steps = steps_in(folder) if _run_around(folder) else []
    return f"; {folder} has the steps {', '.join(map(str, steps))}" if steps else ""


def in_precision(config: Config, precision: str | None) -> Config:
    """The configuration with another `train.precision`; None: unchanged.

    Weights are float32 in either precision, so the same checkpoint fits.
    """
    if precision is None:
        return config
    return config.model_copy(update={"train": config.train.model_copy(update={"precision": precision})})
