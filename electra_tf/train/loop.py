"""A pre-training run from its configuration to its last checkpoint."""

import contextlib
import io
import json
import logging
import os
from dataclasses import dataclass

import absl.logging
import numpy as np
import orbit
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import PretrainingConfig
from electra_tf.data.corpus import PretrainingData, open_data
from electra_tf.data.pretraining_input import WRONG_COUNT, evaluation_batches, num_evaluation_batches, training_batches
from electra_tf.objectives import build_objective
from electra_tf.objectives.base import Objective
from electra_tf.train.checkpoint import Checkpoints, milestone_steps, seed_everything
from electra_tf.train.distribution import is_chief, require_divisible
from electra_tf.train.pretrainer import Pretrainer
from electra_tf.train.reporting import TrainingReporter
from electra_tf.train.run_directory import RunDirectory, drop_metrics_after, evaluation_at
from electra_tf.train.step import compile_objective

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """What a call of `run_pretraining.py` works with."""

    config: PretrainingConfig
    directory: RunDirectory
    strategy: tf.distribute.Strategy

    def __post_init__(self):
        require_divisible(self.config.train.batch_size, self.strategy, "train.batch_size")
        require_divisible(self.evaluation_batch_size, self.strategy, "evaluation.batch_size")

    @property
    def evaluation_batch_size(self) -> int:
        return self.config.evaluation.batch_size or self.config.train.batch_size

    def build(self) -> Objective:
        """The compiled objective with its initial weights, under the strategy."""
        seed_everything(self.config.train.seed)
        with self.strategy.scope():
            return compile_objective(build_objective(self.config))


def describe(run: Run) -> dict:
    """What `--dry_run` prints: the model is built under the strategy, no data is read."""
    run.directory.prepare(run.config, chief=True)
    objective, train = run.build(), run.config.train
    return {
        "trainable_parameters": int(sum(np.prod(variable.shape) for variable in objective.trainable_variables)),
        "global_batch_size": train.batch_size,
        "replicas": run.strategy.num_replicas_in_sync,
        "tokens_per_step": train.batch_size * run.config.data.max_seq_length,
        "config": str(run.directory.config_file),
    }


def pretrain(run: Run, data_dir: str | os.PathLike, stop_at_step: int | None = None) -> dict[str, float]:
    """Trains from the newest checkpoint of the run, or from the start, and evaluates at the end.

    Args:
        data_dir: of `build_pretraining_dataset.py` or of the authors' builder.
        stop_at_step: ends this call early; the schedule stays that of `train.num_steps`.
    Returns: the metrics of the last evaluation; empty where the data has no held-out split.
    Raises: UserError: if the data or an earlier run in the directory does not fit.
    """
    # Orbit logs and prints a block for every loop; the reporter says the same in one line.
    absl.logging.set_verbosity(absl.logging.WARNING)
    config = run.config
    data = open_data(data_dir, config)
    chief = is_chief(run.strategy)
    run.directory.prepare(config, chief)
    if chief:
        run.directory.adopt_tokenizer(data.vocab_content, data.lower_case, data.strip_accents)
    objective = run.build()
    checkpoints = Checkpoints(objective, run.directory, chief, config.train.keep_checkpoints)
    first_step = checkpoints.restore_latest()
    last_step = min(config.train.num_steps, stop_at_step or config.train.num_steps)
    _announce(run, data, first_step, last_step)
    if chief:
        drop_metrics_after(run.directory.metrics_file, first_step)
    pretrainer = _pretrainer(run, objective, data, first_step)
    loop = _Loop(run, data, objective, pretrainer, checkpoints, first_step, chief)
    with _damaged_data_reported(data_dir):
        return loop.run_until(last_step)


def evaluate(run: Run, data_dir: str | os.PathLike) -> dict[str, float]:
    """The held-out metrics of the run's newest checkpoint.

    Raises: UserError: without a checkpoint, without a held-out split, or if settings or data are not the run's.
    """
    data = open_data(data_dir, run.config)
    if data.held_out is None:
        raise UserError(f"{data_dir} has no held-out split; build it with --held_out_fraction")
    if run.directory.latest_checkpoint() is None:
        raise UserError(f"{run.directory.checkpoints} holds no checkpoint to evaluate; train first")
    run.directory.require_same_run(run.config)
    run.directory.require_same_tokenizer(data.vocab_content, data.lower_case, data.strip_accents)
    objective = run.build()
    step = Checkpoints(objective, run.directory, chief=is_chief(run.strategy), keep=1).restore_latest()
    pretrainer = _pretrainer(run, objective, data, None)
    with _damaged_data_reported(data_dir):
        return {"step": step, **pretrainer.evaluate(_num_evaluation_batches(run, data))}


@contextlib.contextmanager
def _damaged_data_reported(data_dir: str | os.PathLike):
    """Turns what TensorFlow says of a damaged record into one line.

    Raises: UserError.
    """
    try:
        yield
    except tf.errors.DataLossError as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"{data_dir} holds a damaged shard ({reason}); copy or build the data set again") from None
    except tf.errors.InvalidArgumentError as error:
        if WRONG_COUNT not in str(error):
            raise
        reason = next(line for line in str(error).splitlines() if WRONG_COUNT in line)
        raise UserError(f"{reason.strip()}; copy or build the data set again") from None


