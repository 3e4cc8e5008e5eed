"""The kinds of fine-tuning tasks: a row for each, with all that the rest of the program knows about it."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from electra_tf.config.settings import Settings
from electra_tf.tasks.finetune import multiple_choice, question_answering, sentence, similarity, tagging
from electra_tf.tasks.finetune.config import (
    MultipleChoiceConfig,
    QuestionAnsweringConfig,
    SentenceConfig,
    SimilarityConfig,
    TaggingConfig,
)
from electra_tf.tasks.finetune.examples import Examples
from electra_tf.tasks.finetune.features import EncodedExamples, Outputs, Split
from electra_tf.tasks.finetune.scores import Report
from electra_tf.tasks.finetune.task import FinetuningTask


def _nothing(train: Examples, task: Any) -> dict[str, Any]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What makes a kind of task. P is whatever `predict` returns.

    Attributes:
        settings: the class of the group `task`.
        model: the encoder with its head, and the loss.
        read(file, task): the labelled examples of a file, by the settings of the group `task`.
        read_new(file, config, text_columns, label_column): examples to predict, with their labels if the file has them.
        derive(train, task): the settings that follow from the training examples.
        encode(examples, config, tokenizer, is_training): examples as features.
        metric_names(split): the names of `scores`.
        predict(split, outputs) -> P: what the model's outputs mean.
        scores(split, P): the metrics of a split.
        rows(split, P): the prediction for each example, by the columns of the file that `--predict` writes.
        alarm(split, P, scores): a sign that the model has learnt nothing, as a clause for a warning, or None.
        report(split, P): the scores of each class; None for a kind without classes.
        chosen(split, P): the settings that the dev set chooses for the test file and for new text.
        files(split, P): the files for a split in place of one with the rows: contents by name.
        layout: of the file with the rows: `tsv`, `words` (a line for each word, and an empty one) or `json`.
        form: the format of a predicted number in such a file; "": all its digits.
        primary: the metric that selects the best seed; "": the first one.
        has_loss: whether the mean loss is a metric too.
    """

    settings: type[Settings]
    model: type[FinetuningTask]
    read: Callable[..., Examples]
    read_new: Callable[..., Examples]
    derive: Callable[[Examples, Any], dict[str, Any]] = _nothing
    encode: Callable[..., EncodedExamples]
    metric_names: Callable[[Split], tuple[str, ...]]
    predict: Callable[[Split, Outputs], Any]
    scores: Callable[[Split, Any], dict[str, float]]
    rows: Callable[[Split, Any], list[dict[str, Any]]]
    alarm: Callable[[Split, Any, dict[str, float]], str | None]
    report: Callable[[Split, Any], Report | None] | None = None
    chosen: Callable[[Split, Any], dict[str, Any]] | None = None
    files: Callable[[Split, Any], dict[str, bytes]] | None = None
    layout: str = "tsv"
    form: str = ""
    primary: str = ""
    has_loss: bool = True


def _of(module: Any, settings: type[Settings], model: type[FinetuningTask], **changes: Any) -> Kind:
    """A row whose functions are those of a module that have its names."""
    functions = {each.name: getattr(module, each.name) for each in fields(Kind) if hasattr(module, each.name)}
    return Kind(settings=settings, model=model, **{**functions, **changes})


_classification = _of(sentence, SentenceConfig, sentence.SentenceTask, derive=sentence.derive_labels)
KINDS: dict[str, Kind] = {
    "classification": _classification,
    "multi_label": _classification,
    "regression": _of(sentence, SentenceConfig, sentence.SentenceTask, derive=sentence.derive_range, report=None),
    "tagging": _of(
        tagging,
        TaggingConfig,
        tagging.TaggingTask,
        read=tagging.read_tagged,
        read_new=tagging.read_words,
        layout="words",
    ),
    "question_answering": _of(
        question_answering,
        QuestionAnsweringConfig,
        question_answering.QuestionAnsweringTask,
        layout="json",
        primary="f1",
        has_loss=False,
    ),
    "multiple_choice": _of(
        multiple_choice,
        MultipleChoiceConfig,
        multiple_choice.MultipleChoiceTask,
        read=multiple_choice.read_choices,
    ),
    "similarity": _of(similarity, SimilarityConfig, similarity.SimilarityTask, form=".6f"),
}
