"""What a configuration costs, as text: by network and part, for an example, a step and the whole run. No TensorFlow."""

import math
from fractions import Fraction

from electra_tf.config.errors import UserError
from electra_tf.flops import hardware, paper
from electra_tf.flops.budget import MOST_STEPS, PAYS_FOR_TOO_MUCH
from electra_tf.flops.paper import PaperNetwork
from electra_tf.flops.run import Convention, RunCost, Spent, Stretch, known_cost
from electra_tf.tasks.pretrain.config import PretrainingConfig


def cost_of(config: PretrainingConfig) -> RunCost:
    """Raises: UserError: if the objective does not describe its steps."""
    cost = known_cost(config)
    if cost is None:
        raise UserError(
            f"objective {config.objective.name!r} does not say what a step computes; define `phases` in its settings, "
            "see electra_tf/config/objectives/base.py"
        )
    return cost


def cost_lines(config: PretrainingConfig) -> list[str]:
    """Tables of FLOPs in both conventions, with columns between bars."""
    cost = cost_of(config)
    lines = []
    for stretch in cost.stretches:
        lines += _stretch_lines(stretch)
    lines += ["| | paper | hardware | of that, matrix products |", "|---|---|---|---|"]
    for stretch in cost.stretches:
        steps = f"steps {stretch.first_step + 1} to {stretch.last_step}"
        lines += [_total_line(f"an example, {steps}", stretch.example()), _total_line("a step of them", stretch.step())]
    whole = cost.spent(config.train.num_steps)
    lines.append(_total_line(f"the run: {config.train.num_steps:,} steps, {whole.examples:,} examples", whole))
    return lines


def cost_values(config: PretrainingConfig) -> dict:
    """The totals, for programs."""
    cost, num_steps = cost_of(config), config.train.num_steps

    def values(spent: Spent) -> dict[str, float]:
        return {
            "paper_flops": float(spent.paper),
            "hardware_flops": spent.hardware.total,
            "hardware_products": spent.hardware.products,
            "examples": spent.examples,
            "token_slots": spent.token_slots,
        }

    stretches = [
        {
            "first_step": stretch.first_step,
            "last_step": stretch.last_step,
            "example": values(stretch.example()),
            "step": values(stretch.step()),
        }
        for stretch in cost.stretches
    ]
    return {"num_steps": num_steps, "stretches": stretches, "run": values(cost.spent(num_steps))}


def finetuning_lines(config: PretrainingConfig) -> list[str]:
    """What an example of `data.max_seq_length` tokens takes when the encoder that is kept is used, in columns."""
    encoder, seq_length = config.encoder, config.data.max_seq_length
    tasks = {
        "classification, 2 classes, on [CLS]": hardware.classifier_heads(2),
        "question answering, the paper's module": hardware.span_heads(encoder),
    }
    inference = float(PaperNetwork.of(encoder, seq_length).inference())
    lines = [
        f"an example of {seq_length} tokens, on the hardware; the paper, which takes the discriminator's head for "
        f"that of any task, counts {inference:.4g} FLOPs in inference",
        "| task | inference | of it matrix products | fine-tuning, forward and backward | of it matrix products |",
        "|---|---|---|---|---|",
    ]
    for task, heads in tasks.items():
        found = [count(encoder, heads, seq_length) for count in (hardware.inference_flops, hardware.finetuning_flops)]
        lines.append(f"| {task} | {' | '.join(f'{each.total:.4g} | {each.products:.4g}' for each in found)} |")
    return lines


