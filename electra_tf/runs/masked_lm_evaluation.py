"""`run_pretraining.py --evaluate --as_masked_lm`: a run's newest checkpoint guesses single masked tokens."""

import dataclasses
import logging
import time

from electra_tf.config.schema import AsMaskedLmConfig, MaskingConfig
from electra_tf.data.damage import damaged_data_reported
from electra_tf.runs.loop import DataDirs, Run, restore_for_evaluation
from electra_tf.tasks.pretrain.as_masked_lm import as_masked_lm
from electra_tf.train.phases import phase_at, phases_of
from electra_tf.train.pretrainer import Evaluator
from electra_tf.train.stages import StageInput
from electra_tf.train.stop_request import StopRequest

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_LINES = 10.0


def evaluate_as_masked_lm(run: Run, data_dirs: DataDirs) -> dict[str, float]:
    """Accuracy over the held-out split, as `evaluation.as_masked_lm` says, see `tasks.pretrain.as_masked_lm`.

    Which tokens are masked follows from the data and that setting's seed alone: two runs on the same data, of ELECTRA
    and of BERT say, and with the same evaluation batch, are asked the same. Reads only.

    Raises: UserError: as `electra_tf.runs.loop.evaluate`, or if the run's objective makes no masked language model.
    """
    with damaged_data_reported():
        objective, step, entry = restore_for_evaluation(run, data_dirs)
        model = as_masked_lm(phase_at(phases_of(objective), step).objective)
        entry = with_questions(entry, run.config.evaluation.as_masked_lm)
        num_batches = entry.num_evaluation_batches
        evaluator = Evaluator(model, run.strategy, StopRequest(run.strategy), entry.held_out)
        metrics = evaluator.evaluate(num_batches, _ProgressLines(num_batches, entry.stage.evaluation_batch_size))
        return {"step": step, **(metrics or {})}


def with_questions(entry: StageInput, settings: AsMaskedLmConfig) -> StageInput:
    """The same held-out split with every token masked, in an order that does not depend on the run's settings."""
    stage = entry.stage
    num_batches = -(-settings.max_examples // stage.evaluation_batch_size)
    changes = {
        "masking": MaskingConfig(masked_fraction=1.0, mask_token_fraction=1.0),
        "evaluation": stage.config.evaluation.model_copy(update={"max_batches": num_batches}),
    }
    asked = dataclasses.replace(stage, config=stage.config.model_copy(update=changes), seed=settings.seed)
    return dataclasses.replace(entry, stage=asked)


class _ProgressLines:
    """Logs, every few seconds, how far the evaluation is, its speed and the time left."""

    def __init__(self, num_batches: int, batch_size: int):
        self._num_batches, self._batch_size = num_batches, batch_size
        self._last_line = time.monotonic()
        # The first batch compiles, and tells nothing of the speed.
        self._first_done: float | None = None

    def __call__(self, batches_done: int) -> None:
        now = time.monotonic()
        if self._first_done is None:
            self._first_done = now
        elif now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            seconds_each = (now - self._first_done) / (batches_done - 1)
            logger.info(
                "%d of %d examples | %.1f examples/s | %.0f s left",
                batches_done * self._batch_size,
                self._num_batches * self._batch_size,
                self._batch_size / seconds_each,
                (self._num_batches - batches_done) * seconds_each,
            )
