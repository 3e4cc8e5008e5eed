"""The one training step: `model.fit` and `electra-tf pretrain` both call it.

The step first sums the denominators of the losses over all replicas. Then each replica differentiates its own share of
the global means, and the gradients are summed, clipped once and applied. So one replica and many compute the same
update, also when they hold different numbers of masked or real tokens.
"""

import functools
import itertools
import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import TrainConfig
from electra_tf.data.batch import Batch
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.fused import FusedOps
from electra_tf.ops.gradients import freed_with_graph
from electra_tf.ops.reference import REFERENCE, ReferenceOps
from electra_tf.tasks.base import Evaluated, Task
from electra_tf.tasks.terms import Term
from electra_tf.train.distribution import device_kind
from electra_tf.train.optimizer import build_optimizer, require_matches

NestT = TypeVar("NestT")
Gradients = tuple[dict[str, tf.Tensor], list[tf.Tensor]]  # a share of each term; the gradients as `_stacked` has them


class _Part(NamedTuple):
    """A part of the global batch.

    Attributes:
        batch: its examples.
        denominators: of the whole global batch, so that shares and gradients add up over parts and replicas.
        step, first_example: scalars int64; the latter is the index of the part's first row in the global batch.
    """

    batch: Batch
    denominators: dict[str, tf.Tensor]
    step: tf.Tensor
    first_example: tf.Tensor

    @property
    def num_rows(self) -> int | None:
        """None if the graph does not know it."""
        return next(iter(self.batch.values())).shape[0]


# With it, TensorFlow's products on a CPU keep a copy of the first weights that they see.
_FROZEN_WEIGHTS = "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"
_fused_ops = functools.cache(FusedOps)  # programs belong to an object's methods; all trainings of a process share them


def compile_task(task: Task) -> Task:
    """Adds the optimizer and the training step to a task; afterwards `task.fit(batches)` trains it.

    Call it under the strategy's scope, where the task was built.

    Raises: UserError: if TensorFlow is told that weights never change, or as `require_matches`.
    """
    if os.environ.get(_FROZEN_WEIGHTS, "").lower() in ("1", "true"):
        raise UserError(
            f"{_FROZEN_WEIGHTS} is set in the environment: products would use the weights of the first step for ever; "
            f"it is for servers, so unset it: unset {_FROZEN_WEIGHTS}"
        )
    require_matches(task.config.optimizer, task.trainable_variables)
    first_steps = tuple(itertools.accumulate(task.phase_steps, initial=0))[:-1]
    optimizer = build_optimizer(
        task.config.optimizer,
        *task.schedule_steps,
        first_steps=first_steps,
        learning_rate_multiplier=task.learning_rate_multiplier,
    )
    for phase in dict.fromkeys((task, *task.phases())):
        # Without jit_compile=False Keras may compile the whole step with XLA under `fit`.
        phase.compile(optimizer, training_step=training_step, held_out_step=held_out_step, jit_compile=False)
    with tf.init_scope():
        # Creates the moments ahead of the first step, so that a checkpoint can be restored into them.
        optimizer.build(task.trainable_variables)
    return task


@tf.autograph.experimental.do_not_convert
def training_step(
    task: Task, batch: Batch, ops: ReferenceOps | None = None, apply_update: tf.Tensor | bool = True
) -> dict[str, tf.Tensor]:
    """One update from one batch. Runs in a replica context.

    A loss or gradient that is not finite is never applied; `train.on_nonfinite` decides whether the step counts.

    Args:
        batch: this replica's share of the global batch: tensors whose first axis is the examples. Each replica holds
            equally many; row i of replica r is example r * B + i.
        ops: the implementation of the operations; None: `training_ops`.
        apply_update: scalar bool; False changes nothing, and the step does not count.
    Returns: scalars float32, equal on all replicas: `loss`, each term by its name, `gradient_norm` before clipping,
        `learning_rate` of this update, and `nonfinite`, 1 if the update was left out.
    """
    # Read before the update: the step that this batch belongs to.
    step = tf.identity(task.optimizer.iterations)
    learning_rate = task.optimizer.schedule(step)
    ops = ops or training_ops(task.config.train)
    terms, gradients = summed_gradients(task, batch, step, ops)
    loss = total_loss(task, terms)
    update = compiled(task.xla, functools.partial(_clip_and_apply, task, ops.whole_step))
    gradient_norm, applied = update(gradients, loss, tf.convert_to_tensor(apply_update))
    metrics = {"loss": loss, **terms, "gradient_norm": gradient_norm, "learning_rate": learning_rate}
    return metrics | {"nonfinite": 1.0 - tf.cast(applied, tf.float32)}


