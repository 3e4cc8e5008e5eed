"""What a configuration costs, as text: by network and part, for an example, a step, the run, and within a budget."""

import math
from fractions import Fraction

from electra_tf.config.errors import UserError
from electra_tf.flops import hardware, paper
from electra_tf.flops.budget import MAX_STEPS, PAYS_FOR_TOO_MUCH, Convention, RunCost, Spent, StepRange, known_cost
from electra_tf.flops.passes import NetworkPass
from electra_tf.tasks.pretrain.config import PretrainingConfig


def cost_of(config: PretrainingConfig) -> RunCost:
    """Raises: UserError: if the objective does not describe its steps."""
    cost = known_cost(config)
    if cost is None:
        raise UserError(
            f"objective {config.objective.name!r} does not say what a step computes; define `phases` in its settings, "
            "see docs/objectives.md"
        )
    return cost


def cost_lines(config: PretrainingConfig) -> list[str]:
    """Tables of FLOPs in both conventions, as Markdown."""
    cost, num_steps = cost_of(config), config.train.num_steps
    rows = []
    for each in cost.ranges:
        steps = f"steps {each.first_step + 1} to {each.last_step}"
        rows += [(f"an example, {steps}", each.example()), ("a step of them", each.step())]
    run = cost.spent(num_steps)
    rows.append((f"the run: {num_steps:,} steps, {run.examples:,} examples", run))
    return [
        *(line for each in cost.ranges for line in _range_lines(each)),
        "| | paper | hardware | of that, matrix products |",
        "|---|---|---|---|",
        *(_row(name, _shown(spent.paper), *_totals(spent.hardware)) for name, spent in rows),
    ]


def _range_lines(steps: StepRange) -> list[str]:
    lines = [
        f"steps {steps.first_step + 1} to {steps.last_step}: batches of {steps.batch_size} x {steps.seq_length}, "
        f"{steps.max_predictions} slots for masked positions. FLOPs of an example:",
        "| network | part | paper, forward | products, forward | products, backward | elementwise |",
        "|---|---|---|---|---|---|",
    ]
    for network in steps.passes:
        in_paper = paper.forward_parts(network, steps.seq_length)
        for name, flops in hardware.pass_flops(network, steps.seq_length, steps.max_predictions).items():
            shown = _shown(in_paper[name]) if name in in_paper else ""
            counts = (flops.forward.products, flops.backward.products, flops.total.elementwise)
            lines.append(_row(network.name, name, shown, *map(_shown, counts)))
    return [*lines, ""]


def cost_values(config: PretrainingConfig) -> dict:
    """The totals, for `--json`."""
    cost, num_steps = cost_of(config), config.train.num_steps
    ranges = [
        {"first_step": each.first_step, "last_step": each.last_step}
        | {"example": _spent_values(each.example()), "step": _spent_values(each.step())}
        for each in cost.ranges
    ]
    return {"num_steps": num_steps, "stretches": ranges, "run": _spent_values(cost.spent(num_steps))}


def _spent_values(spent: Spent) -> dict[str, float]:
    return {
        "paper_flops": float(spent.paper),
        "hardware_flops": spent.hardware.total,
        "hardware_products": spent.hardware.products,
        "examples": spent.examples,
        "token_slots": spent.token_slots,
    }


def finetuning_lines(config: PretrainingConfig) -> list[str]:
    """The cost of an example of `data.max_seq_length` tokens when the encoder is fine-tuned or used."""
    encoder, seq_length = config.encoder, config.data.max_seq_length
    inference = paper.inference_flops(encoder, seq_length)
    tasks = {
        "classification, 2 classes, on [CLS]": hardware.classifier_heads(2),
        "question answering, the paper's module": hardware.span_heads(encoder),
    }
    lines = [
        f"an example of {seq_length} tokens, in the hardware convention; the paper, which counts the discriminator's "
        f"head for every task, counts {_shown(inference)} FLOPs in inference",
        "| task | inference | of it matrix products | fine-tuning, forward and backward | of it matrix products |",
        "|---|---|---|---|---|",
    ]
    for task, heads in tasks.items():
        passes = [NetworkPass("encoder", encoder, heads, trained) for trained in (False, True)]
        counts = [hardware.example_flops([each], seq_length, max_predictions=0) for each in passes]
        lines.append(_row(task, *(cell for flops in counts for cell in _totals(flops))))
    return lines


