"""The one training step: `model.fit` and `run_pretraining.py` both call it.

Every loss arrives as a `Ratio`. Weights are summed over replicas first, then each replica differentiates its own share
of the global mean, then gradients are summed, clipped once and applied. So one replica and many compute the same
update, also where they hold unequal numbers of masked or real tokens.
"""

import functools

import tensorflow as tf

from electra_tf.models.context import ForwardContext
from electra_tf.objectives.base import Objective
from electra_tf.objectives.terms import Term
from electra_tf.random import RandomStream
from electra_tf.train.optimizer import apply_summed_gradients, build_optimizer


def compile_objective(objective: Objective) -> Objective:
    """Gives an objective its optimizer and its training step; afterwards `objective.fit(batches)` trains it.

    Call it under the strategy's scope, where the objective was built.
    """
    config = objective.config
    optimizer = build_optimizer(config.optimizer, config.train.num_steps)
    # Under `fit` Keras would otherwise choose to compile the whole step with XLA by itself.
    objective.compile(optimizer, training_step=training_step, jit_compile=False)
    with tf.init_scope():
        create_slots(optimizer, objective.trainable_variables)
    return objective


def create_slots(optimizer, variables: list[tf.Variable]) -> None:
    """Creates the optimizer's moments ahead of the first step, so that a checkpoint can be restored into them."""
    optimizer.iterations  # noqa: B018  the legacy optimizers create it on first access
    if hasattr(optimizer, "build"):
        optimizer.build(variables)
    else:
        optimizer._create_all_weights(variables)


def training_step(objective: Objective, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """One update from one batch. Runs in a replica context.

    Args:
        batch: this replica's share of the global batch, see `electra_tf.data.masking.mask_batch`. Each replica holds
            equally many examples; row i of replica r is example r * B + i.
    Returns: scalars float32, equal on all replicas: `loss`, each term by its name, `gradient_norm` before clipping and
        `learning_rate` of this update.
    """
    config, optimizer = objective.config, objective.optimizer
    # Read before the update: the step that this batch belongs to.
    step = tf.identity(optimizer.iterations)
    variables = objective.trainable_variables
    weights = sum_over_replicas(objective.term_weights(batch))
    differentiate = functools.partial(_loss_and_gradients, objective, variables)
    update = functools.partial(_clip_and_apply, objective, variables)
    if config.train.xla:
        differentiate, update = (tf.function(part, jit_compile=True) for part in (differentiate, update))
    shares, gradients = differentiate(batch, weights, step, _first_example(batch))
    terms = sum_over_replicas(shares)
    gradient_norm = update(sum_over_replicas(gradients))
    loss = tf.add_n([objective.loss_weights[name] * value for name, value in terms.items()])
    learning_rate = learning_rate_at(optimizer, step)
    return {"loss": loss, **terms, "gradient_norm": gradient_norm, "learning_rate": learning_rate}


def _loss_and_gradients(objective: Objective, variables, batch, weights, step, first_example):
    """This replica's share of each mean loss, and the gradients of its share of the total."""
    random = RandomStream(objective.config.train.seed, step, first_example)
    with tf.GradientTape() as tape:
        terms = objective.loss_terms(batch, ForwardContext(training=True, random=random))
        # The only division: by weights that are already sums over all replicas.
        shares = {name: tf.math.divide_no_nan(term.total, weights[name]) for name, term in terms.items()}
        total = tf.add_n([objective.loss_weights[name] * share for name, share in shares.items()])
    gradients = tape.gradient(total, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    # The word table's gradient may be slices; its norm must be that of the merged rows.
    return shares, [tf.convert_to_tensor(gradient) for gradient in gradients]


def _clip_and_apply(objective: Objective, variables, gradients) -> tf.Tensor:
    """Scales the gradients to a joint norm of at most `clip_norm`, applies them, returns their norm before."""
    norm = tf.linalg.global_norm(gradients)
    clipped, _ = tf.clip_by_global_norm(gradients, objective.config.optimizer.clip_norm, use_norm=norm)
    apply_summed_gradients(objective.optimizer, clipped, variables)
    return norm


def learning_rate_at(optimizer, step: tf.Tensor) -> tf.Tensor:
    """The learning rate that the optimizer's schedule gives for a step. Scalar float32."""
    schedule = optimizer._hyper["learning_rate"] if hasattr(optimizer, "_hyper") else optimizer._learning_rate
    return schedule(step)


def evaluation_step(objective: Objective, batch: dict[str, tf.Tensor], step: tf.Tensor) -> dict[str, Term]:
    """The terms of one evaluation batch, summed over replicas. Runs in a replica context, without dropout.

    Args:
        step: scalar int64, the number of the batch in the evaluation; it and the run's seed fix what is sampled.
    """
    random = RandomStream(objective.config.train.seed, step, _first_example(batch), name="evaluation")
    return sum_over_replicas(objective.evaluation_terms(batch, ForwardContext(training=False, random=random)))


def sum_over_replicas(tensors):
    """A nest of tensors, each summed over all replicas."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return tensors
    flat = tf.nest.flatten(tensors)
    return tf.nest.pack_sequence_as(tensors, context.all_reduce(tf.distribute.ReduceOp.SUM, flat))


def _first_example(batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """The index in the global batch of this replica's first row. Scalar int64."""
    context = tf.distribute.get_replica_context()
    replica = tf.cast(context.replica_id_in_sync_group, tf.int64)
    return replica * tf.shape(batch["input_ids"], out_type=tf.int64)[0]
