"""The examples of a fine-tuning by its settings, and the settings that follow from the examples."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from electra_tf.config.errors import UserError, did_you_mean
from electra_tf.config.loader import merge
from electra_tf.config.networks import EncoderConfig
from electra_tf.data.tables import Table
from electra_tf.tasks.finetune.benchmarks import BENCHMARKS, GLUE_TASKS, read_glue
from electra_tf.tasks.finetune.config import FinetuningConfig, resolve
from electra_tf.tasks.finetune.examples import Examples
from electra_tf.tasks.finetune.kinds import KINDS

_SPLITS = ("train", "validation", "test")
TASKS = (*BENCHMARKS, *(name for name, kind in KINDS.items() if kind.is_for_own_data))


@dataclass(frozen=True)
class TaskToTrain:
    """The examples of a task, and its settings."""

    train: Examples
    evaluated: Mapping[str, Examples]  # the dev set by name; MNLI has two
    test: Examples | None  # of `data.test_file`
    config: FinetuningConfig  # without what follows from the number of training rows
    config_for: Callable[[int], FinetuningConfig]  # all settings for that number
    given: dict[str, Any]  # the user's settings, with the name of this task and the path of the encoder


def read_task(
    name: str,
    values: dict[str, Any],
    source: str,
    encoder: EncoderConfig,
    init_from: str | None,
    tables: Mapping[str, Table] | None = None,
) -> TaskToTrain:
    """Reads the examples of a task, and completes its settings by them.

    Args:
        values, source, encoder, init_from: see `resolve`.
        tables: data in memory, in place of the files of the splits `train`, `validation` and `test`.
    Raises: UserError: the task is unknown, a setting contradicts it; a file is missing, useless or cannot be read.
    """
    facts, benchmark = task_facts(name, values, source), BENCHMARKS.get(name)
    resolved = functools.partial(
        resolve,
        source=source,
        name=name,
        task=facts,
        encoder=encoder,
        init_from=init_from,
        num_epochs=benchmark.num_epochs if benchmark else 3.0,
        max_seq_length=benchmark.max_seq_length if benchmark else 128,
    )
    config = resolved(values, num_rows=None)
    data, kind = config.data, KINDS[config.task.kind]
    if benchmark is None and data.data_dir is not None:
        benchmark = GLUE_TASKS.get(kind.glue_task or "")
    is_glue = benchmark is not None and benchmark.name in GLUE_TASKS
    files = {f"{split}_file": (tables or {}).get(split, getattr(data, f"{split}_file")) for split in _SPLITS}
    has_folder = data.data_dir is not None
    for setting, value in {"data_dir": data.data_dir, **files}.items():
        is_read = benchmark is not None if setting == "data_dir" else not is_glue
        is_needed = is_glue if setting == "data_dir" else not (is_glue or has_folder or setting == "test_file")
        if is_needed if value is None else not is_read:
            needed = "is needed" if benchmark is None or is_glue else "or data_dir is needed"
            state = needed if value is None else "has no effect"
            raise UserError(f"{setting} {state} with task={name}{' and data_dir' * has_folder}; see docs/finetuning.md")

    def read(split: str, config: FinetuningConfig) -> Examples:
        if benchmark is not None and is_glue:
            return read_glue(benchmark, data.data_dir or "", split)
        file = files[f"{split}_file"]
        if file is None and benchmark is not None:
            file = benchmark.find(data.data_dir or "", split)
        return kind.read(file, config)

    train = read("train", config).labelled()
    given = merge(values, {"name": name, "init_from": init_from})
    settings = merge(given, {"task": _derived_settings(config, given, train)})
    config = resolved(settings, num_rows=None)
    splits = benchmark.files if benchmark is not None else _SPLITS[:2]
    evaluated = {split: read(split, config).labelled() for split in splits if split != "train"}
    test = None if files["test_file"] is None else read("test", config)
    if test is not None:
        test.labelled()  # one with a label at least
    return TaskToTrain(train, evaluated, test, config, lambda num_rows: resolved(settings, num_rows=num_rows), given)


def task_facts(name: str, values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Returns the settings of the group `task` that follow from the task's name. Args: see `read_task`.

    Raises: UserError: the task is unknown, or a setting contradicts it.
    """
    if name not in TASKS:
        raise UserError(f"task={name} is unknown{did_you_mean(name, (*TASKS, 'glue'))}")
    given, benchmark = values.get("task"), BENCHMARKS.get(name)
    fixed = benchmark.settings if benchmark else {"kind": name}
    for setting, value in given.items() if isinstance(given, dict) else ():
        if setting in fixed and (list(value) if isinstance(value, tuple) else value) != fixed[setting]:
            raise UserError(
                f"config {source}: task.{setting} is {value!r}, but with task={name} it is {fixed[setting]!r}; "
                "remove the setting"
            )
    columns = () if benchmark else KINDS[name].text_columns
    return {**fixed, "text_columns": list(columns)} if columns else fixed


def _derived_settings(config: FinetuningConfig, given: Mapping[str, Any], train: Examples) -> dict[str, Any]:
    """The settings of the task that follow from the training split. Args: given: the user's."""
    kind, is_benchmark = KINDS[config.task.kind], config.name in BENCHMARKS
    if is_benchmark and not getattr(config.task, "class_weights", ()):
        return {}
    derived, stated = kind.derive(train, config.task), given.get("task") or {}
    if not is_benchmark and kind.glue_task and config.data.data_dir is not None:
        derived["text_columns"] = list(GLUE_TASKS[kind.glue_task].parquet_texts)
    # A given setting stays, but for the weights, which are given by label or as `balanced`.
    return {name: value for name, value in derived.items() if name == "class_weights" or stated.get(name) is None}
