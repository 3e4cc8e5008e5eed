"""Fine-tuning on data in memory, by the code of `run_finetuning.py`."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from electra_tf.api.model import Model, load
from electra_tf.api.tables import as_table
from electra_tf.config.errors import UserError
from electra_tf.config.loader import read_values
from electra_tf.files import read_json
from electra_tf.tasks.finetune.datasets import DataOptions
from electra_tf.tasks.finetune.protocol import Options
from electra_tf.tasks.finetune.protocol import finetune as run_protocol
from electra_tf.tasks.finetune.summary import SUMMARY, best_seed
from electra_tf.train.distribution import STRATEGIES, build_strategy
from electra_tf.weights.source import load_pretrained

KEPT = ("best", "last", "all", "none")


@dataclass(frozen=True)
class FinetuningResult:
    """The results of `finetune`.

    Attributes:
        summary: the content of summary.json: `statistics` over the seeds by metric, and the results of the `seeds`.
        output_dir: the directory with the seeds' directories.
    """

    summary: dict
    output_dir: str

    @property
    def score(self) -> float:
        """The median over the seeds of the task's primary metric."""
        return self.summary["statistics"][self.summary["primary_metric"]]["median"]

    def model(self, seed: int | None = None) -> Model:
        """The model of a seed; None: of the one with the best score on the validation data."""
        return load(os.path.join(self.output_dir, f"seed_{best_seed(self.summary) if seed is None else seed}"))


def finetune(
    task: str,
    train: Any = None,
    validation: Any = None,
    *,
    init_from: str | os.PathLike,
    output_dir: str | os.PathLike,
    test: Any = None,
    data_dir: str | os.PathLike | None = None,
    seeds: Sequence[int] = (0,),
    config: str | os.PathLike | None = None,
    settings: Mapping[str, Any] | None = None,
    text_columns: Sequence[str] = ("text",),
    label_column: str = "label",
    labels: Sequence[str] | None = None,
    class_weights: str | Mapping[str, float] | None = None,
    keep: str = "last",
    untrained: bool = False,
    strategy: str = "one_device",
) -> FinetuningResult:
    """Fine-tunes an encoder with several seeds, as `run_finetuning.py` does with the flags of these names.

    The same call continues an interrupted one; finished seeds are kept.

    Args:
        task: as `--task`.
        train, validation, test: a table in memory, or the path of a file; None with `data_dir`.
        settings: by path: `{"train.num_epochs": 5}`.
    Raises: UserError: data, encoder or settings do not fit together. TrainingStopped: the loss is not finite.
    """
    for name, value, choices in (("keep", keep, KEPT), ("strategy", strategy, tuple(STRATEGIES))):
        if value not in choices:
            raise UserError(f"{name} is {value!r}, expected one of {', '.join(choices)}")
    if isinstance(seeds, int) or not seeds or isinstance(labels, str):
        raise UserError("seeds is a list of one integer or more, and labels a list of texts")
    overrides = [f"{name}={json.dumps(value)}" for name, value in (settings or {}).items()]
    values, source = read_values(config, overrides)
    named = (("train", train), ("validation", validation), ("test", test))
    files = {
        f"{name}_file": data
        if data is None or isinstance(data, str | os.PathLike)
        else as_table(data, text_columns, name)
        for name, data in named
    }
    options = DataOptions(
        data_dir=data_dir,
        text_columns=tuple(text_columns),
        label_column=label_column,
        labels=labels and tuple(labels),
        class_weights=class_weights,
        **files,
    )
    output_dir = os.fspath(output_dir)
    protocol = Options(output_dir, tuple(seeds), values, source, keep, untrained)
    run_protocol(task, load_pretrained(init_from), options, protocol, build_strategy(strategy))
    return FinetuningResult(read_json(os.path.join(output_dir, SUMMARY)), output_dir)