def compiles_steps(xla: bool | None, strategy: tf.distribute.Strategy | None = None) -> bool:
    """Whether each step is one XLA program.

    Args:
        xla: `train.xla`; on a TPU each step is one.        strategy: None: the current one.
    """
    device = device_kind(strategy or tf.distribute.get_strategy())
    return device == "tpu" or (device == "gpu" if xla is None else xla)


def compiled(xla: bool | None, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors as one XLA program, if steps are programs. A TPU's strategy compiles all that it runs."""
    strategy = tf.distribute.get_strategy()
    if compiles_steps(xla, strategy) and device_kind(strategy) != "tpu":
        return tf.function(function, jit_compile=True, autograph=False)
    return function


def training_ops(train: TrainConfig) -> ReferenceOps:
    """The implementation of the operations for a training step under the current strategy."""
    device = device_kind(tf.distribute.get_strategy())
    if not train.fused_ops and device != "tpu":
        return REFERENCE
    return _fused_ops(device, whole_step=compiles_steps(train.xla))


def parts_at_once(train: TrainConfig, rows_together: int) -> int:
    """The number of parts of each batch, or micro-batch, that training on one CPU computes at the same time."""
    ops = _fused_ops("cpu", whole_step=bool(train.xla)) if train.fused_ops else REFERENCE
    return _num_parts(train, ops, train.batch_size // train.gradient_accumulation_steps, rows_together)


def _num_parts(train: TrainConfig, ops: ReferenceOps, num_rows: int | None, rows_together: int) -> int:
    if not ops.splits_batch or not num_rows or num_rows % rows_together:
        return 1
    return math.gcd(train.cpu_parts, num_rows // rows_together)


def summed_gradients(
    task: Task, batch: Batch, step: tf.Tensor, ops: ReferenceOps | None = None
) -> tuple[dict[str, tf.Tensor], list[tf.Tensor]]:
    """The mean losses of the global batch and the gradients of their weighted sum, before clipping.

    Runs in a replica context; the results are equal on all replicas.

    Args:
        batch, ops: as for `training_step`.
        step: scalar int64; with the run's seed it determines dropout and samples.
    Returns: each term by its name, scalar float32, and the dense gradients of `trained_variables`, as `unstacked` takes
        them.
    """
    train = task.config.train
    part = _Part(batch, sum_over_replicas(task.denominators(batch)), step, _first_example(batch))
    ops = ops or training_ops(train)
    is_whole = train.gradient_accumulation_steps == 1
    gradients_of = _gradients_function(task, ops, part) if is_whole else _gradients_of_micro_batches
    shares, gradients = compiled(train.xla, functools.partial(gradients_of, task, ops))(part)
    return sum_over_replicas(shares), sum_over_replicas(gradients)


def total_loss(task: Task, terms: dict[str, tf.Tensor]) -> tf.Tensor:
    """The weighted sum of the terms that are losses."""
    return tf.add_n([weight * terms[name] for name, weight in task.loss_weights.items()])


def _gradients_function(task: Task, ops: ReferenceOps, part: _Part) -> Callable[..., Gradients]:
    """The function that computes the gradients of a part: of parts at the same time, or of all examples together."""
    num_parts = _num_parts(task.config.train, ops, part.num_rows, task.config.rows_together)
    if num_parts == 1 or tf.distribute.get_replica_context().num_replicas_in_sync > 1:
        return _gradients_of_examples
    return functools.partial(_gradients_of_parts, num_parts)


def _gradients_of_examples(task: Task, ops: ReferenceOps, part: _Part) -> Gradients:
    """The part's share of each mean, and the gradients of its share of the loss."""
    random = task.random_stream(part.step, part.first_example)
    variables = [variable.value for variable in task.trained_variables]
    # Only these are watched, so that no activations are kept for a frozen network.
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        rematerialize = task.config.train.rematerialize
        context = ForwardContext(training=True, random=random, rematerialize=rematerialize, ops=ops)
        terms = task.training_terms(part.batch, context)
        # The only division: by denominators that are already sums over all replicas.
        shares = {
            name: tf.math.divide_no_nan(term.value, part.denominators[term.denominator]) for name, term in terms.items()
        }
        loss = total_loss(task, shares)
    gradients = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    # The word table's gradient may be slices; its norm must be that of the merged rows.
    return shares, _stacked(task, [tf.convert_to_tensor(gradient) for gradient in gradients])


def _places_by_shape(task: Task) -> list[list[int]]:
    """The indices of the trained variables of each shape."""
    places: dict[tuple[int, ...], list[int]] = {}
    for place, variable in enumerate(task.trained_variables):
        places.setdefault(tuple(variable.shape), []).append(place)
    return list(places.values())


def _stacked(task: Task, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    """Those of variables of one shape as one tensor, [N, ...].

    What is done to all gradients is then some 30 operations and not 400, each of which takes 0.3 ms to trace.
    """
    return [tf.stack([gradients[place] for place in places]) for places in _places_by_shape(task)]


def unstacked(task: Task, stacks: list[tf.Tensor]) -> list[tf.Tensor]:
    """The gradient of each of `trained_variables`, from those of `summed_gradients`."""
    gradients: dict[int, tf.Tensor] = {}
    for places, stack in zip(_places_by_shape(task), stacks, strict=True):
        gradients |= zip(places, tf.unstack(stack, num=len(places)), strict=True)
    return [gradients[place] for place in range(len(gradients))]


def _gradients_of_parts(num_parts: int, task: Task, ops: ReferenceOps, part: _Part) -> Gradients:
    """As `_gradients_of_examples`; one CPU computes all parts at the same time.

    On one core each, two small products take less time than one after the other on two cores. `MapDefun`, because
    TensorFlow then makes the function ready to run once, and not for each part, which takes Small a second less. It
    leaves the function's own products to slower kernels, which round bfloat16 more often: so large ones are functions
    of their own, by `ReferenceOps.shared`.
    """
    assert part.num_rows is not None
    rows = part.num_rows // num_parts
    firsts = part.first_example + rows * tf.range(num_parts, dtype=tf.int64)
    arguments = [firsts, *_in_parts(part.batch, num_parts).values()]

    @tf.function(autograph=False)
    def gradients_of(first_example: tf.Tensor, *columns: tf.Tensor) -> Gradients:
        batch = dict(zip(part.batch, columns, strict=True))
        return _gradients_of_examples(task, ops, part._replace(batch=batch, first_example=first_example))

    function = gradients_of.get_concrete_function(*(tf.TensorSpec(each.shape[1:], each.dtype) for each in arguments))
    of_parts = tf.raw_ops.MapDefun(
        arguments=arguments,
        captured_inputs=function.captured_inputs,
        output_types=[each.dtype for each in function.outputs],
        output_shapes=[each.shape for each in function.outputs],
        f=function,
        max_intra_op_parallelism=0,
    )
    axis = tf.constant(0)
    return tf.nest.pack_sequence_as(function.structured_outputs, [tf.reduce_sum(each, axis) for each in of_parts])


def _in_parts(batch: Batch, num_parts: int) -> Batch:
    """Each tensor of a batch, [B, ...], as [num_parts, B / num_parts, ...]."""
    return {
        name: tf.reshape(values, tf.concat([[num_parts, values.shape[0] // num_parts], tf.shape(values)[1:]], axis=0))
        for name, values in batch.items()
    }


def _gradients_of_micro_batches(task: Task, ops: ReferenceOps, part: _Part) -> Gradients:
    """As `_gradients_of_examples`, summed over micro-batches: one after the other, to save memory."""
    assert part.num_rows is not None
    count = task.config.train.gradient_accumulation_steps
    rows = part.num_rows // count
    micro_batches = _in_parts(part.batch, count)

    def add_micro_batch(index: tf.Tensor, sums: Gradients) -> tuple[tf.Tensor, Gradients]:
        batch = {name: values[index] for name, values in micro_batches.items()}
        first_example = part.first_example + tf.cast(index * rows, tf.int64)
        micro_batch = part._replace(batch=batch, first_example=first_example)
        gradients = _gradients_function(task, ops, micro_batch)(task, ops, micro_batch)
        return index + 1, tf.nest.map_structure(tf.add, sums, gradients)

    variables = task.trained_variables
    no_gradients = [tf.zeros([len(places), *variables[places[0]].shape]) for places in _places_by_shape(task)]
    start = tf.constant(0), ({name: tf.zeros([]) for name in task.term_names}, no_gradients)
    is_left = lambda index, _: index < count  # noqa: E731
    return tf.while_loop(is_left, add_micro_batch, start, parallel_iterations=1, maximum_iterations=count)[1]


def _clip_and_apply(
    task: Task, in_one_program: bool, gradients: list[tf.Tensor], loss: tf.Tensor, apply_update: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Scales the gradients to a joint norm of at most `clip_norm`, and applies them if all are finite.

    Returns: the norm before scaling, scalar float32, and whether the gradients were applied, scalar bool.
    """
    optimizer, config = task.optimizer, task.config
    if in_one_program:  # `global_norm` starts one or two kernels of a GPU for each gradient: 450 of Small's 2,500
        norm = tf.norm(tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], axis=0))
    else:
        norm = tf.linalg.global_norm(gradients)
    applied = tf.math.is_finite(norm) & tf.math.is_finite(loss) & apply_update
    factor = config.optimizer.clip_norm / tf.maximum(norm, config.optimizer.clip_norm)
    factor = tf.where(applied, factor, 0.0)
    # 0 without an update, even if a gradient is not finite.
    gradients = [tf.math.multiply_no_nan(stack, factor) for stack in gradients]
    optimizer.apply(unstacked(task, gradients), task.trained_variables, apply_update=applied)
    counts = apply_update if config.train.on_nonfinite == "skip" else applied
    # By its handle, as `AdamWeightDecay` updates weights: each replica its own copy.
    tf.raw_ops.AssignAddVariableOp(resource=optimizer.iterations.handle, value=tf.cast(counts, tf.int64))
    return norm, applied


@tf.autograph.experimental.do_not_convert
def evaluation_step(task: Evaluated, batch: Batch, step: tf.Tensor) -> tuple[dict[str, Term], dict[str, tf.Tensor]]:
    """One evaluation batch, without dropout. Runs in a replica context; the results are equal on all replicas.

    Args:
        step: scalar int64, the number of the batch in the evaluation; with the run's seed it determines samples.
    Returns: the terms, summed over replicas; the outputs of each example, concatenated over replicas.
    """
    terms, outputs = _without_dropout(
        task, batch, step, lambda *inputs: (task.evaluation_terms(*inputs), task.example_outputs(*inputs))
    )
    if (replicas := tf.distribute.get_replica_context()).num_replicas_in_sync > 1:
        # With several workers, a tensor to gather must be on a device; `identity` puts tensors of the input on one.
        outputs = {
            name: freed_with_graph(replicas.all_gather(tf.identity(values), axis=0)) for name, values in outputs.items()
        }
    return sum_over_replicas(terms), outputs


@tf.autograph.experimental.do_not_convert
def held_out_step(task: Task, batch: Batch, step: tf.Tensor) -> dict[str, tf.Tensor]:
    """`loss` and each term as `training_step` gives them, without dropout or update. Args: see `evaluation_step`."""
    ratios = _without_dropout(
        task, batch, step, lambda batch, context: task.as_ratios(batch, task.training_terms(batch, context))
    )
    terms = {name: tf.math.divide_no_nan(*ratio) for name, ratio in sum_over_replicas(ratios).items()}
    return {"loss": total_loss(task, terms), **terms}


def _without_dropout(
    task: Evaluated, batch: Batch, step: tf.Tensor, compute: Callable[[Batch, ForwardContext], NestT]
) -> NestT:
    """What `compute` gives for this replica's examples, with the random numbers of an evaluation's step."""

    def evaluate(batch: Batch, step: tf.Tensor, first_example: tf.Tensor) -> NestT:
        random = task.random_stream(step, first_example, name="evaluation")
        return compute(batch, ForwardContext(training=False, random=random))

    return compiled(task.xla, evaluate)(batch, step, _first_example(batch))


def sum_over_replicas(tensors: NestT) -> NestT:
    """A nest of tensors, each summed over all replicas."""
    context = tf.distribute.get_replica_context()
    flat = tf.nest.flatten(tensors)
    if context.num_replicas_in_sync == 1 or not flat:  # `all_reduce` of nothing fails
        return tensors
    return tf.nest.pack_sequence_as(tensors, freed_with_graph(context.all_reduce(tf.distribute.ReduceOp.SUM, flat)))


def _first_example(batch: Batch) -> tf.Tensor:
    """The index in the global batch of this replica's first row. Scalar int64."""
    context = tf.distribute.get_replica_context()
    replica = tf.cast(context.replica_id_in_sync_group, tf.int64)
    return replica * tf.shape(next(iter(batch.values())), out_type=tf.int64)[0]
