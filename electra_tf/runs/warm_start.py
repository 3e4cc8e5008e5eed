"""Starting a run from weights that were trained before, without the state of the optimizer that trained them."""

import json
import logging
import os
import re
from collections import deque

import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from electra_tf.config.errors import UserError
from electra_tf.config.files import is_remote
from electra_tf.convert.names import tf1_variables
from electra_tf.convert.stored_weights import StoredWeight, assign_strictly, list_briefly, require_none_missing
from electra_tf.runs.checkpoints import Checkpoints, damage, newest_whole
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.files import exists, read_json, write_atomically
from electra_tf.tasks.base import Task

logger = logging.getLogger(__name__)

# The entry in which TensorFlow stores how the objects of a checkpoint refer to each other.
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
# Entries beside the weights: in our checkpoints, and in those of the authors' code and other TensorFlow 1 optimizers.
_OUR_STATE = re.compile(r"(?!task/)|task/optimizer/")
_TF1_STATE = re.compile(r"global_step$|.*/(adam_[mv]|lamb_[mv]|Adam(_1)?)$")


def start_weights(
    task: Task,
    directory: RunDirectory,
    checkpoints: Checkpoints,
    is_started: bool,
    init_from: str | os.PathLike | None,
    chief: bool,
) -> None:
    """Gives a run without a checkpoint its initial weights from elsewhere, and saves them as its checkpoint of step 0.

    That checkpoint keeps the start the same whatever becomes of the source.

    Args:
        is_started: whether the run had a checkpoint before.
        init_from: None for random weights, or for a run that was started from somewhere and continues.
        chief: whether this process writes the record.
    Raises: UserError: if the run was started from elsewhere, or the source does not fit.
    """
    source = recorded = read_json(directory.warm_start_file).get("init_from")
    if init_from is not None:
        source = os.fspath(init_from) if is_remote(init_from) else os.path.abspath(init_from)
    if is_started and source != recorded:
        start = f"was started from {recorded}" if recorded else "was started without --init_from"
        raise UserError(
            f"--init_from={init_from}: the run in {directory.path} {start}; leave the flag out to continue it, or give "
            "a new --model_dir"
        )
    if is_started or source is None:
        return
    lines = initialize_from(task, source)
    logger.info("\n".join(lines))
    if chief:
        content = json.dumps({"init_from": source, "report": lines}, indent=1)
        write_atomically(directory.warm_start_file, content.encode())
    checkpoints.save(0)


def initialize_from(task: Task, path: str | os.PathLike) -> list[str]:
    """Gives a task the weights of a checkpoint; the optimizer, and with it the step, stay as they are.

    Every trainable variable must be there with its shape. Of a longer position table the first rows are taken.
    Variables that the task lacks, such as those of another head, are ignored.

    Args:
        task: built, compiled or not.
        path: a run's directory, whose newest whole checkpoint is taken; the prefix of one of its checkpoints or
            milestones; or a checkpoint of the authors' code, its prefix or its directory.
    Returns: what was loaded and what was ignored, lines for the log.
    Raises: UserError: if there is no such checkpoint, or it is damaged, or a variable is missing or of another shape.
    """
    prefix = _prefix_of(os.fspath(path).removesuffix(".index"))  # as a shell completes it
    reason = damage(prefix)
    if reason is not None:
        raise UserError(f"--init_from={path} is no readable TensorFlow checkpoint: {reason}; give another one")
    reader = tf.compat.v1.train.NewCheckpointReader(prefix)
    stored = set(reader.get_variable_to_shape_map())
    if _OBJECT_GRAPH in stored:
        weights, state, kind = _our_weights(task, reader, prefix), _OUR_STATE, "a run of this program"
    else:
        named = tf1_variables(task)
        weights = [StoredWeight(name, name, variable) for name, variable in named.items()]
        state, kind = _TF1_STATE, "the authors' code"
    notes = assign_strictly(prefix, reader, weights)
    unused = stored - {weight.stored_name for weight in weights} - {_OBJECT_GRAPH}
    ignored = sorted(name for name in unused if not state.match(name))
    lines = [
        f"weights from {prefix}, of {kind}: {len(weights)} variables; the optimizer starts anew, "
        f"{len(unused) - len(ignored)} entries of its state and the run's are ignored",
        *notes,
    ]
    if ignored:
        lines.append(f"ignored: {len(ignored)} variables, {list_briefly(map(_plain, ignored))}")
    return lines


def _prefix_of(path: str) -> str:
    """The checkpoint that a path means."""
    run = RunDirectory(path)
    if exists(run.config_file):
        if (prefix := newest_whole(run.checkpoints)) is None:
            raise UserError(f"--init_from={path} is a run without a checkpoint yet; train it first or give another one")
        return prefix
    if exists(f"{path}.index"):
        return path
    if not exists(path):
        found = "there is neither a run nor a checkpoint; expected a run's directory or"
    elif (newest := tf.train.latest_checkpoint(path)) is not None:
        return newest
    else:
        found = "it holds neither a run (config.yaml) nor TensorFlow's file `checkpoint`; give"
    raise UserError(f"--init_from={path}: {found} the path of a checkpoint's files without their endings")


def _our_weights(task: Task, reader, prefix: str) -> list[StoredWeight]:
    """The task's variables as the checkpoint names them. Raises: UserError: if some are not there."""
    names = {id(variable): name for name, variable in _stored_variables(reader, tf.train.Checkpoint(task=task))}
    wanted = task.trainable_variables
    require_none_missing(prefix, [v.name.removesuffix(":0") for v in wanted if id(v) not in names])
    return [StoredWeight(_plain(names[id(v)]), names[id(v)], v) for v in wanted]


def _stored_variables(reader, root) -> list[tuple[str, tf.Variable]]:
    """The variables of objects by the names under which a checkpoint stores them, as TensorFlow matches the two.

    Both the stored objects and `root` are graphs whose edges are attribute names; what is reached by the same path is
    the same. So one stored variable may belong to several here. Where a variable is reached by several paths, the
    shortest counts.
    """
    graph = TrackableObjectGraph.FromString(reader.get_tensor(_OBJECT_GRAPH))
    view = tf.train.TrackableView(root)
    variables: dict[int, tuple[str, tf.Variable]] = {}
    queue, seen = deque([(0, root)]), {(0, id(root))}
    while queue:
        index, here = queue.popleft()
        for attribute in graph.nodes[index].attributes:
            variables.setdefault(id(here), (attribute.checkpoint_key, here))
        children = view.children(here)
        for child in graph.nodes[index].children:
            pair = (child.node_id, children.get(child.local_name))
            if pair[1] is not None and (pair[0], id(pair[1])) not in seen:
                seen.add((pair[0], id(pair[1])))
                queue.append(pair)
    return list(variables.values())


def _plain(stored_name: str) -> str:
    return stored_name.removeprefix("task/").removesuffix(_VALUE)
