import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import tensorflow as tf

from electra_tf.data.batch import PRETRAINING_BATCH
from electra_tf.flops import hardware
from electra_tf.flops.budget import RunCost, StepRange
from electra_tf.ops.fused import FusedOps
from electra_tf.ops.reference import COLUMNS
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.train.step import compile_task, training_step
from tests.flops.traced import by_part, traced_products


@dataclass(frozen=True)
class StepProducts:
    """FLOPs of the matrix products of one training step, over all replicas."""

    formula: Counter  # by (part of the network, True for the backward pass), with padding of the vocabulary
    traced: Counter  # the same, counted in the traced step


def count_steps(config: PretrainingConfig, strategy: tf.distribute.Strategy) -> Iterator[StepProducts]:
    """Traces a training step of each phase and counts its products, with batches of the phase's last input stage."""
    config = config.model_copy(update={"train": config.train.model_copy(update={"xla": False})})
    with strategy.scope():
        objective = compile_task(build_objective(config))
    # Neither those of a step that is not compiled, which compute sums as matrix products, nor those of accelerators,
    # which compute the attention's scores twice.
    ops, replicas = FusedOps("cpu", whole_step=True), strategy.num_replicas_in_sync
    last_ranges = {steps.phase: steps for steps in RunCost(config).ranges}
    for phase, steps in zip(objective.phases(), last_ranges.values(), strict=True):
        specs = PRETRAINING_BATCH.specs(steps.batch_size // replicas, S=steps.seq_length, M=steps.max_predictions)
        on_replica = functools.partial(training_step, phase, ops=ops)
        step = tf.function(lambda batch, on_replica=on_replica: strategy.run(on_replica, args=(batch,)))
        traced = +by_part(traced_products(step.get_concrete_function(specs)))
        yield StepProducts(expected_products(steps), traced)


def expected_products(steps: StepRange) -> Counter:
    """FLOPs of the matrix products of a step by formula, by (part, True for the backward pass).

    The step pads the vocabulary to whole rows of `COLUMNS` (see `VocabularyLogits`); this padding is included.
    """
    products: Counter = Counter()
    for network in steps.passes:
        padded_size = network.encoder.vocab_size + -network.encoder.vocab_size % COLUMNS
        padded = replace(network, encoder=network.encoder.model_copy(update={"vocab_size": padded_size}))
        for name, flops in hardware.pass_flops(padded, steps.seq_length, steps.max_predictions).items():
            part = "heads" if name.endswith("_head") else name
            products[part, False] += steps.batch_size * flops.forward.products
            products[part, True] += steps.batch_size * flops.backward.products
    return +products
