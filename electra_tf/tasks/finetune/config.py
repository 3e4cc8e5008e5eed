"""The settings of a fine-tuning run. Defaults that depend on the encoder or on the data are filled in by `resolve`."""

from typing import Annotated, Any, Literal, Union

from pydantic import Field, model_validator

from electra_tf.config.errors import UserError
from electra_tf.config.loader import merge
from electra_tf.config.networks import EncoderConfig
from electra_tf.config.schema import DataConfig, EvaluationConfig, TrainConfig
from electra_tf.config.settings import Count, CountOrZero, Fraction, MayChange, Positive
from electra_tf.config.validation import validate
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.tasks.finetune.settings import FinetuningOptimizerConfig, FinetuningRunConfig

# The paper fine-tunes with dropout, even encoders that were pre-trained without it.
_DROPOUT = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
# Largest hidden size, learning rate, layerwise decay (paper, table 6).
_RATES = ((256, 3e-4, 0.8), (768, 1e-4, 0.8), (2**31, 5e-5, 0.9))

# Of the group `task`; its setting `kind` selects one of them.
TaskConfig: Any = Annotated[
    Union[tuple({kind.settings: None for kind in KINDS.values()})],  # noqa: UP007
    Field(discriminator="kind"),
]


class FinetuningDataConfig(DataConfig):
    """The files of the task, and the vocabulary of an encoder without one (`vocab_file`)."""

    data_dir: MayChange[str | None] = None  # the folders of GLUE, or the files of SQuAD
    train_file: MayChange[str | None] = None  # the labelled examples to train on
    validation_file: MayChange[str | None] = None  # the dev set
    test_file: MayChange[str | None] = None  # scored once by the kept checkpoint of each seed
    cased: MayChange[bool] = False  # `vocab_file` is cased: text is not lower-cased
    segment: str | None = None  # the program that cuts text into words, or none; --segment says it, too, to run it


class FinetuningTrainConfig(TrainConfig):
    """The settings of pre-training, and `num_epochs`, from which `num_steps` is computed unless it is given."""

    num_epochs: Positive | None = None  # passes over the training file; null: the task's default, or num_steps
    # The checkpoints that stay when a seed is done. best: that of the best epoch, by evaluation.best_metric or else by
    # the task's main score. With best_metric that epoch is scored, so best is the default, and last is refused.
    keep: MayChange[Literal["best", "last", "all", "none"]] = "last"
    batch_size: Count = 32  # examples of one update, over all replicas
    log_every_steps: MayChange[Count] = 20  # steps from report to report
    milestone_fractions: MayChange[tuple[Fraction, ...]] = ()  # as in pre-training, but none


class FinetuningEvaluationConfig(EvaluationConfig):
    """Evaluation on the whole dev set, by default after every epoch."""

    max_batches: None = None  # the whole dev set
    # As in pre-training. Here they choose the epoch that is scored.
    best_metric: str | None = None
    patience: CountOrZero = 0  # as in pre-training


class FinetuningConfig(FinetuningRunConfig):
    """The settings of a fine-tuning run: one task, one seed."""

    name: str  # the task's name, as in `--task`
    task: TaskConfig
    data: FinetuningDataConfig
    optimizer: FinetuningOptimizerConfig
    train: FinetuningTrainConfig
    evaluation: FinetuningEvaluationConfig = FinetuningEvaluationConfig()
    init_from: str | None = None  # the path of the pre-trained encoder
    untrained: bool = False  # only the sizes and the vocabulary of `init_from` are read; the weights are random

    @model_validator(mode="after")
    def _keeps_the_checkpoint_that_is_scored(self) -> "FinetuningConfig":
        is_last = "keep" in self.train.model_fields_set and self.train.keep == "last"
        if is_last and self.evaluation.best_metric is not None:
            raise ValueError("train.keep is last, but evaluation.best_metric keeps the best; remove one")
        return self

    @property
    def origin(self) -> str | None:
        """The path of the encoder with the initial weights; None: they are random."""
        return None if self.untrained else self.init_from

    @property
    def rows_together(self) -> int:
        return getattr(self.task, "rows_together", 1)

    @property
    def stable_steps(self) -> int:
        """0: fine-tuning is not extended."""
        return 0


def resolve(
    values: dict[str, Any],
    source: str,
    *,
    name: str,
    task: dict[str, Any],
    encoder: EncoderConfig,
    init_from: str | None,
    num_epochs: float,
    max_seq_length: int,
    num_rows: int | None,
) -> FinetuningConfig:
    """Returns the configuration of a run: the user's settings, with defaults from the task, the encoder and the data.

    Args:
        values: the user's settings, which replace defaults.
        source: their name in messages.
        task: the defaults of the `task` group, `kind` and `labels` among them.
        init_from: the path of the encoder.
        num_epochs, max_seq_length: the task's defaults; the length is at most the number of the encoder's positions.
        num_rows: sequences of the training split; None for the settings that read it, whose steps mean nothing.
    Raises: UserError: an unknown setting, a wrong type or an impossible combination.
    """
    learning_rate, decay = next(row[1:] for row in _RATES if encoder.hidden_size <= row[0])
    train = values.get("train")
    has_steps = isinstance(train, dict) and train.get("num_steps") is not None
    defaults: dict[str, Any] = {
        "task": task,
        "encoder": encoder.model_dump(mode="json") | _DROPOUT,
        "data": {"max_seq_length": min(max_seq_length, encoder.max_position_embeddings)},
        "optimizer": {"learning_rate": learning_rate, "layerwise_decay": decay},
        "train": {"num_steps": 1, "num_epochs": None if has_steps else num_epochs, "save_every_steps": 1},
        "evaluation": {"every_steps": 1},
    }
    given = merge(_given(values, defaults), {"name": name, "init_from": init_from})
    config = validate(merge(defaults, given), FinetuningConfig, source)
    if num_rows is None:
        return config
    steps_per_epoch = -(-num_rows // config.train.batch_size)
    defaults["evaluation"]["every_steps"] = defaults["train"]["save_every_steps"] = steps_per_epoch
    if config.evaluation.best_metric is not None:
        defaults["train"]["keep"] = "best"
    if (epochs := config.train.num_epochs) is not None:
        # Whole batches of an epoch times epochs, as in the authors' code: finetune/task_builder.py, run_finetuning.py.
        defaults["train"]["num_steps"] = num_steps = max(1, int(steps_per_epoch * epochs))
        if has_steps and config.train.num_steps != num_steps:
            raise UserError(
                f"{source}: train.num_epochs and train.num_steps are both given, and {epochs:g} epochs are {num_steps} "
                f"steps, not {config.train.num_steps}; set one of them to null"
            )
    return validate(merge(defaults, given), FinetuningConfig, source)


def _given(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """The settings without a null where a value follows from the task, the encoder or the data."""
    return {
        name: _given(value, defaults.get(name) or {}) if isinstance(value, dict) else value
        for name, value in values.items()
        if value is not None or name not in defaults
    }
