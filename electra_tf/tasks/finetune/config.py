"""The settings of a fine-tuning run. Defaults that depend on the encoder or on the data are filled in by `resolve`."""

import math
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from electra_tf.config.errors import UserError
from electra_tf.config.loader import merge
from electra_tf.config.networks import EncoderConfig
from electra_tf.config.schema import DataConfig, EvaluationConfig, OptimizerConfig, RunConfig, TrainConfig
from electra_tf.config.settings import Count, CountOrZero, DropoutRate, Fraction, NonNegative, Positive, Real, Settings
from electra_tf.config.validation import validate

# The paper fine-tunes with dropout, even encoders that were pre-trained without it.
_DROPOUT = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
# Largest hidden size, learning rate, layerwise decay (paper, table 6).
_RATES = ((256, 3e-4, 0.8), (768, 1e-4, 0.8), (2**31, 5e-5, 0.9))

Head = Literal["linear", "huggingface"]


class SentenceConfig(Settings):
    """Predicts one label, several labels or a number for a text or a pair of texts."""

    kind: Literal["classification", "multi_label", "regression"]
    # In the order of their ids; empty for regression. By default those of the training file, sorted.
    labels: tuple[str, ...] = ()
    text_columns: tuple[str, ...] = ()  # one or two names, which --predict looks up in its input too
    label_column: str = "label"  # --predict scores an input that has this column
    # Targets of regression are scaled from this range to [0, 1].
    min_value: Real = 0.0
    max_value: Real = 1.0  # the upper end of that range
    # linear: dropout and one dense layer, as in the authors' code. huggingface: as in ElectraForSequenceClassification,
    # or ModernBertForSequenceClassification with the modern block.
    head: Head = "linear"
    dropout: DropoutRate = 0.1  # rate in the head
    # Weights of the labels in the loss, in the order of `labels` or by label; empty: all 1. balanced: from the training
    # file, by scikit-learn's formula. A run's config.yaml has the numbers.
    class_weights: tuple[Positive, ...] | dict[str, Positive] | Literal["balanced"] = ()
    # Train on both orders of a pair; for tasks in which the order has no meaning. As in the authors' code.
    double_unordered: bool = False
    # Tokens between the starts of two windows of a long text; null: a long text is truncated.
    stride: Count | None = None

    @field_validator("class_weights", mode="before")
    @classmethod
    def _weights_are_positive(cls, value: Any) -> Any:
        weights = [*value.values()] if isinstance(value, dict) else value
        is_list = isinstance(weights, list | tuple)
        if value != "balanced" and not (is_list and all(map(_is_positive, weights))):
            raise ValueError(
                f"class_weights is {value!r:.80}, expected positive weights by label or in the order of the labels, or "
                "balanced"
            )
        return value

    @property
    def num_outputs(self) -> int:
        """C, the width of the logits."""
        return 1 if self.kind == "regression" else len(self.labels)

    @model_validator(mode="after")
    def _settings_are_consistent(self) -> "SentenceConfig":
        if self.kind == "regression" and self.max_value <= self.min_value:
            raise ValueError(f"max_value {self.max_value} is not above min_value {self.min_value}")
        if self.stride is not None and len(self.text_columns) == 2:
            raise ValueError(f"stride is {self.stride}, but only single texts have windows; remove it for pairs")
        if self.kind == "regression" and (self.labels or self.class_weights):
            raise ValueError("labels and class_weights have no effect in a regression; remove them")
        weights = self.class_weights
        if isinstance(weights, tuple) and weights and self.labels and len(weights) != len(self.labels):
            raise ValueError(f"{len(weights)} class_weights for {len(self.labels)} labels; give one for each")
        return self


TagScheme = Literal["iob1", "iob2", "ioe1", "ioe2", "bioes", "bilou", "plain"]


class TaggingConfig(Settings):
    """Predicts a label for each word."""

    kind: Literal["tagging"]
    labels: tuple[str, ...] = ()  # in the order of their ids; by default those of the training file, sorted
    # How tags mark spans, as seqeval names it (bioes is its IOBES). plain: no spans, such as parts of speech.
    scheme: TagScheme = "iob2"
    # linear: one dense layer. huggingface: as in transformers' class, which with the modern block has two layers more.
    head: Head = "linear"
    dropout: DropoutRate = 0.0  # rate in the head, as in the authors' code


