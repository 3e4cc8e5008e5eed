"""From the flags of `run_finetuning.py` to its table: every task, every seed, and what they give together."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.files import read_json
from electra_tf.runs.interruption import Interruption
from electra_tf.tasks.finetune.config import FinetuningConfig, resolve
from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.datasets import DataOptions, TaskDataset, read_dataset
from electra_tf.tasks.finetune.glue import GLUE_TASKS, PAPER_TASKS
from electra_tf.tasks.finetune.seeds import Job, PretrainedEncoder, results_of, run_seeds
from electra_tf.tasks.finetune.submission import TestSets, read_test_sets, submit
from electra_tf.tasks.finetune.summary import SUMMARY, glue_summary, summarize, table, write_summary
from electra_tf.train.distribution import is_chief

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """What the user wants beside a task and an encoder.

    Attributes:
        values, values_source: settings of `--config` and `--set`, and what messages call them.
        keep, untrained, force: see `electra_tf.tasks.finetune.seeds.Job`.
        submission: whether to write the files of GLUE's site too.
    """

    output_dir: str
    seeds: tuple[int, ...]
    values: dict
    values_source: str
    keep: str = "last"
    untrained: bool = False
    force: bool = False
    submission: bool = False


def finetune(
    task: str,
    pretrained: PretrainedEncoder,
    files: DataOptions,
    options: Options,
    strategy: tf.distribute.Strategy,
    interruption: Interruption | None = None,
) -> str:
    """Fine-tunes a task, or with `glue` all eight of the paper's, and writes what the seeds give together.

    Returns: a table for the terminal.
    Raises: UserError: if flags, files, encoder and settings do not fit. Interrupted, TrainingStopped: as of training.
    """
    names = PAPER_TASKS if task == "glue" else (task,)
    _require_same_task(options.output_dir, task)
    sources = [read_dataset(name, files) for name in names]
    test_sets = _test_sets(names, files, options, strategy) if options.submission else {}
    summaries, jobs = {}, {}
    for source in sources:  # before the first is trained for hours
        _resolved(source, pretrained, options, num_rows=1)
    for source in sources:
        directory = os.path.join(options.output_dir, source.name) if task == "glue" else options.output_dir
        job = _job(source, pretrained, options, directory, strategy)
        run_seeds(job, options.seeds, interruption)
        if is_chief(strategy):
            results = results_of(job)
            if earlier := sorted(set(results) - set(options.seeds)):
                logger.info("%s: with the seeds of earlier calls, %s", source.name, ", ".join(map(str, earlier)))
            summary = summarize(source.name, job.data.primary_metric, results, job.config.init_from)
            write_summary(directory, summary)
            summaries[source.name], jobs[source.name] = summary, job
    if not is_chief(strategy):
        return ""
    if options.submission:
        submit(jobs, summaries, test_sets, options.output_dir)
    if task != "glue":
        return table(list(summaries.values()))
    together = glue_summary(list(summaries.values()))
    write_summary(options.output_dir, together)
    average = f"{together['glue_average'] * 100:.2f}" if together["glue_average"] is not None else "-"
    return f"{table(list(summaries.values()))}\nGLUE average of the medians, as the paper's: {average}"


def _require_same_task(output_dir: str, task: str) -> None:
    summary = read_json(os.path.join(output_dir, SUMMARY))
    found = "glue" if "tasks" in summary else summary.get("task", task)
    if found != task:
        raise UserError(f"--output_dir={output_dir} has the results of --task={found}; give {task} a new directory")


def _test_sets(
    names: Sequence[str], files: DataOptions, options: Options, strategy: tf.distribute.Strategy
) -> TestSets:
    """What `--submission` predicts, read before hours of training. Raises: UserError: if it cannot be done."""
    if options.keep == "none" or not set(names) <= set(GLUE_TASKS):
        raise UserError(
            "--submission is for GLUE's tasks, with --keep=last or best; this is "
            f"{', '.join(names)}, --keep={options.keep}"
        )
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        raise UserError(
            "--submission is the work of one process; give it with another --strategy once all seeds are done"
        )
    return read_test_sets(names, files.data_dir)


def _job(
    source: TaskDataset,
    pretrained: PretrainedEncoder,
    options: Options,
    directory: str,
    strategy: tf.distribute.Strategy,
) -> Job:
    config, data = configured(source, pretrained, options)
    replicas, parts = strategy.num_replicas_in_sync, config.train.gradient_accumulation_steps
    for name, size, among in (
        ("train.batch_size", config.train.batch_size, replicas * parts),
        ("evaluation.batch_size", config.evaluation.batch_size or config.train.batch_size, replicas),
    ):
        if size % among:
            micro_batches = f" x {parts} micro-batches" if among != replicas else ""
            raise UserError(
                f"{name} is {size}, which does not divide among {replicas} replicas{micro_batches}; give a multiple of "
                f"{among} with --set {name}=N"
            )
    return Job(config, data, pretrained, directory, strategy, options.keep, options.untrained, options.force)


def configured(
    source: TaskDataset, pretrained: PretrainedEncoder, options: Options
) -> tuple[FinetuningConfig, TaskData]:
    """The resolved configuration of a task, and its data as features."""
    # Twice: the features need lengths and labels, and the number of steps needs the features.
    data = source.data(_resolved(source, pretrained, options, num_rows=1), pretrained.tokenizer)
    config = _resolved(source, pretrained, options, data.train.num_rows)
    changes: dict = {}
    if options.keep == "best" and config.evaluation.best_metric is None:
        changes["evaluation"] = config.evaluation.model_copy(update={"best_metric": data.primary_metric})
    num_checkpoints = -(-config.train.num_steps // config.train.save_every_steps) if options.keep == "all" else 1
    changes["train"] = config.train.model_copy(update={"keep_checkpoints": num_checkpoints})
    return config.model_copy(update=changes), data


def _resolved(source: TaskDataset, pretrained: PretrainedEncoder, options: Options, num_rows: int) -> FinetuningConfig:
    chosen = options.values.get("task")
    return resolve(
        options.values,
        options.values_source,
        name=source.name,
        task=source.settings(chosen if isinstance(chosen, dict) else {}),
        encoder=pretrained.config,
        init_from=None if options.untrained else pretrained.source,
        num_epochs=source.num_epochs,
        max_seq_length=source.max_seq_length,
        num_rows=num_rows,
    )
