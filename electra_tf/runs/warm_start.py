"""Starting a run from weights that were trained before, without the state of the optimizer that trained them."""

import os
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from electra_tf.config.errors import UserError
from electra_tf.config.loader import read_values
from electra_tf.convert.hugging_face_reader import read_hugging_face
from electra_tf.convert.names import tf1_variables
from electra_tf.convert.stored_weights import (
    ArrayReader,
    StoredWeight,
    assign_strictly,
    list_briefly,
    require_none_missing,
)
from electra_tf.convert.tf1 import TF1_STATE
from electra_tf.models.embeddings import DisentangledEmbeddings
from electra_tf.runs.agreement import (
    Known,
    known_beside,
    known_of_folder,
    known_of_run,
    known_of_task,
    require_agreement,
)
from electra_tf.runs.source import find_source
from electra_tf.tasks.base import Task

# The entry in which TensorFlow stores how the objects of a checkpoint refer to each other.
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
# Entries beside the weights in our checkpoints.
_OUR_STATE = re.compile(r"(?!task/)|task/optimizer/")


def initialize_from(
    task: Task,
    path: str | os.PathLike,
    fresh_generator: bool = False,
    vocab_file: str | None = None,
    text: Mapping[str, bool] = MappingProxyType({}),
) -> list[str]:
    """Gives a task the weights of a checkpoint; the optimizer, and with it the step, stay as they are.

    Every trainable variable must be there with its shape. Of a longer position table the first rows are taken.
    Variables that the task lacks, such as those of another head, are ignored.

    Args:
        task: built, compiled or not.
        path: see `electra_tf.runs.source.find_source`.
        fresh_generator: what is the generator's alone keeps its initial values.
        vocab_file, text: of the task's data, the second its `lower_case` and `strip_accents`; compared with the
            source's, where they are known. So are numbers of heads and `layer_norm_epsilon`.
    Returns: what was loaded and what was ignored, lines for the log.
    Raises: UserError: if there is no such checkpoint, or it is damaged, or a variable is missing or of another shape.
    """
    source = _open(task, path)
    ours = known_of_task(task, vocab_file, text, fresh_generator)
    require_agreement(f"--init_from={os.fspath(path)}", source.known, ours)
    missing, fresh = source.missing, []
    if fresh_generator:
        fresh = [name for name in [*(weight.name for weight in source.weights), *missing] if _is_generators(name)]
        missing = [name for name in missing if not _is_generators(name)]
        _require_separable(task, fresh)
    require_none_missing(source.name, missing)
    weights = [weight for weight in source.weights if weight.name not in fresh]
    notes = assign_strictly(source.name, source.reader, weights)
    unused = set(source.reader.get_variable_to_shape_map()) - {weight.stored_name for weight in weights}
    unused -= {_OBJECT_GRAPH}
    ignored = sorted(name for name in unused if not source.state.match(name))
    lines = [
        f"weights from {source.name}, of {source.kind}: {len(weights)} variables; the optimizer starts anew, "
        f"{len(unused) - len(ignored)} entries of its state and the run's are ignored",
        *source.notes,
        *notes,
    ]
    if fresh:
        lines.append(
            f"a fresh generator: {len(fresh)} variables stay random (--fresh_generator). Until it has learnt, its "
            "samples are easy to detect, so the first steps teach the discriminator little; see docs/interop.md"
        )
    if ignored:
        lines.append(f"ignored: {len(ignored)} variables, {list_briefly(map(_plain, ignored))}")
    return lines


@dataclass(frozen=True)
class _Source:
    """Where weights come from.

    Attributes:
        name, kind: for messages.        state: of a name beside the weights, that is ignored without a word.
        weights: of the task, that are there.        missing: of the task, that are not.
        known: beside the weights.        notes: lines for the log.
    """

    name: str
    kind: str
    reader: Any
    weights: list[StoredWeight]
    missing: list[str]
    state: re.Pattern
    known: Known
    notes: Sequence[str] = ()


def _open(task: Task, path: str | os.PathLike) -> _Source:
    found = find_source(path, "--init_from")
    if (prefix := found.prefix) is None:
        return _hugging_face(task, found.path)
    if found.run is not None and found.run.is_finetuned:
        _refuse_finetuned(path, read_values(found.run.config_file)[0].get("init_from"))
    known = known_beside(prefix) if found.run is None else known_of_run(found.run)
    reader = tf.compat.v1.train.NewCheckpointReader(prefix)
    if reader.has_tensor(_OBJECT_GRAPH):
        return _Source(prefix, "a run of this program", reader, *_our_weights(task, reader), _OUR_STATE, known)
    return _Source(prefix, "the authors' code", reader, *_authors_weights(task, reader), TF1_STATE, known)


def _refuse_finetuned(path: str | os.PathLike, origin: str | None) -> NoReturn:
    remedy = f"what it was fine-tuned from, {origin}" if origin else "a pre-trained one"
    raise UserError(f"--init_from={os.fspath(path)} is a fine-tuned model, without pre-training's heads; give {remedy}")


def _hugging_face(task: Task, path: str) -> _Source:
    model, notes = read_hugging_face(path)
    if model.finetuned is not None:
        _refuse_finetuned(path, None)
    model.require_sound()
    reader, known = ArrayReader(model.weights), known_of_folder(model)
    weights, missing = _authors_weights(task, reader)
    if model.has_masked_lm_head and any(name.startswith("discriminator_predictions/") for name in missing):
        raise UserError(
            f"--init_from={path} is a masked language model alone, such as ELECTRA's generator, and this objective "
            "trains a discriminator; give a directory with discriminator/ and generator/"
        )
    return _Source(path, "Hugging Face's layout", reader, weights, missing, TF1_STATE, known, notes)


def _require_separable(task: Task, fresh: Sequence[str]) -> None:
    """Raises: UserError: if a task has no generator to start afresh, or its discriminator depends on the generator."""
    if not fresh:
        raise UserError("--fresh_generator: this objective trains no generator; leave it out")
    if isinstance(task.encoder.embeddings, DisentangledEmbeddings):
        raise UserError(
            "--fresh_generator: with objective.tying gradient_disentangled the discriminator's embeddings are "
            "differences to the generator's; set objective.tying to embeddings or none"
        )


def _is_generators(name: str) -> bool:
    return name.startswith("generator")


def _authors_weights(task: Task, reader) -> tuple[list[StoredWeight], list[str]]:
    """The task's variables by the authors' names: those that are stored, and the names of the others."""
    stored, named = reader.get_variable_to_shape_map(), tf1_variables(task)
    weights = [StoredWeight(name, name, variable) for name, variable in named.items() if name in stored]
    return weights, [name for name in named if name not in stored]


def _our_weights(task: Task, reader) -> tuple[list[StoredWeight], list[str]]:
    """The task's variables as the checkpoint names them, and the names of those that are not there."""
    names = {id(variable): name for name, variable in _stored_variables(reader, tf.train.Checkpoint(task=task))}
    wanted = task.trainable_variables
    weights = [StoredWeight(_plain(names[id(v)]), names[id(v)], v) for v in wanted if id(v) in names]
    return weights, [v.name.removesuffix(":0") for v in wanted if id(v) not in names]


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