class QuestionAnsweringConfig(Settings):
    """Predicts the span of a context that answers a question, or that the question has no answer."""

    kind: Literal["question_answering"]
    version_2: bool  # some questions have no answer
    joint_prediction: bool = True  # the end is predicted given the start; false: both independently
    answerable_classifier: bool = True  # a head predicts whether the question has an answer
    # linear: the authors' head. huggingface: as in transformers' class, which predicts start and end independently;
    # with the modern block it has two layers more.
    head: Head = "linear"
    # That head also reads the mean of the tokens' vectors, weighted by the probabilities of the start.
    answerable_uses_start_logits: bool = True
    answerable_loss_weight: NonNegative = 0.5  # weight of the classifier's loss
    head_size: Count = 512  # width of the layers below the end and below that head
    beam_size: Count = 20  # starts that inference considers, and ends for each of them
    doc_stride: Count = 128  # tokens between the starts of two windows of a long context
    max_query_length: Count = 64  # tokens at which a question is cut
    max_answer_length: Count = 30  # tokens of the longest answer
    n_best_size: Count = 20  # answers that are written for each question
    # The answer is "" if the null odds are larger; null: chosen on the dev set.
    null_threshold: Real | None = None

    @model_validator(mode="after")
    def _can_leave_questions_unanswered(self) -> "QuestionAnsweringConfig":
        if self.version_2 and self.joint_prediction and not self.answerable_classifier:
            raise ValueError("version_2 with joint_prediction needs answerable_classifier: true")
        if self.head == "huggingface" and (self.joint_prediction or self.answerable_classifier):
            raise ValueError("head huggingface needs joint_prediction: false and answerable_classifier: false")
        return self


class MultipleChoiceConfig(Settings):
    """Predicts which of several choices continues or answers a context."""

    kind: Literal["multiple_choice"]
    # linear: dropout and one dense layer. huggingface: as in ElectraForMultipleChoice or ModernBertForMultipleChoice.
    head: Head = "linear"
    dropout: DropoutRate = 0.1  # rate in the head


class SimilarityConfig(Settings):
    """Vectors of texts whose cosines are scores of similarity, or are largest for texts that belong together."""

    kind: Literal["similarity"]
    text_columns: tuple[str, ...] = ()  # two names
    label_column: str = "label"  # --predict scores an input that has this column
    # Pairs have no scores; the other pairs of a batch are the wrong answers. Follows from the training file.
    is_contrastive: bool = False
    # Scores are scaled from this range to [0, 1].
    min_value: Real = 0.0
    max_value: Real = 1.0  # the upper end of that range
    num_candidates: Annotated[Count, Field(ge=2)] = 32  # without scores: pairs among which a text finds its own
    temperature: Positive = 0.05  # without scores: divides the cosines

    @model_validator(mode="after")
    def _settings_are_consistent(self) -> "SimilarityConfig":
        if self.max_value <= self.min_value:
            raise ValueError(f"max_value {self.max_value} is not above min_value {self.min_value}")
        return self


TaskConfig = Annotated[
    SentenceConfig | TaggingConfig | QuestionAnsweringConfig | MultipleChoiceConfig | SimilarityConfig,
    Field(discriminator="kind"),
]


class FinetuningOptimizerConfig(OptimizerConfig):
    """The optimizer of pre-training, with layerwise learning rates and a warm-up over a fraction of the steps."""

    warmup_steps: CountOrZero = 0  # above 0: replaces warmup_fraction
    warmup_fraction: Fraction = 0.1  # the warm-up as a share of the steps
    weight_decay_rate: NonNegative = 0.0  # the paper's; the authors' code has 0.01
    # The learning rate of a layer, as a multiple of the rate of the layer above it; 1: all layers have the same rate.
    layerwise_decay: Annotated[Positive, Field(le=1.0)]
    # authors: the top layer has `decay ** 2`, as in their code, which skips a power. even: it has `decay`.
    layerwise_decay_top: Literal["authors", "even"] = "authors"

    @model_validator(mode="before")
    @classmethod
    def _accept_former_name(cls, values: Any) -> Any:
        """Takes `warmup_proportion`, as older runs call `warmup_fraction`; a number of steps replaces the fraction."""
        if isinstance(values, dict):
            values = dict(values)
            if "warmup_proportion" in values:
                values.setdefault("warmup_fraction", values.pop("warmup_proportion"))
            if "warmup_steps" in values:
                values.setdefault("warmup_fraction", 0.0)
        return values


class FinetuningDataConfig(DataConfig):
    """The files of the task, and the vocabulary of an encoder without one (`vocab_file`)."""

    data_dir: str | None = None  # the folders of GLUE, or the files of SQuAD
    train_file: str | None = None  # the labelled examples to train on
    validation_file: str | None = None  # the dev set
    test_file: str | None = None  # scored once by the kept checkpoint of each seed
    cased: bool = False  # `vocab_file` is cased: text is not lower-cased


