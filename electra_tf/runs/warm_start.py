"""Starting a run from weights that were trained before, without the state of the optimizer that trained them."""

import os
import re
from pathlib import Path

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.convert.names import tf1_variables
from electra_tf.convert.stored_weights import StoredWeight, assign_strictly, list_briefly, require_none_missing
from electra_tf.runs.checkpoint_files import CheckpointFolder, require_whole
from electra_tf.runs.checkpoint_state import OBJECT_GRAPH, stored_variables
from electra_tf.runs.run_directory import RunDirectory
from electra_tf.tasks.base import Objective

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
# Entries beside the weights: of our checkpoints, and of the authors' code (and of TensorFlow 1's other optimizers).
_OUR_STATE = re.compile(r"(?!objective/)|objective/optimizer/")
_AUTHORS_STATE = re.compile(r"global_step$|.*/(adam_[mv]|lamb_[mv]|Adam(_1)?)$")


def initialize_from(objective: Objective, path: str | os.PathLike) -> list[str]:
    """Gives an objective the weights of a checkpoint; the optimizer, and with it the step, stay as they are.

    Every trainable variable must be there with its shape. Of a position table that is longer there, the first rows are
    taken. Variables that the objective lacks, as those of another head, are left aside.

    Args:
        objective: built, compiled or not.
        path: a run's directory, of which the newest whole checkpoint is taken; the prefix of one of its checkpoints
            or milestones; or a checkpoint of the authors' code, its prefix or its directory.
    Returns: what was loaded and what was left aside, lines for the log.
    Raises: UserError: if there is no such checkpoint, or it is damaged, or a variable is missing or of another shape.
    """
    # As a shell completes it.
    prefix = _prefix_of(Path(str(path).removesuffix(".index")))
    try:
        reader = tf.train.load_checkpoint(prefix)
        stored = set(reader.get_variable_to_shape_map())
        of_ours = OBJECT_GRAPH in stored
        if of_ours:
            weights, state = _our_weights(objective, reader, prefix), _OUR_STATE
        else:
            weights, state = _authors_weights(objective), _AUTHORS_STATE
        notes = assign_strictly(prefix, reader, weights)
    except (tf.errors.OpError, ValueError, IndexError) as error:  # IndexError: a file cut short
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"--init_from={path} is no readable TensorFlow checkpoint: {reason}; give another one"
        ) from None
    unused = stored - {weight.stored_name for weight in weights} - {OBJECT_GRAPH}
    left_aside = sorted(name for name in unused if not state.match(name))
    kind = "a run of this program" if of_ours else "the authors' code"
    lines = [
        f"weights from {prefix}, of {kind}: {len(weights)} variables; "
        f"the optimizer starts anew, {len(unused) - len(left_aside)} entries of its state and the run's are left aside"
    ]
    lines += notes
    if left_aside:
        lines.append(f"left aside: {len(left_aside)} variables, {list_briefly(map(_plain, left_aside))}")
    return lines


def _prefix_of(path: Path) -> str:
    """The checkpoint that is meant; one of ours has been verified."""
    run = RunDirectory(path)
    if run.config_file.exists():
        folder = CheckpointFolder(run.checkpoints)
        step = folder.newest_whole()
        if step is None:
            raise UserError(f"--init_from={path} is a run without a checkpoint yet; train it first or give another one")
        return folder.prefix(step)
    if not path.is_dir():
        if path.with_name(f"{path.name}.json").exists():
            require_whole(str(path))
        elif not path.with_name(f"{path.name}.index").exists():
            raise UserError(
                f"--init_from={path}: there is neither a run nor a checkpoint; expected a run's directory, or the path "
                "of a checkpoint's files without their endings"
            )
        return str(path)
    newest = tf.train.latest_checkpoint(str(path))
    if newest is None:
        raise UserError(
            f"--init_from={path} holds neither a run (config.yaml) nor TensorFlow's file `checkpoint`; give the path "
            "of a checkpoint's files without their endings"
        )
    return newest


def _authors_weights(objective: Objective) -> list[StoredWeight]:
    return [StoredWeight(name, name, variable) for name, variable in tf1_variables(objective).items()]


def _our_weights(objective: Objective, reader, prefix: str) -> list[StoredWeight]:
    """The objective's variables as the checkpoint names them. Raises: UserError: if some are not there."""
    found = stored_variables(reader, tf.train.Checkpoint(objective=objective))
    names = {id(variable): name for name, variable in found}
    wanted = objective.trainable_variables
    missing = [variable.name.removesuffix(":0") for variable in wanted if id(variable) not in names]
    require_none_missing(prefix, missing)
    return [StoredWeight(_plain(names[id(variable)]), names[id(variable)], variable) for variable in wanted]


def _plain(stored_name: str) -> str:
    return stored_name.removeprefix("objective/").removesuffix(_VALUE)
