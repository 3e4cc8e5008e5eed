"""The settings of a fine-tuning run. What goes with the encoder's size or the task's data is filled in from them."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from electra_tf.config.errors import UserError
from electra_tf.config.loader import merge
from electra_tf.config.schema import (
    Count,
    CountOrZero,
    DropoutRate,
    EncoderConfig,
    EvaluationConfig,
    Fraction,
    NonNegative,
    OptimizerConfig,
    Positive,
    Real,
    RunConfig,
    Settings,
    TrainConfig,
)
from electra_tf.config.validation import validate

# Of every fine-tuning in the paper, also where an encoder was pre-trained without.
_DROPOUT = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
# By the largest hidden size of a row: learning rate and layerwise decay (paper, table 6).
_BY_SIZE = ((256, 3e-4, 0.8), (768, 1e-4, 0.8), (2**31, 5e-5, 0.9))


class SentenceConfig(Settings):
    """One text or a pair of them, with one label, several, or a number."""

    kind: Literal["classification", "multi_label", "regression"]
    labels: tuple[str, ...] = ()  # in the order of their ids; of regression none
    text_columns: tuple[str, ...] = ()  # one or two, by which --predict finds the texts
    # Targets of regression are scaled from this range to [0, 1].
    min_value: Real = 0.0
    max_value: Real = 1.0
    # linear: dropout and one product, as the authors'. huggingface: that of ElectraForSequenceClassification.
    head: Literal["linear", "huggingface"] = "linear"
    dropout: DropoutRate = 0.1
    # Of the loss of each label, in the order of `labels`; empty: all 1.
    class_weights: tuple[Positive, ...] = ()
    # A pair is given in both orders in training: for tasks in which the order means nothing, as the authors do.
    double_unordered: bool = False
    # A single text that is too long becomes windows, each so many tokens after the last; null: it is cut off.
    stride: Count | None = None

    @property
    def num_outputs(self) -> int:
        """C, the width of the logits."""
        return 1 if self.kind == "regression" else len(self.labels)

    @model_validator(mode="after")
    def _fits_together(self) -> "SentenceConfig":
        if self.kind == "regression" and self.max_value <= self.min_value:
            raise ValueError(f"max_value {self.max_value} is not above min_value {self.min_value}")
        if self.stride is not None and len(self.text_columns) == 2:
            raise ValueError(f"stride {self.stride} with two texts; leave it out: pairs are cut off")
        if self.class_weights and len(self.class_weights) != len(self.labels):
            raise ValueError(
                f"{len(self.class_weights)} class_weights for {len(self.labels)} labels; give one for each"
            )
        return self


# How the tags of words mark spans, under seqeval's names (bioes is its IOBES). plain: tags that are not spans, such as
# parts of speech.
TagScheme = Literal["iob1", "iob2", "ioe1", "ioe2", "bioes", "bilou", "plain"]


class TaggingConfig(Settings):
    """A label for each word."""

    kind: Literal["tagging"]
    labels: tuple[str, ...] = ()  # in the order of their ids
    scheme: TagScheme = "iob2"
    dropout: DropoutRate = 0.0  # the authors' head has none


class QuestionAnsweringConfig(Settings):
    """The span of a text that answers a question, or that there is none."""

    kind: Literal["question_answering"]
    version_2: bool  # some questions have no answer
    joint_prediction: bool = True  # the end is predicted given the start; false: both independently
    answerable_classifier: bool = True  # a head says whether there is an answer
    answerable_uses_start_logits: bool = True
    answerable_loss_weight: NonNegative = 0.5
    head_size: Count = 512
    beam_size: Count = 20  # starts, and ends of each start, that inference looks at
    doc_stride: Count = 128
    max_query_length: Count = 64
    max_answer_length: Count = 30  # word pieces
    n_best_size: Count = 20
    # A question is left unanswered where its null odds are above; null: chosen on the dev set.
    null_threshold: Real | None = None

    @model_validator(mode="after")
    def _says_when_there_is_no_answer(self) -> "QuestionAnsweringConfig":
        if self.version_2 and self.joint_prediction and not self.answerable_classifier:
            raise ValueError(
                "joint_prediction of version 2 needs answerable_classifier, which says whether there is an answer; set "
                "the second to true or the first to false"
            )
        return self


TaskConfig = Annotated[SentenceConfig | TaggingConfig | QuestionAnsweringConfig, Field(discriminator="kind")]


class FinetuningOptimizerConfig(OptimizerConfig):
    """As in pre-training, with a warm-up in proportion and a learning rate that falls with the depth."""

    warmup_steps: CountOrZero = 0
    warmup_fraction: Fraction = 0.1
    weight_decay_rate: NonNegative = 0.0  # the paper's; the authors' code has 0.01
    # The learning rate of a layer is that of the layer above times this; 1: the same everywhere.
    layerwise_decay: Annotated[Positive, Field(le=1.0)]
    # authors: their code leaves out a power, so the top layer has decay ** 2. even: it has decay ** 1.
    layerwise_decay_top: Literal["authors", "even"] = "authors"

    @model_validator(mode="before")
    @classmethod
    def _older_runs_have_the_authors_name(cls, values: Any) -> Any:
        if isinstance(values, dict) and "warmup_proportion" in values:
            return {"warmup_fraction": values["warmup_proportion"]} | {
                name: value for name, value in values.items() if name != "warmup_proportion"
            }
        return values


class FinetuningTrainConfig(TrainConfig):
    """As in pre-training; `num_steps` follows from `num_epochs` unless it is given."""

    num_epochs: Positive
    flops_budget: None = None
    batch_size: Count = 32
    log_every_steps: Count = 20
    milestone_fractions: tuple[Fraction, ...] = ()


class FinetuningEvaluationConfig(EvaluationConfig):
    """Evaluation on the dev set, all of it, as its metrics are no sums; after every epoch, unless set otherwise."""

    max_batches: None = None


class FinetuningConfig(RunConfig):
    """A whole fine-tuning run of one task and one seed.

    Attributes:
        name: of the task, as `--task` calls it.        task: its settings.
        init_from: the checkpoint that the encoder's weights came from; None: random ones.
    """

    name: str
    task: TaskConfig
    optimizer: FinetuningOptimizerConfig
    train: FinetuningTrainConfig
    evaluation: FinetuningEvaluationConfig = FinetuningEvaluationConfig()
    init_from: str | None = None


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
    num_rows: int,
) -> FinetuningConfig:
    """The configuration of a run, from what the user has set and what follows from task, encoder and data.

    Args:
        values: the user's settings, which win.        source: what messages call them.
        task: settings of the task group, its `kind` and `labels` among them.
        num_epochs, max_seq_length: of the task; the second is cut to the encoder's position table.
        num_rows: sequences of the training split.
    Raises: UserError: for an unknown setting, a wrong type or an impossible combination.
    """
    given = values.get("train")
    if isinstance(given, dict) and None not in (given.get("num_epochs"), given.get("num_steps")):
        raise UserError(f"{source}: train.num_epochs and train.num_steps both say how long to train; give one of them")
    learning_rate, decay = next(row[1:] for row in _BY_SIZE if encoder.hidden_size <= row[0])
    defaults = {
        "name": name,
        "task": task,
        "encoder": encoder.model_dump(mode="json") | _DROPOUT,
        "init_from": init_from,
        "data": {"max_seq_length": min(max_seq_length, encoder.max_position_embeddings)},
        "optimizer": {"learning_rate": learning_rate, "layerwise_decay": decay},
        "train": {"num_epochs": num_epochs, "num_steps": 1},
    }
    _refuse_what_follows(values, source, defaults)
    settings = merge(defaults, values, {})
    first = validate(settings, FinetuningConfig, source)  # so that the numbers below are numbers
    steps_per_epoch = -(-num_rows // first.train.batch_size)
    # Whole batches of an epoch times epochs, as the authors: finetune/task_builder.py and run_finetuning.py.
    train = {"num_steps": max(1, int(steps_per_epoch * first.train.num_epochs)), "save_every_steps": steps_per_epoch}
    lengths = {"train": train, "evaluation": {"every_steps": steps_per_epoch}}
    return validate(merge(merge(defaults, lengths, {}), values, {}), FinetuningConfig, source)


def _refuse_what_follows(values: dict, source: str, defaults: dict) -> None:
    """A seed's config.yaml names them too, so only another value is refused."""
    task = values.get("task")
    for setting, flag, group, fact in (
        ("name", "--task", values, defaults["name"]),
        ("init_from", "--init_from", values, defaults["init_from"]),
        ("task.kind", "--task", task if isinstance(task, dict) else {}, defaults["task"]["kind"]),
    ):
        value = group.get(setting.rpartition(".")[2], fact)
        if value != fact:
            raise UserError(f"config {source}: {setting} is {value!r}, but {fact!r} follows from {flag}; leave it out")