def _num_evaluation_batches(run: Run, data: PretrainingData) -> int:
    assert data.held_out is not None
    return num_evaluation_batches(data.held_out, run.evaluation_batch_size, run.config.evaluation.max_batches)


def _pretrainer(run: Run, objective: Objective, data: PretrainingData, first_step: int | None) -> Pretrainer:
    """The objective with its input; `first_step` None gives no training input."""
    config = run.config
    masking = (config.masking, data.special_ids)

    def training(input_context: tf.distribute.InputContext) -> tf.data.Dataset:
        return training_batches(
            data.train,
            *masking,
            seed=config.train.seed,
            batch_size=config.train.batch_size,
            first_step=first_step,
            input_context=input_context,
        )

    def held_out(input_context: tf.distribute.InputContext) -> tf.data.Dataset:
        return evaluation_batches(
            data.held_out,
            *masking,
            seed=config.train.seed,
            batch_size=run.evaluation_batch_size,
            max_batches=config.evaluation.max_batches,
            input_context=input_context,
        )

    return Pretrainer(
        objective,
        run.strategy,
        training_batches=None if first_step is None else training,
        evaluation_batches=None if data.held_out is None else held_out,
    )


def _announce(run: Run, data: PretrainingData, first_step: int, last_step: int) -> None:
    train, replicas = run.config.train, run.strategy.num_replicas_in_sync
    logger.info(
        "%s, steps %d to %d of %d; batch %d = %d replicas x %d; %d training examples, %d held out",
        f"continuing at step {first_step}" if first_step else "starting",
        first_step,
        last_step,
        train.num_steps,
        train.batch_size,
        replicas,
        train.batch_size // replicas,
        data.train.total_examples,
        data.held_out.total_examples if data.held_out else 0,
    )


class _Loop:
    """Orbit's controller with this run's reports, evaluations and milestones in their places."""

    def __init__(self, run, data, objective, pretrainer, checkpoints: Checkpoints, first_step: int, chief: bool):
        self._run = run
        self._data = data
        self._optimizer = objective.optimizer
        self._checkpoints = checkpoints
        train = run.config.train
        self._milestones = milestone_steps(train.num_steps, train.milestone_fractions)
        self._reporter = TrainingReporter(
            run.directory.metrics_file if chief else None,
            first_step,
            train.num_steps,
            train.batch_size,
            run.config.data.max_seq_length,
        )
        tensorboard = str(run.directory.tensorboard) if chief else None
        self._controller = orbit.Controller(
            trainer=pretrainer,
            evaluator=pretrainer if data.held_out is not None else None,
            strategy=run.strategy,
            global_step=self._optimizer.iterations,
            steps_per_loop=lambda step: self._next_stop(step) - step,
            summary_dir=tensorboard and os.path.join(tensorboard, "train"),
            eval_summary_dir=tensorboard and os.path.join(tensorboard, "held_out"),
            summary_interval=1,
            train_actions=[self._after_training_loop],
            eval_actions=[self._after_evaluation],
        )
        self._evaluation: dict[str, float] = {}
        self._last_step = train.num_steps

    def run_until(self, last_step: int) -> dict[str, float]:
        """Trains up to `last_step` and evaluates. Returns the last evaluation's metrics."""
        every = self._run.config.evaluation.every_steps if self._data.held_out is not None else 0
        step, self._last_step = self._step(), last_step
        with contextlib.redirect_stdout(io.StringIO()):
            while step < last_step:
                stop = min(last_step, (step // every + 1) * every if every else last_step)
                self._controller.train(stop, checkpoint_at_completion=False)
                step = self._step()
                self._evaluate()
            if not self._evaluation:  # nothing was left to train
                self._evaluation = evaluation_at(self._run.directory.metrics_file, step) or {}
            if not self._evaluation:  # an earlier call was killed between its last checkpoint and its evaluation
                self._evaluate()
        return self._evaluation

    def _evaluate(self) -> None:
        if self._data.held_out is not None:
            with self._reporter.pause():
                self._controller.evaluate(_num_evaluation_batches(self._run, self._data))

    def _step(self) -> int:
        return int(self._optimizer.iterations.numpy())

    def _next_stop(self, step: int) -> int:
        """The next step after which the host has something to do: report, save, or keep a milestone."""
        train = self._run.config.train
        # Step 1 alone: the loss of the untrained model, and the compilation apart from the rates.
        stops = [1] if step == 0 else []
        stops += [(step // every + 1) * every for every in (train.log_every_steps, train.save_every_steps)]
        stops += [milestone for milestone in self._milestones if milestone > step]
        return min(stops)

    def _after_training_loop(self, output: dict[str, float]) -> None:
        step = self._step()
        output |= self._reporter.rates(step)
        self._reporter.train(step, output)
        with self._reporter.pause():
            if step % self._run.config.train.save_every_steps == 0 or step == self._last_step:
                self._checkpoints.save(step)
            if step in self._milestones:
                self._checkpoints.write_milestone(step)

    def _after_evaluation(self, output: dict[str, float]) -> None:
        self._evaluation = dict(output)
        self._reporter.evaluation(self._step(), self._evaluation)


def to_json(values: dict) -> str:
    """One JSON object; a metric without a value (nothing counted) is null."""
    return json.dumps({name: None if value != value else value for name, value in values.items()}, indent=1)
