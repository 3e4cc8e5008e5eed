"""Fine-tuning on data in memory, by the code of `run_finetuning.py`."""

import json
import operator
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from electra_tf.api.model import Model, load
from electra_tf.api.tables import as_table
from electra_tf.config.errors import UserError
from electra_tf.config.loader import read_values
from electra_tf.files import read_json
from electra_tf.tasks.finetune.data_options import DataOptions
from electra_tf.tasks.finetune.protocol import Options
from electra_tf.tasks.finetune.protocol import finetune as run_protocol
from electra_tf.tasks.finetune.summary import SUMMARY, best_seed
from electra_tf.train.distribution import STRATEGIES, build_strategy
from electra_tf.weights.source import load_pretrained


@dataclass(frozen=True)
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
        """The median over the seeds of the task's primary metric; of `glue` the mean of its tasks' medians."""
        if "statistics" not in self.summary:
            return self.summary["glue_average"]
        return self.summary["statistics"][self.summary["primary_metric"]]["median"]

    def model(self, seed: int | None = None) -> Model:
        """The model of a seed; None: of the one with the best score on the validation data.

        Raises: UserError: the task is `glue`; or see `load`.
        """
        if "seeds" not in self.summary:
            raise UserError(f"{self.output_dir} has a model for each task of glue; load the directory of a task's seed")
        return load(os.path.join(self.output_dir, f"seed_{best_seed(self.summary) if seed is None else seed}"))


def finetune(
    task: str,
    train: Any = None,
    validation: Any = None,
    *,
    init_from: str | os.PathLike[str],
    output_dir: str | os.PathLike[str],
    test: Any = None,
    data_dir: str | os.PathLike[str] | None = None,
    seeds: Iterable[int] = (0,),
    config: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    text_columns: Iterable[str] = ("text",),
    label_column: str = "label",
    labels: Iterable[Any] | None = None,
    class_weights: str | Mapping[Any, float] | None = None,
    keep: str = "last",
    untrained: bool = False,
    vocab_file: str | None = None,
    cased: bool = False,
    strategy: str = "one_device",
) -> FinetuningResult:
    """Fine-tunes an encoder with several seeds, as `run_finetuning.py` does with the flags of these names.

    The same call continues an interrupted one; finished seeds are kept.

    Args:
        task: as `--task`.
        train, validation, test: a table in memory, or the path of a file; None with `data_dir`.
        settings: by path: `{"train.num_epochs": 5}`.
        vocab_file, cased: the vocabulary, for an encoder without one.
    Raises: UserError: data, encoder or settings do not fit together. TrainingStopped: the loss is not finite.
    """
    if strategy not in STRATEGIES:
        raise UserError(f"strategy is {strategy!r}, expected one of {', '.join(STRATEGIES)}")
    for name, value in (("task", task), ("label_column", label_column)):
        if not isinstance(value, str):
            raise UserError(f"{name} is {value!r:.80}, expected a text")
    for name, texts in (("text_columns", text_columns), ("labels", labels)):
        if isinstance(texts, str):
            raise UserError(f"{name} is {texts!r}, expected a list of texts; put it into brackets")
    if not isinstance(settings or {}, Mapping):
        raise UserError(f"settings is {settings!r:.80}, expected a dictionary such as {{'train.num_epochs': 5}}")
    text_columns = tuple(map(str, text_columns))
    overrides = [f"{name}={json.dumps(value, default=_plain)}" for name, value in (settings or {}).items()]
    values, source = read_values(config, overrides)
    train_file, validation_file, test_file = (
        data if data is None or isinstance(data, str | os.PathLike) else as_table(data, text_columns, name)
        for name, data in (("train", train), ("validation", validation), ("test", test))
    )
    options = DataOptions(
        data_dir=data_dir,
        train_file=train_file,
        validation_file=validation_file,
        test_file=test_file,
        text_columns=text_columns,
        label_column=label_column,
        labels=None if labels is None else tuple(map(str, labels)),
        class_weights=class_weights,
    )
    output_dir = os.fspath(output_dir)
    protocol = Options(output_dir, _integers(seeds), values, source, keep, untrained)
    pretrained = load_pretrained(init_from, vocab_file, cased, values.get("encoder"))
    run_protocol(task, pretrained, options, protocol, build_strategy(strategy))
    return FinetuningResult(read_json(os.path.join(output_dir, SUMMARY)), output_dir)


def _integers(seeds: Iterable[int]) -> tuple[int, ...]:
    """The seeds as plain integers; NumPy has others."""
    try:
        return tuple(seed if isinstance(seed, bool) else operator.index(seed) for seed in seeds)
    except TypeError:
        raise UserError(f"seeds is {seeds!r:.80}, expected a list of integers") from None


def _plain(value: Any) -> Any:
    """A number or array of NumPy as JSON knows them."""
    if not hasattr(value, "tolist"):
        raise UserError(f"settings has {value!r:.80}, expected a number, a text, a list or a dictionary")
    return value.tolist()
