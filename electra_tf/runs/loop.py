"""A pre-training run from its configuration to its last checkpoint."""

import contextlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.damage import damaged_data_reported
from electra_tf.runs.checkpoint import Checkpoints, seed_everything
from electra_tf.runs.checkpoint_files import CheckpointFolder
from electra_tf.runs.directory_lock import locked
from electra_tf.runs.disk import DISK_ERRORS, disk_reason
from electra_tf.runs.interruption import Interruption
from electra_tf.runs.run_directory import RunDirectory, drop_lines_after
from electra_tf.runs.tensorboard_events import drop_events_after
from electra_tf.runs.training import Training
from electra_tf.runs.warm_start_record import start_weights
from electra_tf.tasks.base import Objective
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.train.distribution import is_chief
from electra_tf.train.metrics import metric_accumulator
from electra_tf.train.phases import phase_at, phases_of
from electra_tf.train.pretrainer import Evaluator
from electra_tf.train.schedule import missed_peak
from electra_tf.train.stages import Stage, StageInput, evaluation_stage, open_stages, stages_of, training_stage
from electra_tf.train.step import compile_objective
from electra_tf.train.step_triggers import StepTriggers
from electra_tf.train.stop_request import StopRequest
from electra_tf.train.workers import worker_failures_reported

logger = logging.getLogger(__name__)

DataDirs = Sequence[str | os.PathLike]


@dataclass(frozen=True)
class Run:
    """What a call of `run_pretraining.py` works with."""

    config: PretrainingConfig
    directory: RunDirectory
    strategy: tf.distribute.Strategy

    def __post_init__(self):
        for stage in self.stages:
            stage.require_divisible(self.strategy)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return stages_of(self.config)

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run's files."""
        return is_chief(self.strategy)

    def build(self) -> Objective:
        """The compiled objective with its initial weights, under the strategy."""
        seed_everything(self.config.train.seed)
        with self.strategy.scope():
            return compile_objective(build_objective(self.config))


def describe(run: Run) -> dict:
    """What `--dry_run` prints: the model is built under the strategy, no data is read."""
    with _held(run):
        run.directory.adopt_config(run.config, chief=True)
    objective, train = run.build(), run.config.train
    described = {
        "trainable_parameters": int(sum(np.prod(variable.shape) for variable in objective.trainable_variables)),
        "global_batch_size": train.batch_size,
        "replicas": run.strategy.num_replicas_in_sync,
        "tokens_per_step": train.batch_size * run.config.data.max_seq_length,
        "config": str(run.directory.config_file),
    }
    if run.config.stages:
        described["stages"] = [stage.model_dump() for stage in run.config.stages]
    return described


def pretrain(
    run: Run,
    data_dirs: DataDirs,
    *,
    stop_at_step: int | None = None,
    init_from: str | os.PathLike | None = None,
    interruption: Interruption | None = None,
) -> dict[str, float]:
    """Trains from the newest checkpoint of the run, or from the start, and evaluates at the end.

    Args:
        data_dirs: of `build_pretraining_dataset.py` or of the authors' builder, one for each stage of the run.
        stop_at_step: ends this call early; the schedule stays that of `train.num_steps`.
        init_from: the checkpoint or run that a new run takes its initial weights from.
        interruption: tells of signals; None: nothing ends the call early.
    Returns: the metrics of the last evaluation; empty where the data has no held-out split.
    Raises: UserError: if the data or an earlier run in the directory does not fit, or another process trains there.
        Interrupted: a signal came; the same call continues the run. TrainingStopped: losses are no longer finite, or
        another worker is gone.
    """
    with _held(run), worker_failures_reported(run.strategy), damaged_data_reported():
        return _pretrain(run, data_dirs, stop_at_step, init_from, interruption or Interruption())


def _pretrain(run: Run, data_dirs: DataDirs, stop_at_step, init_from, interruption: Interruption) -> dict[str, float]:
    config, directory = run.config, run.directory
    directory.adopt_config(config, run.is_chief)
    stages = open_stages(run.stages, data_dirs)
    if run.is_chief:
        data = stages[0].data
        directory.adopt_tokenizer(data.vocab_content, data.lower_case, data.strip_accents)
        directory.adopt_data([entry.data.identity for entry in stages])
    objective = run.build()
    objective.adopt_data(stages[0].data)
    with run.strategy.scope():
        window = metric_accumulator(objective)
    train = config.train
    checkpoints = Checkpoints(
        objective, directory, run.is_chief, train.keep_checkpoints, train.asynchronous_checkpoints, window=window
    )
    is_started = directory.latest_checkpoint() is not None
    checkpoints.remove_leftovers()
    first_step = checkpoints.restore_latest()
    start_weights(objective, directory, checkpoints, is_started, init_from, run.is_chief)
    part_ends = {part.last_step for part in (*run.stages, *phases_of(objective))}
    timetable = StepTriggers(
        config.train,
        config.evaluation,
        tuple(sorted(part_ends)),
        min(train.num_steps, stop_at_step or train.num_steps),
    )
    _announce(run, training_stage(stages, first_step), first_step, timetable.last_step)
    if run.is_chief:
        _drop_reports_after(directory, first_step)
    training = Training(
        objective,
        run.strategy,
        stages,
        timetable,
        window,
        checkpoints,
        directory,
        writes=run.is_chief,
        interruption=interruption,
    )
    return training.run()


