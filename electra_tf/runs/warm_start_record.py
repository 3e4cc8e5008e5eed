"""Where a run's initial weights come from, written down so that a run that continues need not be told again."""

import json
import logging
import os

from electra_tf.config.errors import UserError
from electra_tf.runs.checkpoint import Checkpoints
from electra_tf.runs.run_directory import RunDirectory, write_atomically
from electra_tf.tasks.base import Objective

logger = logging.getLogger(__name__)


def start_weights(
    objective: Objective,
    directory: RunDirectory,
    checkpoints: Checkpoints,
    is_started: bool,
    init_from: str | os.PathLike | None,
    chief: bool,
) -> None:
    """Gives a run without a checkpoint the weights that it is to start from, and makes them its checkpoint of step 0.

    The checkpoint keeps the start the same, whatever becomes of the source: a call that is killed before it has another
    one is continued from there.

    Args:
        is_started: whether the run had a checkpoint before.
        init_from: None for those of chance, or for a run that was started from somewhere and continues.
        chief: whether this process writes the record.
    Raises: UserError: if the run was started from elsewhere, or the source does not fit.
    """
    recorded = _recorded_source(directory)
    source = recorded if init_from is None else os.path.abspath(init_from)
    if is_started and source != recorded:
        start = f"was started from {recorded}" if recorded else "was started without --init_from"
        raise UserError(
            f"--init_from={init_from}: the run in {directory.path} {start}; leave the flag out to continue it, or give "
            "a new --model_dir"
        )
    if is_started or source is None:
        return
    from electra_tf.runs.warm_start import initialize_from

    lines = initialize_from(objective, source)
    for line in lines:
        logger.info("%s", line)
    if chief:
        record = json.dumps({"init_from": source, "report": lines}, indent=1)
        write_atomically(directory.warm_start_file, record.encode())
    checkpoints.save(0)


def _recorded_source(directory: RunDirectory) -> str | None:
    if not directory.warm_start_file.exists():
        return None
    return json.loads(directory.warm_start_file.read_text(encoding="utf-8"))["init_from"]
