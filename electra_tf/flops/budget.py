"""The length of a run from a number of FLOPs: runs of two objectives that cost the same, as in the paper's figures.

A configuration with `train.flops_budget` leaves out `train.num_steps`, and the `num_steps` of the last of its stages;
the checked configuration has them, and reads back the same.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from electra_tf.flops.run import RunCost, known_cost

if TYPE_CHECKING:
    from electra_tf.tasks.pretrain.config import PretrainingConfig

MOST_STEPS = 2**31 - 1  # what a number of steps may be at most
# Such a budget is a slip of the pen, and no run has so many.
PAYS_FOR_TOO_MUCH = f"pays for {MOST_STEPS:,} steps or more, which is more than a run can have; give less"
_HOW = "leave it out (in a file with a base, and with --set: null) or leave out train.flops_budget"


def validate_within_budget(values: Any, validate: Callable[[Any], "PretrainingConfig"]) -> "PretrainingConfig":
    """Checks a run's settings, of which the number of steps may follow from `train.flops_budget`.

    Args:
        values: as they stand in the file.        validate: checks settings that are complete.
    Raises: ValueError: if the budget pays for no step, or for another number than is given.
    """
    train = values.get("train") if isinstance(values, dict) else None
    if not isinstance(train, dict) or train.get("flops_budget") is None:
        return validate(values)
    if train.get("num_steps") is not None:
        config = validate(values)
        affordable = steps_within_budget(config)
        if affordable != config.train.num_steps:
            raise ValueError(
                f"train.num_steps is {config.train.num_steps}, but {_budget_of(config, affordable)}; {_HOW}"
            )
        return config
    # Checked as a run longer than any: what depends on its length is checked again when that is known.
    affordable = steps_within_budget(validate(_with_steps(values, MOST_STEPS)))
    return validate(_with_steps(values, affordable))


def steps_within_budget(config: "PretrainingConfig") -> int:
    """The most steps whose cost is within `train.flops_budget`.

    Raises: ValueError: if that is none, or more than a run can have.
    """
    budget, convention = config.train.flops_budget, config.train.flops_convention

    def is_affordable(num_steps: int) -> bool:
        return RunCost(lengthened(config, num_steps)).spent(num_steps).flops(convention) <= budget

    first, last = _shortest(config), MOST_STEPS
    shortest_run = known_cost(lengthened(config, first))
    if shortest_run is None:
        raise ValueError(
            f"train.flops_budget needs to know what a step computes, and objective {config.objective.name!r} does not "
            "say so; give train.num_steps, or define `phases` in its settings"
        )
    cost = shortest_run.spent(first).flops(convention)
    if cost > budget:
        raise ValueError(
            f"train.flops_budget {budget:g} is too small: {first} steps cost {float(cost):.4g} FLOPs by the "
            f"convention {convention!r}; give more"
        )
    # Not a division: what the last step costs may depend on how many there are.
    while first < last:
        middle = (first + last + 1) // 2
        first, last = (middle, last) if is_affordable(middle) else (first, middle - 1)
    if first == MOST_STEPS:
        raise ValueError(f"train.flops_budget {budget:g} {PAYS_FOR_TOO_MUCH}")
    return first


def _shortest(config: "PretrainingConfig") -> int:
    """The fewest steps that leave one to the last stage."""
    return 1 + sum(stage.num_steps for stage in config.stages[:-1])


def lengthened(config: "PretrainingConfig", num_steps: int) -> "PretrainingConfig":
    """The run with so many steps, not checked."""
    changes: dict[str, Any] = {"train": config.train.model_copy(update={"num_steps": num_steps})}
    if config.stages:
        left = num_steps - sum(stage.num_steps for stage in config.stages[:-1])
        changes["stages"] = (*config.stages[:-1], config.stages[-1].model_copy(update={"num_steps": left}))
    return config.model_copy(update=changes)


def _with_steps(values: dict, num_steps: int) -> dict:
    """The settings with so many steps, of which the last stage gets what the others leave.

    Raises: ValueError: if the last stage's are given.
    """
    values = {**values, "train": {**values["train"], "num_steps": num_steps}}
    stages = values.get("stages")
    if not stages or not all(isinstance(stage, dict) for stage in stages):
        return values
    *others, last = stages
    if last.get("num_steps") is not None:
        raise ValueError(
            f"stages.{len(others)}.num_steps is {last['num_steps']}, but with train.flops_budget the last stage takes "
            f"what the others leave; {_HOW}"
        )
    counts = [stage.get("num_steps") for stage in others]
    if not all(isinstance(count, int) for count in counts):
        return values
    return {**values, "stages": [*others, {**last, "num_steps": num_steps - sum(counts)}]}


def _budget_of(config: "PretrainingConfig", affordable: int) -> str:
    train = config.train
    return f"train.flops_budget {train.flops_budget:g} ({train.flops_convention}) pays for {affordable}"
