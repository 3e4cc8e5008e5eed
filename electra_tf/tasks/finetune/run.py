"""Fine-tunes a task, or eight tasks of GLUE, with several seeds, and summarises their scores."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.files import exists, read_json, write_atomically
from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS, PAPER_TASKS
from electra_tf.tasks.finetune.config import FinetuningConfig, resolve
from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.datasets import DataOptions, Dataset, read_dataset
from electra_tf.tasks.finetune.predict import read_test_sets, write_submission
from electra_tf.tasks.finetune.scores import Report, class_table
from electra_tf.tasks.finetune.seeds import Job, PretrainedEncoder, results_of, run_seeds
from electra_tf.tasks.finetune.summary import SUMMARY, glue_summary, median_seed, summarize, table, write_summary
from electra_tf.text.manifest import MANIFEST_FILE
from electra_tf.train.distribution import is_chief
from electra_tf.train.reporting import require_metric
from electra_tf.train.signals import Interruption

logger = logging.getLogger(__name__)

KEPT = ("best", "last", "all", "none")  # checkpoints of each seed
_MAX_SEED = 2**31 - 1


@dataclass(frozen=True)
class Options:
    """The flags of `electra-tf finetune` other than task, encoder and data.

    Raises: UserError: a seed occurs twice or is no integer below 2**31; another value of `keep`; `train.seed` or
        `train.keep_checkpoints` is set.

    Attributes:
        values, values_source: the settings in `--config` and `--set`, and their source for messages.
        keep, untrained: see `electra_tf.tasks.finetune.seeds.Job`.
        submission: True to write the files for GLUE's site as well.
        picture: draws the PNG of a report's confusion matrix under a title, to write it beside each seed's result;
            None for no pictures.
    """

    output_dir: str
    seeds: tuple[int, ...]
    values: dict
    values_source: str
    keep: str = "last"
    untrained: bool = False
    submission: bool = False
    picture: Callable[[Report, str], bytes] | None = None

    def __post_init__(self):
        seeds, train = self.seeds, self.values.get("train")
        fit = seeds and all(type(seed) is int and 0 <= seed <= _MAX_SEED for seed in seeds)
        if not fit or len(set(seeds)) < len(seeds):
            raise UserError(f"--seeds {' '.join(map(str, seeds))}: expected distinct integers from 0 to {_MAX_SEED}")
        if self.keep not in KEPT:
            raise UserError(f"keep is {self.keep!r}, expected one of {', '.join(KEPT)}")
        for name, flag in (("seed", "--seeds"), ("keep_checkpoints", "--keep")):
            if isinstance(train, dict) and train.get(name) is not None:
                raise UserError(f"{self.values_source}: train.{name} has no effect; remove it and give {flag}")


def finetune(
    task: str,
    pretrained: PretrainedEncoder,
    data_options: DataOptions,
    options: Options,
    strategy: tf.distribute.Strategy,
    interruption: Interruption | None = None,
) -> str:
    """Fine-tunes a task, or for `glue` the paper's eight tasks, and writes summary.json.

    Returns: a table for the terminal; "" in workers other than the chief.
    Raises: UserError: flags, files, encoder or settings do not fit together. Interrupted, TrainingStopped: see
        `run_seeds`.
    """
    names = PAPER_TASKS if task == "glue" else (task,)
    _require_same_task(options.output_dir, task)
    datasets = [read_dataset(name, data_options) for name in names]
    test_sets = {}
    if options.submission:
        _require_submission(names, options, strategy)
        test_sets = read_test_sets(names, data_options.data_dir)
    configs = [_resolved(each, pretrained, options, num_rows=1) for each in datasets]  # before training for hours
    if options.picture and not any(map(_has_one_class_each, configs)):
        raise UserError(f"--picture has no effect with --task={task}: it has no confusion matrix; remove it")
    summaries, jobs = [], {}
    for dataset in datasets:
        directory = os.path.join(options.output_dir, dataset.name) if task == "glue" else options.output_dir
        job = jobs[dataset.name] = _job(dataset, pretrained, options, directory, strategy)
        run_seeds(job, options.seeds, interruption)
        if is_chief(strategy):
            summaries.append(summarize(dataset.name, job.data.primary_metric, results_of(job), job.config.init_from))
            write_summary(directory, summaries[-1])
            _draw(job, options.picture)
    if not is_chief(strategy):
        return ""
    if options.submission:
        write_submission(jobs, summaries, test_sets, os.path.join(options.output_dir, "submission"))
    if task != "glue":
        return "\n\n".join([table(summaries), *_class_tables(jobs[task], summaries[0])])
    together = glue_summary(summaries)
    write_summary(options.output_dir, together)
    average = f"{together['glue_average'] * 100:.2f}" if together["glue_average"] is not None else "-"
    return f"{table(summaries)}\nGLUE score (mean of the medians, as in the paper): {average}"


def _has_one_class_each(config: FinetuningConfig) -> bool:
    return config.task.kind == "classification" or getattr(config.task, "scheme", None) == "plain"


def _draw(job: Job, picture: Callable[[Report, str], bytes] | None) -> None:
    """Draws the confusion matrices of all finished seeds."""
    for seed, result in results_of(job).items() if picture else ():
        for split, report in result.get("reports", {}).items():
            if "confusion_matrix" in report:
                title = f"{job.config.name}, {split}, seed {seed}"
                path = os.path.join(job.directory(seed).path, f"confusion_{split}.png")
                write_atomically(path, picture(report, title))
                logger.info("wrote %s", path)


def _class_tables(job: Job, summary: dict) -> list[str]:
    """The tables of the classes in the median seed, one for each split; none if the task has no classes."""
    seed = median_seed(summary)
    name = f"seed {seed}" + (" (the median)" if len(summary["seeds"]) > 1 else "")
    reports = results_of(job)[seed].get("reports", {})
    return [class_table(each, f"{split}, {name}", job.result_file(seed)) for split, each in reports.items()]


def _require_same_task(output_dir: str, task: str) -> None:
    """Raises: UserError: the directory has the results of another task, or is that of a run or a data set."""
    for name in ("tokenizer_settings.json", MANIFEST_FILE):
        if exists(os.path.join(output_dir, name)):
            raise UserError(f"--output_dir={output_dir} has a {name}, of a run or a data set; give another directory")
    summary = read_json(os.path.join(output_dir, SUMMARY))
    earlier = "glue" if "tasks" in summary else summary.get("task", task)
    if earlier != task:
        raise UserError(f"--output_dir={output_dir} has the results of --task={earlier}; give {task} a new directory")


def _require_submission(names: tuple[str, ...], options: Options, strategy: tf.distribute.Strategy) -> None:
    if options.keep == "none" or not set(names) <= set(GLUE_TASKS):
        raise UserError("--submission needs a GLUE task, and --keep=last, best or all")
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        raise UserError(
            "--submission needs a single process; first train without it, then add it with --strategy=mirrored"
        )


def _job(
    dataset: Dataset,
    pretrained: PretrainedEncoder,
    options: Options,
    directory: str,
    strategy: tf.distribute.Strategy,
) -> Job:
    config, data = configured(dataset, pretrained, options)
    replicas, parts = strategy.num_replicas_in_sync, config.train.gradient_accumulation_steps
    rows = config.rows_together
    for name, size, among in (
        ("train.batch_size", config.train.batch_size, parts),
        ("evaluation.batch_size", config.evaluation.batch_size or config.train.batch_size, 1),
    ):
        if size % (replicas * among * rows):
            candidates = f" x {rows} candidates (task.num_candidates)" if rows > 1 else ""
            raise UserError(
                f"{name} is {size}, expected a multiple of {replicas * among * rows}: {replicas} replicas x {among} "
                f"micro-batches{candidates}; change it with --set {name}=N"
            )
    test = dataset.test_data(config, pretrained.tokenizer)
    return Job(config, data, pretrained, directory, strategy, options.keep, options.untrained, test)


def configured(dataset: Dataset, pretrained: PretrainedEncoder, options: Options) -> tuple[FinetuningConfig, TaskData]:
    """Returns a task's configuration with all defaults filled in, and its data as features."""
    # Resolved twice: the features depend on the settings, and the number of steps depends on the features.
    data = dataset.data(_resolved(dataset, pretrained, options, num_rows=1), pretrained.tokenizer)
    config = _resolved(dataset, pretrained, options, data.train.num_rows)
    if (metric := config.evaluation.best_metric) is not None:
        require_metric(metric, data.metric_names)
    changes: dict = {}
    if options.keep == "best" and config.evaluation.best_metric is None:
        changes["evaluation"] = config.evaluation.model_copy(update={"best_metric": data.primary_metric})
    num_checkpoints = -(-config.train.num_steps // config.train.save_every_steps) if options.keep == "all" else 1
    changes["train"] = config.train.model_copy(update={"keep_checkpoints": num_checkpoints})
    return config.model_copy(update=changes), data


def _resolved(dataset: Dataset, pretrained: PretrainedEncoder, options: Options, num_rows: int) -> FinetuningConfig:
    chosen = options.values.get("task")
    return resolve(
        options.values,
        options.values_source,
        name=dataset.name,
        task=dataset.settings(chosen if isinstance(chosen, dict) else {}),
        encoder=pretrained.config,
        init_from=None if options.untrained else pretrained.source,
        num_epochs=dataset.num_epochs,
        max_seq_length=dataset.max_seq_length,
        num_rows=num_rows,
    )