class FinetuningTrainConfig(TrainConfig):
    """The settings of pre-training, and `num_epochs`, from which `num_steps` is computed unless it is given."""

    num_epochs: Positive | None = None  # passes over the training file; null: the task's default, or num_steps
    keep: Literal["best", "last", "all", "none"] = "last"  # the checkpoints that stay when a seed is done
    batch_size: Count = 32  # examples of one update, over all replicas
    log_every_steps: Count = 20  # steps from report to report
    milestone_fractions: tuple[Fraction, ...] = ()  # as in pre-training, but none


class FinetuningEvaluationConfig(EvaluationConfig):
    """Evaluation on the whole dev set, by default after every epoch."""

    max_batches: None = None  # the whole dev set


class FinetuningConfig(RunConfig):
    """The settings of a fine-tuning run: one task, one seed."""

    name: str  # the task's name, as in `--task`
    task: TaskConfig
    data: FinetuningDataConfig
    optimizer: FinetuningOptimizerConfig
    train: FinetuningTrainConfig
    evaluation: FinetuningEvaluationConfig = FinetuningEvaluationConfig()
    init_from: str | None = None  # the path of the pre-trained encoder
    untrained: bool = False  # only the sizes and the vocabulary of `init_from` are read; the weights are random

    @property
    def origin(self) -> str | None:
        """The path of the encoder with the initial weights; None: they are random."""
        return None if self.untrained else self.init_from

    @property
    def rows_together(self) -> int:
        """The number of rows that one micro-batch of one replica, or its half, must hold together."""
        task = self.task
        return task.num_candidates if isinstance(task, SimilarityConfig) and task.is_contrastive else 1

    @property
    def stable_steps(self) -> int:
        """0: fine-tuning is not extended."""
        return 0


def resolve(
    values: dict,
    source: str,
    *,
    name: str,
    task: dict,
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
        name: the task's name.
        task: the defaults of the `task` group, `kind` and `labels` among them.
        encoder: the sizes of the encoder.
        init_from: the path of the encoder.
        num_epochs, max_seq_length: the task's defaults; the length is at most the number of the encoder's positions.
        num_rows: sequences of the training split; None before they are known.
    Raises: UserError: an unknown setting, a wrong type or an impossible combination.
    """
    learning_rate, decay = next(row[1:] for row in _RATES if encoder.hidden_size <= row[0])
    given = values.get("train")
    has_steps = isinstance(given, dict) and given.get("num_steps") is not None
    defaults = {
        "task": task,
        "encoder": encoder.model_dump(mode="json") | _DROPOUT,
        "data": {"max_seq_length": min(max_seq_length, encoder.max_position_embeddings)},
        "optimizer": {"learning_rate": learning_rate, "layerwise_decay": decay},
        "train": {"num_steps": 1, "num_epochs": None if has_steps else num_epochs},
    }
    values = merge(_without_nulls(values), {"name": name, "init_from": init_from})
    first = validate(merge(defaults, values), FinetuningConfig, source)
    steps_per_epoch = -(-(num_rows or 1) // first.train.batch_size)
    lengths = {"train": {"save_every_steps": steps_per_epoch}, "evaluation": {"every_steps": steps_per_epoch}}
    if (epochs := first.train.num_epochs) is not None:
        # Whole batches of an epoch times epochs, as in the authors' code: finetune/task_builder.py, run_finetuning.py.
        num_steps = lengths["train"]["num_steps"] = max(1, int(steps_per_epoch * epochs))
        if has_steps and num_rows is not None and first.train.num_steps != num_steps:
            raise UserError(
                f"{source}: train.num_epochs and train.num_steps are both given, and {epochs:g} epochs are {num_steps} "
                f"steps, not {first.train.num_steps}; set one of them to null"
            )
    return validate(merge(merge(defaults, lengths), values), FinetuningConfig, source)


def _without_nulls(values: dict) -> dict:
    """The settings without a null where a number follows from the length of an epoch."""
    names = {"train": ("num_steps", "save_every_steps"), "evaluation": ("every_steps",)}
    return {
        group: {name: value for name, value in given.items() if value is not None or name not in names[group]}
        if group in names and isinstance(given, dict)
        else given
        for group, given in values.items()
    }


def _is_positive(weight: Any) -> bool:
    """Whether it is a positive finite number, or the text of one: YAML reads 1e-5, which has no dot, as text."""
    try:
        return not isinstance(weight, bool) and 0 < float(weight) < math.inf
    except (TypeError, ValueError):
        return False
