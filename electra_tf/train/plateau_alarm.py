"""An alarm while a run trains: its reports have shown for long that it has learnt nothing yet."""

import math
from collections.abc import Callable, Mapping

from electra_tf.config.schema import TrainConfig

_FEWEST_STEPS = 500


class PlateauAlarm:
    """An alarm when every report of `train.alarm_after_steps` steps shows the plateau, once per episode.

    In a short run it is due after half of the steps, but not in the first few hundred. It follows from the reports
    alone, so a continued run first observes the reports of its metrics.jsonl.

    Args:
        problem_of: the problem that a report's finite means show, in one clause; None for none.
        first_step: the step before the run's first one: not 0 where a run goes on from another's.
    """

    def __init__(self, train: TrainConfig, problem_of: Callable[[dict[str, float]], str | None], first_step: int = 0):
        self._after = min(train.alarm_after_steps, max(_FEWEST_STEPS, train.num_steps // 2))
        self._problem_of = problem_of
        self._since: int | None = None
        self._last_step = first_step

    def observe(self, step: int, metrics: Mapping[str, float | None]) -> str | None:
        """Takes the report of a step, means since the last one. Returns: the alarm that is due, or None."""
        last_step, self._last_step = self._last_step, step
        finite = {name: value for name, value in metrics.items() if isinstance(value, float) and math.isfinite(value)}
        problem = self._problem_of(finite)
        self._since = None if problem is None else self._since or last_step + 1
        # Due with this report and not with the one before.
        if self._since is None or not last_step - self._since + 1 < self._after <= step - self._since + 1:
            return None
        return f"since step {self._since} {problem}"
