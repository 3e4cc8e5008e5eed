"""From the flags of `run_finetuning.py` to its table: every task, every seed, and what they give together."""

import logging
import os
from dataclasses import dataclass

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.glue import GLUE_TASKS, PAPER_TASKS
from electra_tf.finetuning.pretrained import PretrainedEncoder, load_pretrained
from electra_tf.finetuning.seeds import Job, run_seeds
from electra_tf.finetuning.sources import Files, Source, open_source
from electra_tf.finetuning.submit import submit
from electra_tf.finetuning.summary import glue_summary, summarize, table, write_summary
from electra_tf.runs.interruption import Interruption
from electra_tf.tasks.finetune.config import FinetuningConfig, resolve
from electra_tf.tasks.finetune.data import TaskData
from electra_tf.train.distribution import is_chief

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """What the user wants beside a task and an encoder.

    Attributes:
        values, values_source: settings of `--config` and `--set`, and what messages call them.
        keep, untrained, force: see `electra_tf.finetuning.seeds.Job`.
        submission: whether to write the files of GLUE's site too.
        vocab_file, lower_case: see `load_pretrained`.
    """

    output_dir: str
    seeds: tuple[int, ...]
    values: dict
    values_source: str
    keep: str = "last"
    untrained: bool = False
    force: bool = False
    submission: bool = False
    vocab_file: str | None = None
    lower_case: bool = True


def finetune(
    task: str,
    init_from: str,
    files: Files,
    options: Options,
    strategy: tf.distribute.Strategy,
    interruption: Interruption | None = None,
) -> str:
    """Fine-tunes a task, or with `glue` all eight of the paper's, and writes what the seeds give together.

    Returns: a table for the terminal.
    Raises: UserError: if flags, files, encoder and settings do not fit. Interrupted, TrainingStopped: as of training.
    """
    sources = [open_source(name, files) for name in (PAPER_TASKS if task == "glue" else (task,))]
    heads = (
        options.values.get("encoder", {}).get("num_heads") if isinstance(options.values.get("encoder"), dict) else None
    )
    pretrained = load_pretrained(init_from, options.vocab_file, options.lower_case, heads)
    if options.submission and (options.keep == "none" or task not in ("glue", *GLUE_TASKS)):
        raise UserError(
            f"--submission is for GLUE's tasks, with --keep=last or best; this is {task}, --keep={options.keep}"
        )
    summaries, directories = {}, {}
    for source in sources:
        directory = os.path.join(options.output_dir, source.name) if task == "glue" else options.output_dir
        summary = _finetune_one(source, pretrained, options, directory, strategy, interruption)
        if is_chief(strategy):
            write_summary(directory, summary)
        summaries[source.name], directories[source.name] = summary, directory
    if options.submission:
        submit(summaries, directories, files.data_dir, options.output_dir, strategy)
    if task != "glue":
        return table(list(summaries.values()))
    together = glue_summary(list(summaries.values()))
    if is_chief(strategy):
        write_summary(options.output_dir, together)
    average = f"{together['glue_average'] * 100:.2f}" if together["glue_average"] is not None else "-"
    return f"{table(list(summaries.values()))}\nGLUE average of the medians, as the paper's: {average}"


def _finetune_one(
    source: Source,
    pretrained: PretrainedEncoder,
    options: Options,
    directory: str,
    strategy: tf.distribute.Strategy,
    interruption: Interruption | None,
) -> dict:
    config, data = configured(source, pretrained, options)
    if config.train.batch_size % (strategy.num_replicas_in_sync * config.train.gradient_accumulation_steps):
        raise UserError(
            f"train.batch_size is {config.train.batch_size}, which does not divide among "
            f"{strategy.num_replicas_in_sync} replicas; give --set train.batch_size=N"
        )
    job = Job(config, data, pretrained, directory, strategy, options.keep, options.untrained, options.force)
    results = run_seeds(job, options.seeds, interruption)
    return summarize(source.name, data.primary_metric, results, config.init_from)


def configured(source: Source, pretrained: PretrainedEncoder, options: Options) -> tuple[FinetuningConfig, TaskData]:
    """The resolved configuration of a task, and its data as features."""
    follows = {
        "name": source.name,
        "task": source.settings(options.values.get("task") or {}),
        "encoder": pretrained.config,
        "init_from": None if options.untrained else pretrained.source,
        "num_epochs": source.num_epochs,
        "max_seq_length": source.max_seq_length,
    }
    # Twice: the features need lengths and labels, and the number of steps needs the features.
    first = resolve(options.values, options.values_source, **follows, num_rows=1)
    data = source.data(first, pretrained.tokenizer)
    config = resolve(options.values, options.values_source, **follows, num_rows=data.train.num_rows)
    changes: dict = {}
    if options.keep == "best" and config.evaluation.best_metric is None:
        changes["evaluation"] = config.evaluation.model_copy(update={"best_metric": data.primary_metric})
    num_checkpoints = -(-config.train.num_steps // config.train.save_every_steps) if options.keep == "all" else 1
    changes["train"] = config.train.model_copy(update={"keep_checkpoints": num_checkpoints})
    return config.model_copy(update=changes), data
