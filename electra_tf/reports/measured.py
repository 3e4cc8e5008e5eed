"""The formula for a training step's FLOPs beside three counts of the step that TensorFlow traces for it.

Counted are the matrix products in the traced graph, one by one; the same graph by TensorFlow's profiler, which the
paper used; and XLA's program of the step by XLA's rules.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import tensorflow as tf

from electra_tf.data.batch import PRETRAINING_BATCH
from electra_tf.flops import hardware
from electra_tf.flops.budget import RunCost, StepRange
from electra_tf.flops.traced import by_part, traced_products
from electra_tf.flops.xla import KINDS, count_program
from electra_tf.ops.fused import FusedOps
from electra_tf.ops.reference import COLUMNS
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.train.static_step import training_step_function
from electra_tf.train.step import compile_task, training_step


@dataclass(frozen=True)
class Measurement:
    """FLOPs of one training step, over all replicas.

    Attributes:
        formula: of matrix products, by (part, whether of the gradient), the padding of the vocabulary included.
        padding: the part of `formula` that is padding.
        traced: the same as `formula`, counted.
        elementwise: of everything else, by formula.
        by_operation: TensorFlow's profiler, by type of operation.
        xla: XLA's count by kind; None for several replicas, whose step is not one program.
    """

    formula: Counter
    padding: int
    traced: Counter
    elementwise: int
    by_operation: dict[str, int]
    xla: Counter | None


def measure(config: PretrainingConfig, strategy: tf.distribute.Strategy) -> Iterator[Measurement]:
    """Traces the training step of each phase, for the batches that the phase ends with, and counts it.

    Args:
        strategy: one or several replicas in this process.
    Raises: ValueError: if something of a step cannot be counted.
    """
    # A loop over micro-batches hides its body from the profiler, and its iterations from XLA; the work is the same.
    train = config.train.model_copy(update={"gradient_accumulation_steps": 1, "xla": False})
    config = config.model_copy(update={"train": train})
    with strategy.scope():
        objective = compile_task(build_objective(config))
    replicas = strategy.num_replicas_in_sync
    last_ranges = {steps.phase: steps for steps in RunCost(config).ranges}
    for phase, steps in zip(objective.phases, last_ranges.values(), strict=True):
        specs = PRETRAINING_BATCH.specs(steps.batch_size // replicas, S=steps.seq_length, M=steps.max_predictions)
        step = training_step_function(phase) if replicas == 1 else _replicated_step(phase, strategy, list(specs))
        traced = step.get_concrete_function(*specs.values())
        xla = None
        if replicas == 1:
            inputs = [tf.zeros(spec.shape, spec.dtype) for spec in specs.values()]
            xla = count_program(step.experimental_get_compiler_ir(*inputs)(stage="hlo_serialized"))
        formula = expected_products(steps)
        example = hardware.example_flops(steps.passes, steps.seq_length, steps.max_predictions)
        yield Measurement(
            formula=formula,
            padding=formula.total() - steps.batch_size * example.products,
            traced=+by_part(traced_products(traced)),
            elementwise=steps.batch_size * example.elementwise,
            by_operation=profiled(traced.graph),
            xla=xla,
        )


def _replicated_step(objective, strategy: tf.distribute.Strategy, names: list[str]) -> Callable:
    """The step of every replica on its share of the batch, without compiled functions inside."""

    def on_replica(batch):
        return training_step(objective, batch, ops=FusedOps("cpu", whole_step=True))

    return tf.function(lambda *share: strategy.run(on_replica, args=(dict(zip(names, share, strict=True)),)))


def expected_products(steps: StepRange) -> Counter:
    """The matrix products of a step by formula: FLOPs by (part, whether of the gradient).

    Included is the padding of the vocabulary, whose last row of columns the step fills up (`VocabularyLogits`).
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


def profiled(graph: tf.Graph) -> dict[str, int]:
    """Floating-point operations of a graph by TensorFlow's profiler, by type of operation, the most first.

    It does not count functions that the graph calls, nor operations without a registered formula.
    """
    profiler = tf.compat.v1.profiler
    options = profiler.ProfileOptionBuilder(profiler.ProfileOptionBuilder.float_operation()).with_empty_output()
    node = profiler.profile(graph, cmd="op", options=options.order_by("float_ops").build())
    by_operation = {}
    while node.children:  # each node has one child: the type with the next smaller count
        (node,) = node.children
        by_operation[node.name] = node.float_ops
    return by_operation


def measurement_lines(measurement: Measurement) -> list[str]:
    """The counts side by side, as Markdown."""
    total = measurement.formula.total()
    profiler_products = sum(measurement.by_operation.get(name, 0) for name in ("MatMul", "BatchMatMulV2", "Einsum"))
    profiler_rest = sum(measurement.by_operation.values()) - profiler_products
    lines = [
        *_product_lines(measurement),
        "",
        "| | matrix products | difference from the formula | everything else | against the formula |",
        "|---|---|---|---|---|",
        f"| formula | {total:,} | | {measurement.elementwise:,} | |",
        f"| TensorFlow's profiler | {profiler_products:,} | {profiler_products - total:,} | "
        f"{profiler_rest:,} | {_ratio(profiler_rest, measurement)} |",
    ]
    if profiler_products != total:
        lines.append("| (it does not count products inside of loops) | | | | |")
    return lines + _xla_lines(measurement)


def _product_lines(measurement: Measurement) -> list[str]:
    formula, traced = measurement.formula, measurement.traced
    rows = {
        f"{part}, {'backward' if is_backward else 'forward'}": (formula[part, is_backward], traced[part, is_backward])
        for part, is_backward in sorted(formula | traced)
    }
    rows["all"] = (formula.total(), traced.total())
    return [
        "| matrix products | formula | traced | difference |",
        "|---|---|---|---|",
        *(f"| {name} | {first:,} | {second:,} | {second - first:,} |" for name, (first, second) in rows.items()),
        f"| of that, padding of the vocabulary | {measurement.padding:,} | | |",
    ]


def _xla_lines(measurement: Measurement) -> list[str]:
    xla = measurement.xla
    if xla is None:
        return ["| XLA | not counted: the step of several replicas is not one program | | | |"]
    rest = xla["elementwise"] + xla["reductions"] + xla["transcendental"]
    difference = xla["products"] - measurement.formula.total()
    lines = [f"| XLA | {xla['products']:,} | {difference:,} | {rest:,} | {_ratio(rest, measurement)} |"]
    for kind, name in (
        ("integer", "on integers: random bits, indices"),
        ("running_sums", "running sums, as sums over windows"),
        ("idle_conversions", "conversions of a type to itself"),
    ):
        lines.append(f"| XLA, {name} | | | {xla[kind]:,} | {_ratio(xla[kind], measurement)} |")
    uncounted = ", ".join(sorted(xla.keys() - KINDS.keys()))
    return lines + ([f"| XLA, not counted: {uncounted} | | | | |"] if uncounted else [])


def _ratio(count: int, measurement: Measurement) -> str:
    return f"{count / measurement.elementwise:.2f}x"
