"""Fine-tunes a task, or eight tasks of GLUE, with several seeds, and summarises their scores."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.validation import validate
from electra_tf.data.tables import Table
from electra_tf.files import read_rewritten
from electra_tf.finetuning.seeds import Job, results_of, run_seeds
from electra_tf.tasks.finetune.benchmarks import PAPER_TASKS
from electra_tf.tasks.finetune.config import FinetuningConfig, FinetuningTrainConfig
from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.datasets import TaskToTrain, read_task
from electra_tf.tasks.finetune.scores import class_table
from electra_tf.tasks.finetune.summary import SUMMARY, glue_summary, median_seed, summarize, table, write_summary
from electra_tf.train.distribution import is_chief
from electra_tf.train.reporting import require_metric
from electra_tf.train.signals import Interruption
from electra_tf.weights.stored_model import StoredModel


def finetune(
    values: dict[str, Any],
    source: str,
    pretrained: StoredModel,
    output_dir: str,
    strategy: tf.distribute.Strategy,
    *,
    seeds: Sequence[int] | None = None,
    tables: Mapping[str, Table] | None = None,
    interruption: Interruption | None = None,
) -> str:
    """Fine-tunes a task, or for `glue` the paper's eight tasks, and writes summary.json.

    Args:
        values, source: the user's settings, `name` among them, and their name in messages.
        seeds: one fine-tuning for each; None: `train.seed`.
        tables: data in memory, see `read_task`.
    Returns: a table for the terminal; "" in workers other than the chief.
    Raises: UserError: settings, files and encoder do not fit together, or a seed is out of range. Interrupted,
        TrainingStopped: see `run_seeds`.
    """
    name = values["name"]
    names = PAPER_TASKS if name == "glue" else (name,)
    summary = read_rewritten(os.path.join(output_dir, SUMMARY))
    earlier = "glue" if "tasks" in summary else summary.get("task", name)
    if earlier != name:
        raise UserError(f"output_dir={output_dir} has the results of task={earlier}; give {name} a new directory")
    seeds = [validate({"num_steps": 1, "seed": seed}, FinetuningTrainConfig, "of seeds").seed for seed in seeds or ()]
    encoder = pretrained.encoder, pretrained.origin
    tasks = [read_task(each, values, source, *encoder, tables) for each in names]  # before training for hours
    summaries = []
    for each, task in zip(names, tasks, strict=True):
        directory = os.path.join(output_dir, each) if name == "glue" else output_dir
        job = prepared_job(task, pretrained, directory, strategy, interruption)
        run_seeds(job, seeds or [job.config.train.seed])
        if is_chief(strategy):
            summaries.append(summarize(each, job.data.primary_metric, results_of(job), job.config.origin))
            write_summary(directory, summaries[-1])
    if not is_chief(strategy):
        return ""
    if name != "glue":
        seed = median_seed(summaries[0])
        title = f"seed {seed}" + (" (the median)" if len(summaries[0]["seeds"]) > 1 else "")
        reports = results_of(job)[seed].get("reports", {})
        classes = [class_table(each, f"{split}, {title}", job.result_file(seed)) for split, each in reports.items()]
        return "\n\n".join([table(summaries), *classes])
    together = glue_summary(summaries)
    write_summary(output_dir, together)
    average = f"{together['glue_average'] * 100:.2f}" if together["glue_average"] is not None else "-"
    return f"{table(summaries)}\n\nGLUE score (mean of the medians, as in the paper): {average}"


def prepared_job(
    task: TaskToTrain,
    pretrained: StoredModel,
    directory: str,
    strategy: tf.distribute.Strategy,
    interruption: Interruption | None = None,
) -> Job:
    """Returns a task with its examples as features and all settings."""
    # The features depend on the settings, and the number of steps depends on the features.
    tokenizer = pretrained.tokenizer
    data = TaskData(task.config, tokenizer, task.train, task.evaluated)
    assert data.train is not None
    config = task.config_for(data.train.num_rows)
    metric, train = config.evaluation.best_metric, config.train
    if metric is not None:
        require_metric(metric, data.metric_names)
    elif train.keep == "best":
        metric = data.primary_metric
    num_checkpoints = -(-train.num_steps // train.save_every_steps) if train.keep == "all" else 1
    changes = {
        "evaluation": config.evaluation.model_copy(update={"best_metric": metric}),
        "train": train.model_copy(update={"keep_checkpoints": num_checkpoints}),
    }
    config = config.model_copy(update=changes)
    _require_whole_batches(config, strategy)
    test = None if task.test is None else TaskData(config, tokenizer, None, {"test": task.test})
    return Job(config, data, pretrained, directory, strategy, test, task.given, interruption or Interruption())


def _require_whole_batches(config: FinetuningConfig, strategy: tf.distribute.Strategy) -> None:
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
                f"micro-batches{candidates}; change it with {name}=N"
            )
