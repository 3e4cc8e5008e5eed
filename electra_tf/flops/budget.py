"""The cost of a run by its steps, and the number of steps that a FLOPs budget pays for.

The cost is an exact function of the configuration and the step, so checkpoints do not store it. `run` is a
`PretrainingConfig`: `run.objective.phase_costs(run)` are the training phases, `run.all_stages` the input stages.
"""

import bisect
import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from electra_tf.flops import hardware, paper
from electra_tf.flops.hardware import Countable, Flops
from electra_tf.flops.passes import NetworkPass

Convention = Literal["paper", "hardware"]


@dataclass(frozen=True)
class Spent(Countable):
    """The cost of a number of steps, over all replicas, without evaluations."""

    paper: Fraction = Fraction(0)  # FLOPs in this convention
    hardware: Flops = Flops()
    examples: int = 0
    token_slots: int = 0  # positions in these examples, padding included

    def flops(self, convention: Convention) -> Fraction:
        return self.paper if convention == "paper" else Fraction(self.hardware.total)


@dataclass(frozen=True)
class StepRange:
    """Consecutive steps of equal cost, first_step + 1 to last_step: one training phase in one input stage."""

    first_step: int
    last_step: int
    phase: int  # its index
    passes: tuple[NetworkPass, ...]  # the networks that run over each example
    batch_size: int  # over all replicas
    seq_length: int  # S
    max_predictions: int  # M

    @property
    def num_steps(self) -> int:
        return self.last_step - self.first_step

    def steps_until(self, step: int) -> int:
        """The number of steps of this range among the first `step` steps of the run."""
        return max(0, min(step, self.last_step) - self.first_step)

    def example(self) -> Spent:
        of_paper = paper.example_flops(self.passes, self.seq_length)
        of_hardware = hardware.example_flops(self.passes, self.seq_length, self.max_predictions)
        return Spent(of_paper, of_hardware, examples=1, token_slots=self.seq_length)

    def step(self) -> Spent:
        return self.example() * self.batch_size


class RunCost:
    """The cost of a run up to any of its steps."""

    def __init__(self, run: Any):
        # The run is split at the end of each training phase and of each input stage.
        phases, stages = run.objective.phase_costs(run), run.all_stages
        phase_ends = list(itertools.accumulate(phase.num_steps for phase in phases))
        stage_ends = list(itertools.accumulate(stage.num_steps for stage in stages))
        assert phase_ends[-1] == run.train.num_steps, "the phases of an objective add up to train.num_steps"
        self.ranges: list[StepRange] = []
        for first_step, last_step in itertools.pairwise(sorted({0, *phase_ends, *stage_ends})):
            phase, index = bisect.bisect_left(phase_ends, last_step), bisect.bisect_left(stage_ends, last_step)
            passes, length = phases[phase].passes, stages[index].max_seq_length
            slots = run.stage_maskings[index].max_predictions(length)
            self.ranges.append(StepRange(first_step, last_step, phase, passes, stages[index].batch_size, length, slots))
        self._costs = [(each, each.step()) for each in self.ranges]

    def spent(self, step: int) -> Spent:
        """The cost of the first `step` steps."""
        return sum((cost * each.steps_until(step) for each, cost in self._costs), Spent())

    def of_step(self, step: int) -> Spent:
        """The cost of the step with this number, counted from 1."""
        return next((cost for each, cost in self._costs if step <= each.last_step), self._costs[-1][1])

    def steps_within(self, budget: float, convention: Convention) -> int:
        """The number of steps that `budget` FLOPs pay for, at most all of the run."""
        left = Fraction(budget)
        for each, cost in self._costs:
            price = cost.flops(convention)
            if left < each.num_steps * price:
                return each.first_step + int(left // price)
            left -= each.num_steps * price
        return self.ranges[-1].last_step