def evaluate(run: Run, data_dirs: DataDirs) -> dict[str, float]:
    """The held-out metrics of the run's newest checkpoint, on the data of the stage and by the phase it stands in.

    Reads only: it may be called while the run trains.

    Raises: UserError: without a checkpoint, without a held-out split, or if settings or data are not the run's.
    """
    with damaged_data_reported():
        objective, step, entry = restore_for_evaluation(run, data_dirs)
        trained = phase_at(phases_of(objective), step).objective
        evaluator = Evaluator(trained, run.strategy, StopRequest(run.strategy), entry.held_out)
        return {"step": step, **(evaluator.evaluate(entry.num_evaluation_batches) or {})}


def restore_for_evaluation(run: Run, data_dirs: DataDirs) -> tuple[Objective, int, StageInput]:
    """The run's newest checkpoint, its step, and the stage it stands in, which has a held-out split.

    Raises: UserError: as `evaluate`.
    """
    stages = open_stages(run.stages, data_dirs)
    if not any(entry.num_evaluation_batches for entry in stages):
        raise _no_held_out_split(stages[0])
    if run.directory.latest_checkpoint() is None:
        raise UserError(f"{run.directory.checkpoints} holds no checkpoint to evaluate; train first")
    run.directory.require_same_run(run.config)
    data = stages[0].data
    run.directory.require_same_tokenizer(data.vocab_content, data.lower_case, data.strip_accents)
    objective = run.build()
    step = _restore_beside_training(Checkpoints(objective, run.directory, chief=run.is_chief, keep=1), run.directory)
    entry = evaluation_stage(stages, step)
    if entry.num_evaluation_batches == 0:
        raise _no_held_out_split(entry)
    return objective, step, entry


def _restore_beside_training(checkpoints: Checkpoints, directory: RunDirectory) -> int:
    """`restore_latest`, again where a run that trains meanwhile has removed what was just found for a newer one."""
    folder = CheckpointFolder(directory.checkpoints)
    while True:
        steps = folder.published_steps()
        try:
            return checkpoints.restore_latest()
        except UserError:
            if folder.published_steps() == steps:
                raise


def _no_held_out_split(entry: StageInput) -> UserError:
    return UserError(f"{entry.data_dir} has no held-out split; build it with --held_out_fraction")


@contextlib.contextmanager
def _held(run: Run) -> Iterator[None]:
    """Keeps other writers out of the run's directory; of a cluster the chief does so for all.

    Raises: UserError: if another process is there, or something else than a run.
    """
    if not run.is_chief:
        yield
        return
    run.directory.create()
    with locked(run.directory.path):
        yield


def _drop_reports_after(directory: RunDirectory, step: int) -> None:
    """Takes back what a killed call has said of steps that its last checkpoint does not hold."""
    drop_lines_after(directory.metrics_file, step)
    drop_lines_after(directory.alarms_file, step)
    try:
        for split in ("train", "held_out"):
            drop_events_after(directory.tensorboard / split, step)
    except DISK_ERRORS as error:
        raise UserError(f"{directory.tensorboard} cannot be written: {disk_reason(error)}; make room there") from None


def _announce(run: Run, entry: StageInput, first_step: int, last_step: int) -> None:
    stage, replicas = entry.stage, run.strategy.num_replicas_in_sync
    if first_step >= last_step:
        logger.info(
            "the run stands at step %d already, this call was to end at %d: nothing to train", first_step, last_step
        )
        return
    if warning := missed_peak(run.config.optimizer.warmup_steps, run.config.objective.schedule_steps(run.config)):
        logger.warning(warning)
    logger.info(
        "%s%s, steps %d to %d of %d; batch %d = %d replicas x %d; %d training examples, %d held out",
        f"continuing at step {first_step}" if first_step else "starting",
        f" in {stage.name}" if stage.name else "",
        first_step,
        last_step,
        run.config.train.num_steps,
        stage.batch_size,
        replicas,
        stage.batch_size // replicas,
        entry.data.train.total_examples,
        entry.data.held_out.total_examples if entry.data.held_out else 0,
    )


def to_json(values: dict) -> str:
    """One JSON object; a metric without a value (nothing counted) is null."""
    return json.dumps({name: None if value != value else value for name, value in values.items()}, indent=1)
