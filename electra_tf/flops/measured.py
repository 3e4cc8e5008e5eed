"""The formulas of a training step's FLOPs beside what is counted in the step that TensorFlow traces for it.

Three counts, each by its own rules: matrix products one by one in the traced graph, TensorFlow's profiler (as the paper
used it) over the same graph, and XLA's rules over the program that it makes of it.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf.flops import hardware
from electra_tf.flops.run import RunCost, Stretch
from electra_tf.flops.traced_products import by_part, traced_products
from electra_tf.flops.xla_cost import XlaCount, count_program
from electra_tf.ops.fused import FusedOps
from electra_tf.ops.reference import COLUMNS
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.train.static_step import batch_specs, training_step_function
from electra_tf.train.step import compile_objective, training_step

Parts = Counter  # FLOPs by (part, whether of the gradient)


@dataclass(frozen=True)
class Measurement:
    """FLOPs of one training step, over all replicas.

    Attributes:
        formula: of matrix products, by part and direction, the padding of the vocabulary included.
        padding: what of that is padding.
        traced: the same as `formula`, counted.
        elementwise: of everything else, by formula.
        by_operation: what TensorFlow's profiler counts, by type of operation.
        xla: what XLA counts; None where the step is no single program (several replicas).
    """

    formula: Parts
    padding: int
    traced: Parts
    elementwise: int
    by_operation: dict[str, int]
    xla: XlaCount | None


def expected_products(stretch: Stretch) -> Parts:
    """The matrix products of a step by formula, with the padding of the vocabulary."""
    found: Parts = Counter()
    for network in stretch.passes:
        parts = hardware.pass_flops(network, stretch.seq_length, stretch.max_predictions)
        for name, flops in parts.items():
            part = "heads" if name.endswith("_head") else name
            found[part, False] += stretch.batch_size * flops.forward.products
            found[part, True] += stretch.batch_size * flops.backward.products
    for is_backward in (False, True):
        found["heads", is_backward] += _padding(stretch, is_backward)
    return +found


def _padding(stretch: Stretch, is_backward: bool) -> int:
    """FLOPs for the entries that fill the last row of the vocabulary, which lies in columns (`VocabularyLogits`)."""
    positions = {"masked": stretch.max_predictions, "all": stretch.seq_length, "first": 1}
    total = 0
    for network in stretch.passes:
        missing = -network.encoder.vocab_size % COLUMNS
        entry = 2 * network.encoder.embedding_size * missing
        for head in network.heads:
            if head.kind == "vocabulary":
                times = 2 * (network.trained and head.trained) if is_backward else 1
                total += entry * positions[head.positions] * times
    return total * stretch.batch_size


def measure(
    config: PretrainingConfig, strategy: tf.distribute.Strategy, with_xla: bool = True
) -> tuple[Measurement, ...]:
    """Traces a training step of each phase of a run, at the length and batch that it ends with, and counts.

    Args:
        strategy: one or several replicas in this process.
        with_xla: whether XLA's program is made and counted too; it takes as long as tracing.
    Raises: ValueError: if something of a step cannot be counted.
    """
    return tuple(
        _measure(step, stretch, strategy.num_replicas_in_sync, with_xla) for step, stretch in _steps(config, strategy)
    )


def xla_programs(config: PretrainingConfig) -> tuple[str, ...]:
    """What XLA is given to compile for a training step of each phase on one device, as HLO text."""
    return tuple(_program(step) for step, _ in _steps(config, tf.distribute.get_strategy()))


class _Step(NamedTuple):
    function: Any  # a tf.function
    specs: tuple[tf.TensorSpec, ...]


def _steps(config: PretrainingConfig, strategy: tf.distribute.Strategy) -> Iterator[tuple[_Step, Stretch]]:
    """The training step of each phase, not traced yet, at the length and batch that the phase ends with."""
    # A loop over micro-batches hides its body from the profiler, and its rounds from XLA; the work is the same.
    train = config.train.model_copy(update={"gradient_accumulation_steps": 1, "xla": False})
    config = config.model_copy(update={"train": train})
    ends = itertools.accumulate(phase.num_steps for phase in config.objective.phases(config))
    stretches = {stretch.last_step: stretch for stretch in RunCost(config).stretches}
    with strategy.scope():
        objective = compile_objective(build_objective(config))
    replicas = strategy.num_replicas_in_sync
    for phase, end in zip(objective.phases, ends, strict=True):
        stretch = stretches[end]
        specs = batch_specs(_as_in(config, stretch), stretch.batch_size // replicas)
        function = training_step_function(phase) if replicas == 1 else _replicated_step(phase, strategy, list(specs))
        yield _Step(function, tuple(specs.values())), stretch


def _program(step: _Step) -> str:
    inputs = [tf.zeros(spec.shape, spec.dtype) for spec in step.specs]
    return step.function.experimental_get_compiler_ir(*inputs)(stage="hlo")


def _measure(step: _Step, stretch: Stretch, num_replicas: int, with_xla: bool) -> Measurement:
    traced = step.function.get_concrete_function(*step.specs)
    xla = count_program(_program(step)) if with_xla and num_replicas == 1 else None
    example = hardware.example_flops(stretch.passes, stretch.seq_length, stretch.max_predictions)
    return Measurement(
        formula=expected_products(stretch),
        padding=_padding(stretch, False) + _padding(stretch, True),
        traced=+by_part(traced_products(traced)),
        elementwise=stretch.batch_size * example.elementwise,
        by_operation=profiled(traced.graph),
        xla=xla,
    )


def _as_in(config: PretrainingConfig, stretch: Stretch) -> PretrainingConfig:
    """The configuration with the sequence length of a part of the run."""
    data = config.data.model_copy(update={"max_seq_length": stretch.seq_length})
    return config.model_copy(update={"data": data})


def _replicated_step(objective, strategy: tf.distribute.Strategy, names: list[str]):
    """The step of every replica on its share of the batch, without programs of its own inside."""

    def on_replica(batch):
        return training_step(objective, batch, ops=FusedOps("cpu", whole_step=True))

    return tf.function(lambda *share: strategy.run(on_replica, args=(dict(zip(names, share, strict=True)),)))


def profiled(graph: tf.Graph) -> dict[str, int]:
    """Floating-point operations of a graph by TensorFlow's profiler, by type of operation, the most first.

    It knows no function that the graph calls, and no operation without a registered formula.
    """
    profiler = tf.compat.v1.profiler
    options = profiler.ProfileOptionBuilder(profiler.ProfileOptionBuilder.float_operation()).with_empty_output()
    node = profiler.profile(graph, cmd="op", options=options.order_by("float_ops").build())
    found = {}
    while node.children:  # a chain, though it looks like a tree
        (node,) = node.children
        found[node.name] = node.float_ops
    return found


def measurement_lines(found: Measurement) -> list[str]:
    """The counts side by side, in columns between bars."""
    lines = ["| matrix products | formula | traced | difference |", "|---|---|---|---|"]
    for part, is_backward in sorted(found.formula | found.traced):
        formula, traced = (parts[part, is_backward] for parts in (found.formula, found.traced))
        direction = "backward" if is_backward else "forward"
        lines.append(f"| {part}, {direction} | {formula:,} | {traced:,} | {traced - formula:,} |")
    formula, traced = found.formula.total(), found.traced.total()
    products = sum(found.by_operation.get(name, 0) for name in ("MatMul", "BatchMatMulV2", "Einsum"))
    rest = sum(found.by_operation.values()) - products
    lines += [
        f"| all | {formula:,} | {traced:,} | {traced - formula:,} |",
        f"| of that, padding of the vocabulary | {found.padding:,} | | |",
        "",
        "| | matrix products | difference from the formula | everything else | against the formula |",
        "|---|---|---|---|---|",
        f"| formula | {formula:,} | | {found.elementwise:,} | |",
        f"| TensorFlow's profiler | {products:,} | {products - formula:,} | {rest:,} | {_ratio(rest, found)} |",
    ]
    if products != formula:
        lines.append("| (it sees no products inside of loops) | | | | |")
    if found.xla is None:
        lines.append("| XLA | not counted: the step of several replicas is no single program | | | |")
    else:
        xla = found.xla
        rest = xla.elementwise + xla.reductions + xla.transcendental
        lines.append(f"| XLA | {xla.products:,} | {xla.products - formula:,} | {rest:,} | {_ratio(rest, found)} |")
        for name, count in (
            ("on integers: random bits, indices", xla.integer),
            ("running sums, as sums over windows", xla.running_sums),
            ("conversions of a type to itself", xla.idle_conversions),
        ):
            lines.append(f"| XLA, {name} | | | {count:,} | {_ratio(count, found)} |")
        if xla.uncounted:
            lines.append(f"| XLA, not counted: {', '.join(xla.uncounted)} | | | | |")
    return lines


def _ratio(count: int, found: Measurement) -> str:
    return f"{count / found.elementwise:.2f}x" if found.elementwise else "-"
