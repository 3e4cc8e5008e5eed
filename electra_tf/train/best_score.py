"""Which evaluation of a run was the best, and whether the run has stopped getting better."""

import math
import re
from collections.abc import Mapping

from electra_tf.config.errors import UserError, did_you_mean
from electra_tf.config.schema import EvaluationConfig

_LOWER_IS_BETTER = re.compile(r"(.+_)?(loss|mse)(_mm)?")  # of all other metrics the highest value is the best


class BestScore:
    """Follows one metric of the held-out split through a run; of equal scores the first is the best.

    Like the alarms it follows from the reports alone, so a continued run feeds those of its metrics.jsonl first.
    """

    def __init__(self, config: EvaluationConfig):
        self._metric, self._patience = config.best_metric, config.patience
        self._scores: dict[int, float] = {}

    def observe(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Takes the evaluation of a step. Raises: UserError: if it has no metric of that name."""
        if self._metric is None:
            return
        if self._metric not in metrics:
            known = [name for name in metrics if name not in ("step", "split")]
            raise UserError(f"evaluation.best_metric={self._metric} is no metric{did_you_mean(self._metric, known)}")
        value = metrics[self._metric]
        if value is None or math.isnan(value):
            self._scores[step] = -math.inf
        else:
            self._scores[step] = -value if _LOWER_IS_BETTER.fullmatch(self._metric) else value

    def is_best(self, step: int) -> bool:
        """Whether the evaluation of this step is the best one so far."""
        return step in self._scores and step == self._best_step()

    def has_stalled(self) -> bool:
        """Whether as many evaluations as `evaluation.patience` says have come since the best one."""
        if not self._patience or not self._scores:
            return False
        return sum(step > self._best_step() for step in self._scores) >= self._patience

    def _best_step(self) -> int:
        return max(sorted(self._scores), key=self._scores.__getitem__)
