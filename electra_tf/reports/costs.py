"""Texts about the cost of a configuration: FLOPs by network and part, the steps that a budget pays for, and hours."""

import math
import os
import statistics
from fractions import Fraction
from typing import Any

from electra_tf.config.errors import UserError
from electra_tf.data.tables import markdown_table
from electra_tf.flops import hardware, paper
from electra_tf.flops.budget import Convention, RunCost, Spent
from electra_tf.flops.devices import DEVICES, published_peak
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from electra_tf.train.run_directory import run_in


def cost_tables(config: PretrainingConfig[Any]) -> str:
    """FLOPs in both conventions, in Markdown: a table for each range of equal steps, and one for the whole run."""
    cost, num_steps = RunCost(config), config.train.num_steps
    texts, totals = [], []
    for each in cost.ranges:
        rows = []
        for network in each.passes:
            in_paper = paper.forward_parts(network, each.seq_length)
            for name, flops in hardware.pass_flops(network, each.seq_length, each.max_predictions).items():
                shown = _shown(in_paper[name]) if name in in_paper else ""
                counts = (flops.forward.products, flops.backward.products, flops.total.elementwise)
                rows.append([network.name, name, shown, *map(_shown, counts)])
        columns = ["network", "part", "paper, forward", "products, forward", "products, backward", "elementwise"]
        steps = f"steps {each.first_step + 1} to {each.last_step}"
        texts.append(
            f"{steps}: batches of {each.batch_size} x {each.seq_length}, {each.max_predictions} slots for masked "
            f"positions. FLOPs of an example:\n\n{markdown_table(columns, rows)}"
        )
        totals += [(f"one example, {steps}", each.example()), (f"one step, {steps}", each.step())]
    run = cost.spent(num_steps)
    totals.append((f"the run: {num_steps:,} steps, {run.examples:,} examples", run))
    texts.append(
        markdown_table(
            ["", "paper", "hardware", "of that, matrix products"],
            [[name, _shown(of.paper), _shown(of.hardware.total), _shown(of.hardware.products)] for name, of in totals],
        )
    )
    return "\n\n".join(texts)


def cost_values(config: PretrainingConfig[Any]) -> dict[str, Any]:
    """The totals as JSON values: of the run, and of an example and a step in each range of equal steps."""

    def values(spent: Spent) -> dict[str, float]:
        hardware_flops = {"hardware_flops": spent.hardware.total, "hardware_products": spent.hardware.products}
        slots = {"examples": spent.examples, "token_slots": spent.token_slots}
        return {"paper_flops": float(spent.paper), **hardware_flops, **slots}

    cost, num_steps = RunCost(config), config.train.num_steps
    ranges = [
        {"first_step": each.first_step, "last_step": each.last_step}
        | {"example": values(each.example()), "step": values(each.step())}
        for each in cost.ranges
    ]
    return {"num_steps": num_steps, "step_ranges": ranges, "run": values(cost.spent(num_steps))}