def budget_lines(
    config: PretrainingConfig,
    budget: float,
    convention: Convention,
    speed: float | None = None,
    measured_in: RunCost | None = None,
) -> list[str]:
    """How many steps a number of FLOPs pays for, and how long they take.

    More steps than the run has are counted only where all are alike: a run of several stages or phases has an end.

    Args:
        speed: FLOP/s in matrix products of the model; None: no time is given.
        measured_in: the run whose speed it is; None: this one.
    Raises: UserError: if it pays for no step, or for more than a run can have.
    """
    cost = cost_of(config)
    num_steps, spent = _affordable(cost, config.train.num_steps, budget, convention)
    share = num_steps / config.train.num_steps
    lines = [
        f"{budget:.4g} FLOPs by the convention {convention!r} pay for {num_steps:,} steps of this configuration, "
        f"{share:.4g} times its train.num_steps: {spent.examples:,} examples, {spent.token_slots:,} token slots",
        *_stretches_within(cost, num_steps),
        f"they cost {float(spent.paper):.4g} FLOPs as the paper counts, {spent.hardware.total:.4g} on the hardware",
    ]
    if speed is not None:
        lines.append(
            f"at {speed:.4g} FLOP/s in matrix products of the model: {_duration(spent.hardware.products / speed)}"
        )
    if measured_in is not None and _products_of_examples(measured_in) != _products_of_examples(cost):
        lines.append(
            "the speed is that of another configuration, whose examples take other FLOPs; --measure_speed gives that "
            "of this one"
        )
    return lines


def _affordable(cost: RunCost, run_steps: int, budget: float, convention: Convention) -> tuple[int, Spent]:
    """The steps that a number of FLOPs pays for, and what they take."""
    if not budget > 0.0:
        raise UserError(f"--budget is {budget:g}; expected a positive number")
    if math.isinf(budget):
        raise UserError(f"--budget inf {PAYS_FOR_TOO_MUCH}")
    num_steps = cost.steps_within(budget, convention)
    step = cost.of_step(1)
    if num_steps == 0:
        raise UserError(
            f"--budget {budget:g} is too small: a step costs {float(step.flops(convention)):.4g} FLOPs by the "
            f"convention {convention!r}; give more"
        )
    if num_steps < run_steps or len(cost.stretches) > 1:
        return num_steps, cost.spent(num_steps)
    num_steps = int(Fraction(budget) // step.flops(convention))
    if num_steps >= MOST_STEPS:
        raise UserError(f"--budget {budget:g} {PAYS_FOR_TOO_MUCH}")
    return num_steps, step * num_steps


def _stretches_within(cost: RunCost, num_steps: int) -> list[str]:
    """How the steps are divided between the parts of a run that has several."""
    if len(cost.stretches) == 1:
        return []
    parts = []
    for stretch in cost.stretches:
        done = max(0, min(num_steps, stretch.last_step) - stretch.first_step)
        parts.append(f"{done:,} of {stretch.last_step - stretch.first_step:,}")
    whole = "; the whole run, what is left pays for no more" if num_steps == cost.stretches[-1].last_step else ""
    return [f"of the steps of its parts, one after the other: {', '.join(parts)}{whole}"]


def _products_of_examples(cost: RunCost) -> set[int]:
    return {stretch.example().hardware.products for stretch in cost.stretches}


def _stretch_lines(stretch: Stretch) -> list[str]:
    lines = [
        f"steps {stretch.first_step + 1} to {stretch.last_step}: batches of {stretch.batch_size} x "
        f"{stretch.seq_length}, {stretch.max_predictions} slots for masked positions. FLOPs of an example:",
        "| network | part | paper, forward | products, forward | products, backward | elementwise |",
        "|---|---|---|---|---|---|",
    ]
    for network in stretch.passes:
        counted = paper.forward_parts(network, stretch.seq_length)
        parts = hardware.pass_flops(network, stretch.seq_length, stretch.max_predictions)
        for name, flops in parts.items():
            lines.append(
                f"| {network.name} | {name} | {_shown(counted.get(name))} | {flops.forward.products:.4g} | "
                f"{flops.backward.products:.4g} | {flops.total.elementwise:.4g} |"
            )
    return [*lines, ""]


def _total_line(what: str, spent: Spent) -> str:
    flops = spent.hardware
    return f"| {what} | {float(spent.paper):.4g} | {flops.total:.4g} | {flops.products:.4g} |"


def _shown(number: Fraction | None) -> str:
    return "" if number is None else f"{float(number):.4g}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.1f} minutes"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} hours"
    return f"{seconds / 86400:.1f} days"
