"""The initial state of a new run: random, the weights of another model, or a run that it goes on from."""

import json
import logging
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.loader import read_values
from electra_tf.data.manifest import seen_held_out_text
from electra_tf.files import absolute_path, exists, is_hub, read_json, read_rewritten, write_atomically
from electra_tf.tasks.base import InputStage, Task
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.train.checkpoints import (
    checkpoint_prefix,
    checkpoint_prefix_of,
    find_checkpoint,
    restore_strictly,
    run_at,
)
from electra_tf.train.run_directory import RunDirectory

logger = logging.getLogger(__name__)

Initialize = Callable[[Task, str | None, StoredTokenizer], list[str]]


class Start(NamedTuple):
    """Where the initial state of a new run is from.

    Attributes:
        init_from: the source of the weights, which the run records; None: as `initialize` sets them.
        initialize: sets a new task's weights from the source (None without one), given the data's tokenizer. Returns
            lines for the log and the run's record; none if the weights stay random, as without this function.
        with_optimizer: instead of `initialize`, take the optimizer and the step from the source too; it is a run.
    """

    init_from: str | os.PathLike | None = None
    initialize: Initialize | None = None
    with_optimizer: bool = False


def recorded_start(directory: RunDirectory, is_started: bool, start: Start) -> Start:
    """With the given source as an absolute path, else the one that the run has recorded.

    Raises: UserError: if the run was started from another source.
    """
    record = read_rewritten(directory.warm_start_file)
    recorded, is_lost = record.get("init_from"), not record and exists(directory.warm_start_file)
    if is_started and not is_lost and start.with_optimizer and not record.get("with_optimizer"):
        raise UserError(
            f"--with_optimizer: the run in {directory.path} was started without it; leave the flag out to continue it, "
            "or give a new --model_dir"
        )
    if (source := start.init_from) is None:
        return start._replace(init_from=recorded, with_optimizer=record.get("with_optimizer", False))
    absolute = absolute_path(source)
    if is_started and not is_lost and absolute != recorded:
        how = f"was started from {recorded}" if recorded else "was started without --init_from"
        raise UserError(
            f"--init_from={source}: the run in {directory.path} {how}; leave the flag out to continue it, or give "
            "a new --model_dir"
        )
    return start._replace(init_from=absolute)


def begin_run(task: Task, stages: Sequence[InputStage], start: Start) -> list[str]:
    """Gives the task of a new run its initial state. Without stages the data is unknown.

    Returns: lines for the log.
    Raises: UserError: the data or the source does not fit.
    """
    begin = continue_from if start.with_optimizer else start.initialize
    report = [] if begin is None else begin(task, start.init_from, stages[0].tokenizer if stages else None)
    check_data(stages, start.init_from, None if start.with_optimizer else task.config.train.seed)
    return report


def record_start(directory: RunDirectory, start: Start, step: int, report: list[str]) -> None:
    """Writes where the initial state of a run is from; `recorded_start` reads it when the run continues."""
    record = {"init_from": start.init_from, "with_optimizer": start.with_optimizer, "step": step, "report": report}
    write_atomically(directory.warm_start_file, json.dumps(record, indent=1).encode())


def continue_from(task: Task, path: str, tokenizer: StoredTokenizer | None) -> list[str]:
    """Gives a compiled task the weights, the optimizer and the step of a run of the same model.

    Args:
        tokenizer: that of the task's data; None: unknown.
    Returns: lines for the log.
    Raises: UserError: there is no such checkpoint, or its optimizer, its model, its vocabulary or its number of
        steps does not fit.
    """
    place = f"--init_from={path}"
    if (found := find_checkpoint(path, "--init_from")) is None:
        if not is_hub(path) and not exists(path) and checkpoint_prefix_of(path) is None:
            raise UserError(f"{place}: there is no such run and no such checkpoint")
        raise UserError(f"{place} --with_optimizer: expected a run, as only its checkpoints hold an optimizer")
    found.run.require_same_model(task.config, place)
    if task.config.varies_with_num_steps:
        raise UserError(
            f"{place} --with_optimizer: its phases, temperature or masks depend on train.num_steps, so it cannot go on "
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


def check_data(stages: Sequence[InputStage], source: str | os.PathLike | None, seed: int | None) -> None:
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
    is_same_data = any(stage.data_hash == data_hash for stage, data_hash in pairs)
    if is_same_data and seed is not None and seed == read_values(run.settings_file)[0]["train"].get("seed"):
        logger.warning(
            "warning: data and train.seed are those of %s, so the run reads the same examples in the same order, with "
            "the same masks if the batch size is the same; for others give --set train.seed=%d", run.path, seed + 1
        )  # fmt: skip
