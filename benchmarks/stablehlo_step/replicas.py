"""Traces the step of one of several replicas without a TPU, for `benchmarks.stablehlo_step tpu`.

`tf.distribute.TPUStrategy` cannot trace without a TPU. On a TPU it gives every core the same program, in which the
core's number and the sums over cores are XLA operations. `CompiledReplicas` traces this program.
"""

from collections.abc import Callable

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.distribute.one_device_strategy import OneDeviceExtended

from electra_tf.data.batch import PRETRAINING_BATCH
from electra_tf.ops.fused import FusedOps
from electra_tf.tasks.base import Task
from electra_tf.train.step import training_step


class CompiledReplicas(tf.distribute.Strategy):
    """A strategy of `num_replicas` cores, for tracing only."""

    def __init__(self, num_replicas: int):
        super().__init__(_Extended(self, num_replicas))

    def training_step_function(self, task: Task) -> Callable:
        """The counterpart of `static_step` for one of several replicas. It compiles but cannot run."""

        def step(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
            with _ReplicaContext(self, gen_xla_ops.xla_replica_id()):
                batch = dict(zip(PRETRAINING_BATCH.tensors, tensors, strict=True))
                return training_step(task, batch, ops=FusedOps("tpu", whole_step=True))

        return tf.function(step, jit_compile=True)


class _Extended(OneDeviceExtended):
    """Each core has its own variables and updates them in place."""

    def __init__(self, strategy: tf.distribute.Strategy, num_replicas: int):
        super().__init__(strategy, device="/device:CPU:0")
        self._num_replicas = num_replicas

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._num_replicas

    def _use_merge_call(self) -> bool:
        return False

    def _replica_ctx_update(self, var, fn, args=(), kwargs=None, group=True):
        return fn(var, *args, **(kwargs or {}))


class _ReplicaContext(tf.distribute.ReplicaContext):
    def all_reduce(self, reduce_op, value, options=None):
        assert reduce_op == tf.distribute.ReduceOp.SUM, "the training step only sums over replicas"
        everyone = [list(range(self.num_replicas_in_sync))]
        return tf.nest.map_structure(
            lambda share: gen_xla_ops.xla_all_reduce(share, everyone, reduce_op="Add", mode="CrossReplica"), value
        )
