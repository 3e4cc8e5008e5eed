"""The cost of a run by its steps, and the number of steps that a FLOPs budget pays for.

The cost is an exact function of the configuration and the step, so checkpoints do not store it. `run` is a
`PretrainingConfig`: `run.objective.phase_costs(run)` are the training phases, `run.stages` the input stages (empty if
there is only one).
"""

import bisect
import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from electra_tf.flops import hardware, paper
from electra_tf.flops.hardware import NO_FLOPS, Countable, Flops
from electra_tf.flops.passes import NetworkPass

Convention = Literal["paper", "hardware"]


@dataclass(frozen=True)
class Spent(Countable):
    """The cost of a number of steps, over all replicas, without evaluations.

    Attributes:
        paper, hardware: FLOPs in the two conventions.
        examples: number of sequences.
        token_slots: number of positions in these sequences, padding included.
    """

    paper: Fraction = Fraction(0)
    hardware: Flops = NO_FLOPS
    examples: int = 0
    token_slots: int = 0

    def flops(self, convention: Convention) -> Fraction:
        return self.paper if convention == "paper" else Fraction(self.hardware.total)


@dataclass(frozen=True)
class StepRange:
    """Consecutive steps of equal cost: one training phase in one input stage.

    Attributes:
        first_step, last_step: the range excludes `first_step` and includes `last_step`.
        phase: index of the training phase.
        passes: the networks that run over each example.
        batch_size: examples in a step, over all replicas.
        seq_length, max_predictions: S and M.
    """

    first_step: int
    last_step: int
    phase: int
    passes: tuple[NetworkPass, ...]
    batch_size: int
    seq_length: int
    max_predictions: int

    @property
    def num_steps(self) -> int:
        return self.last_step - self.first_step

    def steps_until(self, step: int) -> int:
        """The number of steps of this range among the first `step` steps of the run."""
        return max(0, min(step, self.last_step) - self.first_step)

    def example(self) -> Spent:
        """The cost of one example."""
        return Spent(
            paper.example_flops(self.passes, self.seq_length),
            hardware.example_flops(self.passes, self.seq_length, self.max_predictions),
            examples=1,
            token_slots=self.seq_length,
        )

    def step(self) -> Spent:
        """The cost of one step."""
        return self.example() * self.batch_size


class RunCost:
    """The cost of a run up to any of its steps."""

    def __init__(self, run: Any):
        # The run is split at the end of each training phase and of each input stage.
        phases = run.objective.phase_costs(run)
        stages = [(stage.num_steps, stage.max_seq_length, stage.batch_size) for stage in run.stages]
        stages = stages or [(run.train.num_steps, run.data.max_seq_length, run.train.batch_size)]
        phase_ends = list(itertools.accumulate(phase.num_steps for phase in phases))
        stage_ends = list(itertools.accumulate(num_steps for num_steps, *_ in stages))
        assert phase_ends[-1] == run.train.num_steps, "the phases of an objective add up to train.num_steps"
        ends = sorted(end for end in {0, *phase_ends, *stage_ends} if end <= run.train.num_steps)
        ranges = []
        for first_step, last_step in itertools.pairwise(ends):
            phase = bisect.bisect_left(phase_ends, last_step)
            index = bisect.bisect_left(stage_ends, last_step)
            _, seq_length, batch_size = stages[index]
            max_predictions = run.stage_maskings[index].max_predictions(seq_length)
            ranges.append(
                StepRange(first_step, last_step, phase, phases[phase].passes, batch_size, seq_length, max_predictions)
            )
        self.ranges = tuple(ranges)
        self._steps = tuple(each.step() for each in self.ranges)

    def spent(self, step: int) -> Spent:
        """The cost of the first `step` steps."""
        costs = (cost * each.steps_until(step) for each, cost in zip(self.ranges, self._steps, strict=True))
        return sum(costs, Spent())

    def of_step(self, step: int) -> Spent:
        """The cost of the step with this number, counted from 1."""
        index = bisect.bisect_left([each.last_step for each in self.ranges], step)
        return self._steps[min(index, len(self._steps) - 1)]

    def steps_within(self, budget: float, convention: Convention) -> int:
        """The number of steps that `budget` FLOPs pay for, at most all of the run."""
        left, steps = Fraction(budget), 0
        for each, cost in zip(self.ranges, self._steps, strict=True):
            affordable = int(left // cost.flops(convention))
            if affordable < each.num_steps:
                return steps + affordable
            left -= each.num_steps * cost.flops(convention)
            steps += each.num_steps
        return steps
