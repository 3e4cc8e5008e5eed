"""Fine-tuning on data in memory, by the code of `electra-tf finetune`."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from electra_tf.api.loading import load
from electra_tf.api.model import Model
from electra_tf.api.process import interruptible, overrides_of, started_strategy, users_process
from electra_tf.api.tables import as_table
from electra_tf.config.errors import UserError
from electra_tf.config.loader import read_values
from electra_tf.files import read_json
from electra_tf.tasks.finetune.examples import text_of
from electra_tf.tasks.finetune.run import finetune as run_finetuning
from electra_tf.tasks.finetune.summary import SUMMARY, best_seed, is_in_percent
from electra_tf.weights.hub import hub_source
from electra_tf.weights.source import load_pretrained


@dataclass(frozen=True, repr=False)
class FinetuningResult:
    """The results of `finetune`.

    Attributes:
        summary: the content of summary.json: `statistics` over the seeds by metric, and the results of the `seeds`.
        output_dir: the directory with the seeds' directories.
    """

    summary: dict[str, Any]
    output_dir: str

    @property
    def score(self) -> float:
        """The median over the seeds of the task's primary metric; of `glue` the mean of its tasks' medians.

        A fraction, at most 1, of SQuAD too, whose metrics in `summary` are in percent as in the official evaluation.
        """
        if "statistics" not in self.summary:
            return self.summary["glue_average"]
        median = self.summary["statistics"][self.summary["primary_metric"]]["median"]
        return median / 100.0 if median is not None and is_in_percent(self.summary["task"]) else median

    def __repr__(self) -> str:
        task, num_seeds = self.summary.get("task", "glue"), len(self.summary.get("seeds", ()))
        return f"<electra_tf.FinetuningResult {task}, {self.output_dir}: score {self.score}, {num_seeds} seeds>"

    def model(self, seed: int | None = None) -> Model:
        """The model of a seed.

        Args:
            seed: one of the seeds; None: the one with the best score on the validation data.

        Raises:
            UserError: the task is `glue`, or the seed's directory has no model.
        """
        if "seeds" not in self.summary:
            raise UserError(f"{self.output_dir} has a model for each task of glue; load the directory of a task's seed")
        return load(os.path.join(self.output_dir, f"seed_{best_seed(self.summary) if seed is None else seed}"))


@users_process()
def finetune(
    task: str,
    train: Any = None,
    validation: Any = None,
    *,
    init_from: str | os.PathLike[str],
    output_dir: str | os.PathLike[str],
    test: Any = None,
    data_dir: str | os.PathLike[str] | None = None,
    seeds: Iterable[int] | None = None,
    config: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    text_columns: Iterable[str] | None = None,
    label_column: str | None = None,
    labels: Iterable[Any] | None = None,
    class_weights: str | Mapping[Any, float] | Iterable[float] | None = None,
    keep: str | None = None,
    untrained: bool = False,
    vocab_file: str | None = None,
    cased: bool = False,
    strategy: str = "one_device",
) -> FinetuningResult:
    """Fine-tunes an encoder with several seeds, as `electra-tf finetune` does with the flags of these names.

    The same call continues an interrupted one; finished seeds are kept.

    Args:
        task: a kind of task for your own data (`classification`, `multi_label`, `regression`, `tagging`,
            `multiple_choice`, `similarity`), a task of GLUE, `glue` for eight of them, `squad_v1` or `squad_v2`.
        train: a table of pandas or pyarrow, a list of rows (dictionaries), a dictionary of columns, or the path of a
            file; None with `data_dir`.
        validation: the examples that are scored during and after training, as `train`.
        init_from: the encoder: a run, one of its checkpoints or milestones, a Hugging Face folder, or a checkpoint of
            the authors' code.
        output_dir: the directory for results; each seed gets one of its own in it.
        test: examples that the kept checkpoint of each seed is scored on once, as `train`.
        data_dir: the directory with GLUE's folders or SQuAD's files.
        seeds: one fine-tuning for each; None: `train.seed` of the settings, 0 if they have none.
        config: a preset (`authors`, `huggingface_head`) or a YAML file with settings.
        settings: settings by path, which override those of `config`: `{"train.num_epochs": 5}`.
        text_columns: one or two columns of text; None: `text`.
        label_column: the column of the label; None: `label`.
        labels: all labels, in this order; None: those of `train`, sorted.
        class_weights: the weight of each label in the loss, by label or in the order of the labels, or `balanced`.
        keep: the checkpoints that stay of each seed: `best`, `last`, `all` or `none`; None: see `train.keep`.
        untrained: True for random weights, with the sizes and the vocabulary of `init_from`.
        vocab_file: the vocabulary, for an encoder without one.
        cased: True if `vocab_file` is cased: text is not lower-cased.
        strategy: the devices: `one_device`, `mirrored`, `multi_worker_mirrored` or `tpu`.

    Returns:
        The scores of all seeds, and their models.

    Raises:
        UserError: data, encoder or settings do not fit together.
        TrainingStopped: the loss is not finite.
        KeyboardInterrupt: after a checkpoint; the same call continues.
    """
    for name, value in (("task", task), ("label_column", label_column or "")):
        if not isinstance(value, str):
            raise UserError(f"{name} is {value!r:.80}, expected a text")
    for name, items in (("text_columns", text_columns), ("labels", labels), ("seeds", seeds)):
        if isinstance(items, str) or not isinstance(items, Iterable | None):
            raise UserError(f"{name} is {items!r:.80}, expected a list; put it into brackets")
    given = {
        "name": task,
        "init_from": hub_source(os.fspath(init_from)),
        "untrained": untrained or None,
        "train.keep": keep,
        "data.data_dir": None if data_dir is None else os.fspath(data_dir),
        "data.vocab_file": None if vocab_file is None else os.fspath(vocab_file),
        "data.cased": cased or None,
        "task.text_columns": None if text_columns is None else list(map(str, text_columns)),
        "task.label_column": label_column,
        "task.labels": None if labels is None else list(map(text_of, labels)),
        "task.class_weights": _weights(class_weights),
    }
    tables = {}
    for split, data in (("train", train), ("validation", validation), ("test", test)):
        if isinstance(data, str | os.PathLike):
            given[f"data.{split}_file"] = os.fspath(data)
        elif data is not None:
            tables[split] = as_table(data, given["task.text_columns"] or ("text",), split)
    given = {name: value for name, value in given.items() if value is not None}
    given |= {f"data.{split}_file": None for split in tables}  # not those of `config`
    values, source = read_values(config, overrides_of(given | dict(overrides_of(settings))), kind="finetune")
    output_dir = os.fspath(output_dir)
    numbers = None if seeds is None else np.array(list(seeds)).tolist()  # Python's integers, not NumPy's
    pretrained = load_pretrained(given["init_from"], values)
    with started_strategy(strategy) as devices, interruptible() as interruption:
        run_finetuning(
            values, source, pretrained, output_dir, devices, seeds=numbers, tables=tables, interruption=interruption
        )
    return FinetuningResult(read_json(os.path.join(output_dir, SUMMARY)), output_dir)


def _weights(given: Any) -> Any:
    """The setting `class_weights`: `balanced`, weights by label, or a weight for each label."""
    if given is None or isinstance(given, str):
        return given
    if not isinstance(given, Mapping):  # a series of pandas has labels, an array has not
        given = getattr(given, "to_dict", np.array(given).tolist)()
    return {text_of(label): weight for label, weight in given.items()} if isinstance(given, Mapping) else given