def budget_text(
    config: PretrainingConfig[Any], budget: float, convention: Convention, speed: float | None = None
) -> str:
    """Describes the steps that a number of FLOPs pays for, and the time that they take.

    A run whose steps all cost the same may be longer than `train.num_steps`; stages and phases are not extended.

    Args:
        speed: FLOP/s in matrix products of the model; None: describe no time.
    """
    cost, run_steps = RunCost(config), config.train.num_steps
    price = cost.of_step(1).flops(convention)
    num_steps = cost.steps_within(budget, convention)
    spent = cost.spent(num_steps)
    if num_steps == run_steps and len(cost.ranges) == 1:
        num_steps = int(Fraction(budget) // price)
        spent = cost.of_step(1) * num_steps
    lines = [
        f"{budget:.4g} FLOPs by the convention {convention!r} pay for {num_steps:,} steps of this configuration, "
        f"{num_steps / run_steps:.4g} times its train.num_steps: {spent.examples:,} examples, "
        f"{spent.token_slots:,} token slots"
    ]
    if len(cost.ranges) > 1:
        done = ", ".join(f"{each.steps_until(num_steps):,} of {each.num_steps:,}" for each in cost.ranges)
        whole = "; this is the whole run, and the rest of the budget is unused" if num_steps == run_steps else ""
        lines.append(f"steps of each stage and phase: {done}{whole}")
    lines.append(
        f"they cost {_shown(spent.paper)} FLOPs in the paper's convention, {_shown(spent.hardware.total)} on the "
        "hardware"
    )
    if speed is not None:
        seconds = spent.hardware.products / speed
        limits = ((120, "s", 1), (2 * 3600, "minutes", 60), (48 * 3600, "hours", 3600), (math.inf, "days", 86400))
        unit, length = next((unit, length) for limit, unit, length in limits if seconds < limit)
        lines.append(f"at {speed:.4g} FLOP/s in matrix products of the model: {seconds / length:.1f} {unit}")
    return "\n".join(lines)


def reported_speed(model_dir: str | os.PathLike[str]) -> float:
    """Reads a run's speed from its reports. The first report does not count, because it includes the compilation.

    Returns: the median FLOP/s in matrix products of the model.
    Raises: UserError: there is no run. StatisticsError: it has fewer than two reports.
    """
    directory = run_in(model_dir)
    cost = RunCost(load_config(directory.settings_file))
    reports = directory.reports("train")[1:]
    rates: list[float] = []
    for report in reports:
        spent = cost.of_step(report["step"])
        rates.append(report["examples_per_second"] * spent.hardware.products / spent.examples)
    return statistics.median(rates)


# Typical utilisations. NVIDIA publishes 955 and 171 sequences/s for ELECTRA-Base at 128 and 512 on one A100
# (DeepLearningExamples, TensorFlow2/LanguageModeling/ELECTRA): 24 % and 19 % of its peak.
ASSUMED_UTILIZATIONS = (0.2, 0.4)


def hours_text(
    config: PretrainingConfig[Any],
    device: str,
    device_count: int = 1,
    utilization: float | None = None,
    price_per_hour: float | None = None,
) -> str:
    """Describes the hours of a whole run: its matrix products / (published peak of all devices * utilisation).

    Reading data, evaluations, checkpoints and all-reduces are not included.

    Args:
        device: a name in `DEVICES`.
        utilization: fraction of the peak, in (0, 1]; None: the assumed ones.
        price_per_hour: of one device, in any currency.
    Raises: UserError: the utilisation is out of range, or the devices do not divide a batch.
    """
    if utilization is not None and not 0.0 < utilization <= 1.0:
        raise UserError(f"--utilization is {utilization:g}; expected a fraction of the peak, above 0 and at most 1")
    from electra_tf.tasks.pretrain.stages import plan_stages  # imports TensorFlow

    for stage in plan_stages(config):
        stage.require_divisible(device_count * DEVICES[device][0])
    precision, num_steps = config.train.precision, config.train.num_steps
    products = RunCost(config).spent(num_steps).hardware.products
    peak = device_count * published_peak(device, precision)
    rows = []
    for fraction in ASSUMED_UTILIZATIONS if utilization is None else (utilization,):
        hours = products / (fraction * peak * 3600)
        shown = [f"{number:.3g}" if number < 100 else f"{number:,.0f}" for number in (hours, hours / 24)]
        price = [f"{hours * device_count * price_per_hour:,.0f}"] if price_per_hour else []
        rows.append([f"{fraction:.3g}", *shown, *price])
    lines = [
        f"the run: {num_steps:,} steps, {products:.4g} FLOPs in matrix products; "
        f"{device_count} x {device}, {precision}: {peak:.4g} FLOP/s published\n",
        markdown_table(["utilisation", "hours", "days", *(["cost"] if price_per_hour else [])], rows),
    ]
    if utilization is None:
        lines.append(
            "\nthe utilisations are assumed, not measured; a run reports its own as model_flops_utilization: give that "
            "to --utilization"
        )
    faster = published_peak(device, "bfloat16") / published_peak(device, precision)
    if faster > 1.0:
        lines.append(f"\nbfloat16 has {faster:.2g} times the peak here: --set train.precision=bfloat16")
    return "\n".join(lines)


def _shown(number: int | Fraction) -> str:
    return f"{float(number):.4g}"
