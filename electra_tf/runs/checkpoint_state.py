"""The state of a run as the named tensors that a TensorFlow checkpoint consists of."""

import os
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path

import absl.logging
import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

# The entry in which TensorFlow keeps how the objects hang together; all others are variables.
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


class CheckpointState:
    """What a checkpoint of some objects holds: each variable under the name that TensorFlow gives it.

    Its files are those of `tf.train.Checkpoint.write` to TensorFlow, which reads them. Own code, because TensorFlow's
    asynchronous checkpoints skip with a log line what they cannot copy, know no step between writing and publishing at
    which the files could be verified, and give up on what is not written at the end of the program.

    Args:
        checkpoint: of the objects.
        scratch: where `prepare` needs, for a moment, as much room as the state takes; None: the system's place for
            temporary files.
    """

    def __init__(self, checkpoint: tf.train.Checkpoint, scratch: Path | None):
        self._checkpoint = checkpoint
        self._scratch = scratch
        self._num_objects = 0
        self._object_graph = b""
        self._variables: dict[str, tf.Variable] = {}

    def prepare(self) -> None:
        """Learns how TensorFlow names the state, at the first call and where objects have been added since.

        The only public way is to have it write a checkpoint.

        Raises: OSError or tf.errors.OpError: if that cannot be written.
        """
        num_objects = len(tf.train.TrackableView(self._checkpoint).descendants())
        if num_objects == self._num_objects:
            return
        # It notes at every write how long it took to deal the variables out to files.
        absl.logging.set_verbosity(absl.logging.WARNING)
        if self._scratch is not None:
            self._scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="electra_tf_names_", dir=self._scratch) as directory:
            reader = tf.train.load_checkpoint(self._checkpoint.write(os.path.join(directory, "names")))
            self._object_graph = reader.get_tensor(OBJECT_GRAPH)
            self._variables = dict(stored_variables(reader, self._checkpoint))
            assert set(self._variables) == set(reader.get_variable_to_shape_map()) - {OBJECT_GRAPH}
            self._num_objects = num_objects

    def read(self) -> dict[str, tf.Tensor]:
        """The tensors by name, as they are: valid until the next update."""
        return self._tensors(tf.identity)

    def copy(self) -> dict[str, tf.Tensor]:
        """The same in host memory of their own, which no update reaches."""
        return self._tensors(lambda tensor: tf.raw_ops.DeepCopy(x=tensor))

    def _tensors(self, keep: Callable[[tf.Tensor], tf.Tensor]) -> dict[str, tf.Tensor]:
        assert self._num_objects, "not prepared"
        with tf.device("CPU:0"):
            tensors = {name: keep(variable.read_value()) for name, variable in self._variables.items()}
            return {OBJECT_GRAPH: tf.constant(self._object_graph), **tensors}


def write_tensors(prefix: str, tensors: dict[str, tf.Tensor]) -> None:
    """Writes a checkpoint: the same tensors give the same bytes. Raises: tf.errors.OpError."""
    with tf.device("CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=list(tensors.values()),
        )


def read_every_tensor(prefix: str) -> None:
    """Reads a checkpoint from end to end.

    TensorFlow compares each tensor with the checksum that it computed of it in memory, before it wrote it; a checksum
    of the files alone could not tell that a wrong byte was written.

    Raises: tf.errors.DataLossError: if something is not as it was.
    """
    try:
        reader = tf.train.load_checkpoint(prefix)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except (tf.errors.OpError, ValueError, IndexError) as error:  # the reader has no class of its own for this
        raise tf.errors.DataLossError(None, None, f"it reads back differently: {error}") from None


def stored_variables(reader, root) -> list[tuple[str, tf.Variable]]:
    """The variables of objects by the names under which a checkpoint holds them, as TensorFlow matches the two.

    Both the stored objects and `root` are graphs whose edges are attribute names; what is reached by the same path is
    the same. So one stored variable may be that of several here; where one here is reached as several stored ones, the
    shortest path counts.

    Args:
        reader: of `tf.train.load_checkpoint`.        root: a `tf.train.Checkpoint` or another trackable object.
    Returns: (name, variable) of each variable that the checkpoint holds, each variable once.
    """
    graph = TrackableObjectGraph.FromString(reader.get_tensor(OBJECT_GRAPH))
    view = tf.train.TrackableView(root)
    found: dict[int, tuple[str, tf.Variable]] = {}
    first_node: dict[int, object] = {}
    queue, seen = deque([(0, root)]), {(0, id(root))}
    while queue:
        index, here = queue.popleft()
        first_node.setdefault(index, here)
        for attribute in graph.nodes[index].attributes:
            found.setdefault(id(here), (attribute.checkpoint_key, here))
        children = view.children(here)
        for child in graph.nodes[index].children:
            pair = (child.node_id, children.get(child.local_name))
            if pair[1] is not None and (pair[0], id(pair[1])) not in seen:
                seen.add((pair[0], id(pair[1])))
                queue.append(pair)
    return [*found.values(), *_stored_slots(graph, first_node)]


def _stored_slots(graph: TrackableObjectGraph, objects: dict[int, object]) -> list[tuple[str, tf.Variable]]:
    """The moments of the older generation of Keras optimizers, which are not attributes of anything."""
    found = []
    for index, optimizer in objects.items():
        for slot in graph.nodes[index].slot_variables:
            variable = objects.get(slot.original_variable_node_id)
            if variable is not None:
                (attribute,) = graph.nodes[slot.slot_variable_node_id].attributes
                found.append((attribute.checkpoint_key, optimizer.get_slot(variable, slot.slot_name)))
    return found