def budget_lines(
    config: PretrainingConfig,
    budget: float,
    convention: Convention,
    speed: float | None = None,
    measured_in: RunCost | None = None,
) -> list[str]:
    """How many steps a number of FLOPs pays for, and how long they take.

    More steps than the run has are counted only if all cost the same: several stages or phases have an end.

    Args:
        speed: FLOP/s in matrix products of the model; None: no time is given.
        measured_in: the run whose speed it is; None: this one.
    Raises: UserError: if it pays for no step, or for more than a run can have.
    """
    cost = cost_of(config)
    num_steps, spent = _affordable(cost, config.train.num_steps, budget, convention)
    lines = [
        f"{budget:.4g} FLOPs by the convention {convention!r} pay for {num_steps:,} steps of this configuration, "
        f"{num_steps / config.train.num_steps:.4g} times its train.num_steps: {spent.examples:,} examples, "
        f"{spent.token_slots:,} token slots"
    ]
    if len(cost.ranges) > 1:
        done = ", ".join(f"{each.steps_until(num_steps):,} of {each.num_steps:,}" for each in cost.ranges)
        whole = "; the whole run, what is left pays for no more" if num_steps == config.train.num_steps else ""
        lines.append(f"of the steps of its stages and phases, in their order: {done}{whole}")
    lines.append(
        f"they cost {_shown(spent.paper)} FLOPs as the paper counts, {spent.hardware.total:.4g} on the hardware"
    )
    if speed is not None:
        seconds = spent.hardware.products / speed
        lines.append(f"at {speed:.4g} FLOP/s in matrix products of the model: {_duration(seconds)}")
    if measured_in is not None and _example_products(measured_in) != _example_products(cost):
        lines.append(
            "the speed is that of another configuration, whose examples cost other FLOPs; --measure_speed measures "
            "this one"
        )
    return lines


def _affordable(cost: RunCost, run_steps: int, budget: float, convention: Convention) -> tuple[int, Spent]:
    """The steps that a number of FLOPs pays for, and their cost."""
    if not budget > 0.0:
        raise UserError(f"--budget is {budget:g}; expected a positive number")
    if math.isinf(budget):
        raise UserError(f"--budget inf {PAYS_FOR_TOO_MUCH}")
    num_steps, step = cost.steps_within(budget, convention), cost.of_step(1)
    if num_steps == 0:
        raise UserError(
            f"--budget {budget:g} is too small: a step costs {_shown(step.flops(convention))} FLOPs by the convention "
            f"{convention!r}; give more"
        )
    if num_steps < run_steps or len(cost.ranges) > 1:
        return num_steps, cost.spent(num_steps)
    num_steps = int(Fraction(budget) // step.flops(convention))
    if num_steps >= MAX_STEPS:
        raise UserError(f"--budget {budget:g} {PAYS_FOR_TOO_MUCH}")
    return num_steps, step * num_steps


def _example_products(cost: RunCost) -> set[int]:
    return {each.example().hardware.products for each in cost.ranges}


def _totals(flops: hardware.Flops) -> tuple[str, str]:
    return _shown(flops.total), _shown(flops.products)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(number: int | Fraction) -> str:
    return f"{float(number):.4g}"


def _duration(seconds: float) -> str:
    for limit, unit, length in ((120, "s", 1), (2 * 3600, "minutes", 60), (48 * 3600, "hours", 3600)):
        if seconds < limit:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds / 86400:.1f} days"
