"""What the steps of a run have cost, by formula: an exact function of the configuration and the step.

So nothing of it needs storing: a run that continues, and whoever reads its directory, finds the same numbers again.
"""

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from electra_tf.flops import hardware, paper
from electra_tf.flops.hardware import NO_FLOPS, Flops
from electra_tf.flops.passes import NetworkPass

if TYPE_CHECKING:
    from electra_tf.tasks.pretrain.config import PretrainingConfig

Convention = Literal["paper", "hardware"]


@dataclass(frozen=True)
class Spent:
    """What a number of steps took, over all replicas. Evaluations are not part of it.

    Attributes:
        paper: FLOPs as the paper counts them.        hardware: FLOPs that the devices had to compute.
        examples: sequences read.        token_slots: places of these sequences, padding included.
    """

    paper: Fraction
    hardware: Flops
    examples: int
    token_slots: int

    def flops(self, convention: Convention) -> Fraction:
        """Of one of the two conventions."""
        return self.paper if convention == "paper" else Fraction(self.hardware.total)

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.paper + other.paper,
            self.hardware + other.hardware,
            self.examples + other.examples,
            self.token_slots + other.token_slots,
        )

    def __mul__(self, count: int) -> "Spent":
        return Spent(self.paper * count, self.hardware * count, self.examples * count, self.token_slots * count)


NOTHING = Spent(Fraction(0), NO_FLOPS, 0, 0)


@dataclass(frozen=True)
class Stretch:
    """Steps that cost the same: of one phase of the objective, and one stage of the input.

    Attributes:
        first_step, last_step: the steps after the first up to and with the last.
        passes: what each example goes through.
        batch_size: examples of a step, over all replicas.
        seq_length, max_predictions: S and M.
    """

    first_step: int
    last_step: int
    passes: tuple[NetworkPass, ...]
    batch_size: int
    seq_length: int
    max_predictions: int

    def example(self) -> Spent:
        """Of one example."""
        return Spent(
            paper.example_flops(self.passes, self.seq_length),
            hardware.example_flops(self.passes, self.seq_length, self.max_predictions),
            examples=1,
            token_slots=self.seq_length,
        )

    def step(self) -> Spent:
        """Of one step."""
        return self.example() * self.batch_size


class RunCost:
    """The cost of a run up to any of its steps.

    Raises: NotImplementedError: if the objective, one from outside, does not describe its steps.
    """

    def __init__(self, config: "PretrainingConfig"):
        self.stretches = tuple(_stretches(config))
        self._steps = tuple(stretch.step() for stretch in self.stretches)

    def spent(self, step: int) -> Spent:
        """What the first `step` steps took."""
        total = NOTHING
        for stretch, cost in zip(self.stretches, self._steps, strict=True):
            total += cost * max(0, min(step, stretch.last_step) - stretch.first_step)
        return total

    def of_step(self, step: int) -> Spent:
        """What one step takes: the one that leads to `step`, counted from 1."""
        index = bisect.bisect_left([stretch.last_step for stretch in self.stretches], step)
        return self._steps[min(index, len(self._steps) - 1)]

    def steps_within(self, budget: float, convention: Convention) -> int:
        """How many of the run's steps a number of FLOPs pays for."""
        left, steps = Fraction(budget), 0
        for stretch, cost in zip(self.stretches, self._steps, strict=True):
            length = stretch.last_step - stretch.first_step
            affordable = left // cost.flops(convention)
            if affordable < length:
                return steps + int(affordable)
            left -= length * cost.flops(convention)
            steps += length
        return steps


def known_cost(config: "PretrainingConfig") -> RunCost | None:
    """The cost of a run; None for an objective, one from outside, that does not describe its steps."""
    try:
        return RunCost(config)
    except NotImplementedError:
        return None


def _stretches(config: "PretrainingConfig") -> Iterator[Stretch]:
    """The run cut at the ends of its phases and of its stages."""
    phases = config.objective.phases(config)
    stages = [(stage.num_steps, stage.max_seq_length, stage.batch_size) for stage in config.stages]
    stages = stages or [(config.train.num_steps, config.data.max_seq_length, config.train.batch_size)]
    ends_of_phases, ends_of_stages = _ends([phase.num_steps for phase in phases]), _ends([stage[0] for stage in stages])
    assert ends_of_phases[-1] == config.train.num_steps, "the phases of an objective add up to train.num_steps"
    first_step = 0
    for last_step in sorted(end for end in {*ends_of_phases, *ends_of_stages} if 0 < end <= config.train.num_steps):
        phase = phases[bisect.bisect_left(ends_of_phases, last_step)]
        _, seq_length, batch_size = stages[bisect.bisect_left(ends_of_stages, last_step)]
        max_predictions = config.masking.max_predictions(seq_length)
        yield Stretch(first_step, last_step, phase.passes, batch_size, seq_length, max_predictions)
        first_step = last_step


def _ends(lengths: list[int]) -> list[int]:
    ends = []
    for length in lengths:
        ends.append(length + (ends[-1] if ends else 0))
    return ends
