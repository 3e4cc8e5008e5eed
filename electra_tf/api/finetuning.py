"""The orders of fine-tuning: `finetune`, on files or on data in memory, and `predict`."""

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from electra_tf.api.loading import load
from electra_tf.api.model import Model
from electra_tf.api.process import GivenSettings, interruptible, overrides_of, started_strategy, users_process
from electra_tf.api.tables import as_table
from electra_tf.config.errors import UserError
from electra_tf.config.loader import read_values
from electra_tf.files import exists, read_json
from electra_tf.finetuning.milestones import SCORES, finetune_milestones
from electra_tf.finetuning.predict import predict_file
from electra_tf.finetuning.run import finetune as run_finetuning
from electra_tf.tasks.finetune.config import FinetuningTrainConfig
from electra_tf.tasks.finetune.examples import text_of
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.tasks.finetune.summary import SUMMARY, best_seed, is_in_percent
from electra_tf.text.segment import ALREADY_SEGMENTED
from electra_tf.train.distribution import BATCHES_IN_FLIGHT
from electra_tf.train.step import parts_at_once
from electra_tf.weights.hub import hub_source
from electra_tf.weights.source import load_pretrained, load_trained


@dataclass(frozen=True, repr=False)
class FinetuningResult:
    """The results of `finetune`.

    Attributes:
        summary: the content of summary.json: `statistics` over the seeds by metric, and the results of the `seeds`;
            with `milestones` that of scores.json.
        output_dir: the directory with the seeds' directories.
        table: the scores as lines, as the command prints them.
        segment: that of the call, for `model`.
    """

    summary: dict[str, Any]
    output_dir: str
    table: str = ""
    segment: str | None = None

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
            seed: one of the seeds; None: the one with the best score on the validation data. For `glue`, `load` the
                directory of a task's seed.

        Raises:
            UserError: the seed's directory has no model.
        """
        name = f"seed_{best_seed(self.summary) if seed is None else seed}"
        return load(os.path.join(self.output_dir, name), segment=self.segment)


@users_process()
def finetune(
    task: str | None = None,
    train: Any = None,
    validation: Any = None,
    *,
    init_from: str | os.PathLike[str] | None = None,
    output_dir: str | os.PathLike[str],
    test: Any = None,
    data_dir: str | os.PathLike[str] | None = None,
    seeds: Iterable[int] | None = None,
    milestones: bool = False,
    config: str | os.PathLike[str] | None = None,
    settings: GivenSettings = None,
    text_columns: Iterable[str] | None = None,
    label_column: str | None = None,
    labels: Iterable[Any] | None = None,
    stride: int | None = None,
    class_weights: str | Mapping[Any, float] | Iterable[float] | None = None,
    keep: str | None = None,
    untrained: bool = False,
    vocab_file: str | os.PathLike[str] | None = None,
    cased: bool = False,
    segment: str | None = None,
    strategy: str = "one_device",
    tpu: str = "local",
    logical_cpu_devices: int = 1,
) -> FinetuningResult:
    """Fine-tunes an encoder with several seeds, as `electra-tf finetune` does with the flags of these names.

    The same call continues an interrupted one; finished seeds are kept.

    Args:
        task: a kind of task for your own data (`classification`, `multi_label`, `regression`, `tagging`,
            `multiple_choice`, `similarity`), a task of GLUE, `glue` for eight of them, `squad_v1` or `squad_v2`; None:
            as `config` says.
        train: a table of pandas or pyarrow, a list of rows (dictionaries), a dictionary of columns, or the path of a
            file; None with `data_dir`.
        validation: the examples that are scored during and after training, as `train`.
        init_from: the encoder: a run, one of its checkpoints or milestones, a Hugging Face folder, or a checkpoint of
            the authors' code; None: as `config` says.
        output_dir: the directory for results; each seed gets one of its own in it.
        test: examples that the kept checkpoint of each seed is scored on once, as `train`.
        data_dir: the directory with GLUE's folders or SQuAD's files.
        seeds: one fine-tuning for each; None: `train.seed` of the settings, 0 if they have none.
        milestones: fine-tune every milestone and the newest checkpoint of the run `init_from`.
        config: a preset (`authors`, `huggingface_head`) or a YAML file with settings.
        settings: settings by path, which override those of `config`: `{"train.num_epochs": 5}`.
        text_columns: one or two columns of text; None: `text`.
        label_column: the column of the label; None: `label`.
        labels: all labels, in this order; None: those of `train`, sorted.
        stride: tokens between the starts of the windows into which a long text is split; None: it loses its end.
        class_weights: the weight of each label in the loss, by label or in the order of the labels, or `balanced`.
        keep: the checkpoints that stay of each seed: `best`, `last`, `all` or `none`; None: see `train.keep`.
        untrained: True for random weights, with the sizes and the vocabulary of `init_from`.
        vocab_file: the vocabulary, for an encoder without one.
        cased: True if `vocab_file` is cased: text is not lower-cased.
        segment: the program that cuts text into words, as for `load`. A `config` with it needs it here, too.
        strategy: the devices, see `pretrain`.
        tpu: of strategy `tpu`, see `pretrain`.
        logical_cpu_devices: of strategy `mirrored`, see `pretrain`.

    Returns:
        The scores of all seeds, and their models.

    Raises:
        UserError: data, encoder or settings do not fit together.
        TrainingStopped: the loss is not finite.
        KeyboardInterrupt: after a checkpoint; the same call continues.
    """
    text_columns = [text_columns] if isinstance(text_columns, str) else text_columns
    for name, items in (("labels", labels), ("seeds", seeds)):
        if isinstance(items, str):  # whose letters would be the items
            raise UserError(f"{name} is {items!r:.80}, expected a list; put it into brackets")
    if class_weights is not None and not isinstance(class_weights, str | Mapping):
        # A series of pandas has labels, an array has not.
        class_weights = getattr(class_weights, "to_dict", np.array(class_weights).tolist)()
    if isinstance(class_weights, Mapping):
        class_weights = {text_of(label): weight for label, weight in class_weights.items()}
    given: dict[str, Any] = {
        "name": task,
        "init_from": None if init_from is None else hub_source(init_from),
        "untrained": untrained or None,
        "train.keep": keep,
        "data.data_dir": None if data_dir is None else os.fspath(data_dir),
        "data.vocab_file": None if vocab_file is None else os.fspath(vocab_file),
        "data.cased": cased or None,
        "data.segment": segment,
        "task.text_columns": None if text_columns is None else list(map(str, text_columns)),
        "task.label_column": label_column,
        "task.labels": None if labels is None else list(map(text_of, labels)),
        "task.stride": stride,
        "task.class_weights": class_weights,
    }
    given = {name: value for name, value in given.items() if value is not None}
    tables = {}
    for split, data in (("train", train), ("validation", validation), ("test", test)):
        if isinstance(data, str | os.PathLike):
            given[f"data.{split}_file"] = os.fspath(data)
        elif data is not None:
            tables[split] = as_table(data, given.get("task.text_columns") or ("text",), split)
            given[f"data.{split}_file"] = None  # not that of `config`
    values, source = read_values(config, [*overrides_of(given), *overrides_of(settings)], kind="finetune")
    if missing := [name for name, setting in (("task", "name"), ("init_from", "init_from")) if not values.get(setting)]:
        raise UserError(f"{' and '.join(missing)} missing; give it, or a config that has it")
    data_settings = values.get("data")
    stated = data_settings.get("segment") if isinstance(data_settings, Mapping) else None
    if stated not in (None, ALREADY_SEGMENTED, segment):  # a file of settings is no reason to run a program
        raise UserError(f"{source}: data.segment is the program {stated!r}; to run it, give it as segment, too")
    output_dir = os.fspath(output_dir)
    numbers = None if seeds is None else np.array(list(seeds)).tolist()  # Python's integers, not NumPy's
    with (
        started_strategy(strategy, tpu, logical_cpu_devices, _parts_at_once(values)) as devices,
        interruptible() as interruption,
    ):
        options: dict[str, Any] = {"seeds": numbers, "tables": tables, "interruption": interruption}
        if milestones:
            table = finetune_milestones(values, source, output_dir, devices, **options)
        else:
            pretrained = load_pretrained(values["init_from"], values)
            table = run_finetuning(values, source, pretrained, output_dir, devices, **options)
    summary = read_json(os.path.join(output_dir, SCORES if milestones else SUMMARY))
    return FinetuningResult(summary, output_dir, table, segment)


def _parts_at_once(values: Mapping[str, Any]) -> int:
    """See `parts_at_once`. 1 for similarity, where it depends on the data; wrong settings end the run later."""
    with contextlib.suppress(TypeError, ValueError):
        train = FinetuningTrainConfig(**{"num_steps": 1} | (values.get("train") or {}))
        settings = getattr(KINDS.get(values["name"]), "settings", None)
        return 1 if hasattr(settings, "rows_together") else parts_at_once(train, rows_together=1)
    return 1


@users_process()
def predict(
    model_dir: str | os.PathLike[str],
    input_file: str | os.PathLike[str],
    output_file: str | os.PathLike[str],
    *,
    text_columns: Iterable[str] | None = None,
    label_column: str | None = None,
    segment: str | None = None,
    strategy: str = "one_device",
    tpu: str = "local",
    logical_cpu_devices: int = 1,
) -> str:
    """Writes a file with the predictions of a fine-tuned model for the examples in another file.

    Args:
        model_dir: the directory of a fine-tuned seed, or another fine-tuned model, see `load`.
        input_file: the examples, formatted as those of the training.
        output_file: a new file.
        text_columns: one or two columns of text; None: those of the training.
        label_column: the column of the labels; None: that of the training, which may be missing.
        segment: the program that cuts text into words, see `load`.
        strategy: the devices, see `pretrain`.
        tpu: of strategy `tpu`, see `pretrain`.
        logical_cpu_devices: of strategy `mirrored`, see `pretrain`.

    Returns:
        Tables of the scores; empty without labels.

    Raises:
        UserError: the file exists, there is no such model, or the examples do not fit it.
    """
    if exists(output_file):
        raise UserError(f"output_file={output_file} exists; give another name")
    with started_strategy(strategy, tpu, logical_cpu_devices, BATCHES_IN_FLIGHT) as devices:
        with devices.scope():
            model = dataclasses.replace(load_trained(model_dir, flag="model_dir").finished(), segment=segment)
        columns = None if text_columns is None else tuple(text_columns)
        return predict_file(model, os.fspath(input_file), os.fspath(output_file), columns, devices, label_column)
