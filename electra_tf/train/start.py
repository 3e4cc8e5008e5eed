"""The initial state of a new run: random, the weights of another model, or a run that it goes on from."""

import json
import logging
import os
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.loader import read_values
from electra_tf.data.manifest import seen_held_out_text
from electra_tf.files import absolute_path, exists, read_json, read_rewritten, write_atomically
from electra_tf.tasks.base import Stage, Task
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.train.checkpoints import (
    checkpoint_prefix,
    find_checkpoint,
    restore_strictly,
    run_at,
)
from electra_tf.train.run_directory import RunDirectory

logger = logging.getLogger(__name__)


class Start(NamedTuple):
    """Where the weights of a new run are from.

    Attributes:
        init_from: the path of another model, absolute, which the run records; None: no model.
        with_optimizer: whether the optimizer and the step are its too.
        report: lines on what was loaded, for the log and the run's record; none if the weights stay random.
    """

    init_from: str | None = None
    with_optimizer: bool = False
    report: Sequence[str] = ()


def recorded_start(
    directory: RunDirectory, is_new: bool, init_from: str | os.PathLike[str] | None, with_optimizer: bool
) -> Start:
    """The start with the given source, else with the one that the run has recorded.

    Raises: UserError: if the run was started from another source.
    """
    record = read_rewritten(directory.warm_start_file)
    recorded, is_lost = record.get("init_from"), not record and exists(directory.warm_start_file)
    continues = not is_new and not is_lost
    is_other_source = init_from is not None and absolute_path(init_from) != recorded
    if continues and (is_other_source or with_optimizer and not record.get("with_optimizer")):
        how = f"from {recorded}" if recorded else "without init_from"
        how += "" if is_other_source else " without with_optimizer"
        raise UserError(
            f"init_from={init_from}: the run in {directory.path} was started {how}; leave init_from and with_optimizer "
            "out to continue it, or give a new model_dir"
        )
    if init_from is None:
        return Start(recorded, record.get("with_optimizer", False))
    return Start(absolute_path(init_from), with_optimizer)


def record_start(directory: RunDirectory, start: Start, step: int) -> None:
    """Writes where the weights of a run are from; `recorded_start` reads it when the run continues."""
    record = {
        "init_from": start.init_from,
        "with_optimizer": start.with_optimizer,
        "step": step,
        "report": start.report,
    }
    write_atomically(directory.warm_start_file, json.dumps(record, indent=1).encode())


def continue_from(task: Task, path: str, tokenizer: StoredTokenizer | None) -> list[str]:
    """Gives a compiled task the weights, the optimizer and the step of a run of the same model.

    Args:
        tokenizer: that of the task's data; None: unknown.
    Returns: lines for the log.
    Raises: UserError: there is no such checkpoint, or its optimizer, its model, its vocabulary or its number of
        steps does not fit.
    """
    place = f"init_from={path}"
    if (found := find_checkpoint(path, "init_from")) is None:
        raise UserError(
            f"{place} with_optimizer: there is no such run or checkpoint of a run; only they hold an optimizer"
        )
    stable = found.run.require_same_model(task.config, place)
    if task.config.varies_with_num_steps:
        raise UserError(
            f"{place} with_optimizer: its phases, temperature or masks depend on train.num_steps, so it cannot go on "
            "with another one; leave with_optimizer out"
        )
    if tokenizer is not None:
        found.run.require_same_tokenizer(tokenizer)
    num_steps = task.config.train.num_steps
    if found.step >= num_steps:
        raise UserError(f"{place} is at step {found.step}, but train.num_steps is {num_steps}; raise train.num_steps")
    restore_strictly(tf.train.Checkpoint(task=task, optimizer=task.optimizer), found.prefix)
    lines = [f"weights, optimizer and step from step {found.step} of {found.run.path}"]
    if 0 < stable < found.step:
        milestone = checkpoint_prefix(found.run.milestones, stable)
        advice = f"; before the decay: {milestone}" if exists(f"{milestone}.index") else ""
        lines.append(f"warning: its learning rate decays from step {stable} on, and may rise again now{advice}")
    return lines


def check_data(stages: Sequence[Stage], source: str | os.PathLike[str] | None, seed: int | None) -> None:
    """Checks what a new run reads, and warns if `source` has read its held-out text or the same batches before.

    Args:
        source: where its weights are from; None: they are random.
        seed: its `train.seed`; None if it goes on from the source's step.
    Raises: UserError: held-out text of a stage may be training text of an earlier one.
    """
    data = [(stage.source, stage.hold_out) for stage in stages]
    if seen := seen_held_out_text(data):
        raise UserError(f"data_dir: {seen}")
    if source is None or (run := run_at(source)) is None:
        return
    if seen := seen_held_out_text([*run.hold_outs, *data]):
        logger.warning("warning: %s", seen)
    pairs = zip(stages, read_json(run.data_file).get("data", ()), strict=False)  # any others have other seeds
    is_same_data = any(stage.data_hash == data_hash for stage, data_hash in pairs)
    if is_same_data and seed is not None and seed == read_values(run.settings_file)[0]["train"].get("seed"):
        logger.warning(
            "warning: data and train.seed are those of %s, so the run reads the same examples in the same order, with "
            "the same masks if the batch size is the same; for others give train.seed=%d", run.path, seed + 1
        )  # fmt: skip
