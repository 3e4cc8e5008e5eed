"""Question answering: the model, its features, scores and predictions."""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast

import tensorflow as tf
from pydantic import model_validator

from electra_tf.config.errors import UserError
from electra_tf.config.settings import Count, NonNegative, Real, Settings
from electra_tf.data.batch import Batch
from electra_tf.models.layers import ForwardContext, Linear
from electra_tf.ops.reference import gelu
from electra_tf.tasks.finetune.examples import DataFile, Examples, NewColumns
from electra_tf.tasks.finetune.kind import EncodedExamples, Kind, Outputs, Split
from electra_tf.tasks.finetune.kinds.answers import Answers, ServedAnswers, predicted_answers
from electra_tf.tasks.finetune.kinds.squad import (
    AnswerLanguage,
    Question,
    answer_language,
    choose_null_threshold,
    read_questions,
    read_squad,
    squad_v1_scores,
    squad_v2_scores,
)
from electra_tf.tasks.finetune.kinds.squad_features import SquadWindows, squad_windows, training_windows
from electra_tf.tasks.finetune.settings import FinetuningRunConfig
from electra_tf.tasks.finetune.task import FinetuningTask, Head, head_layer
from electra_tf.tasks.finetune.transformers_head import MODERN_HIDDEN, FoundHead, TransformersHead, Weights, WrittenHead
from electra_tf.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

_NOT_ALLOWED = 1000.0  # subtracted from the logits of the question's tokens, of the first [SEP] and of padding
_V2_SCORES = ("exact", "f1", "HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1")  # the last four if there are any
_MAX_DROPPED = 0.05  # the largest share of training questions without their answer in the context; SQuAD: below 0.001


class SpanLogits(NamedTuple):
    """The head's outputs for a batch, float32."""

    hidden: tf.Tensor  # [B, S, H], of the encoder, or with `head: huggingface` of the layers above it
    allowed: tf.Tensor  # [B, S], 1 where a span may begin or end
    start_logits: tf.Tensor  # [B, S], lowered by 1000 where a span may not begin
    answerable_logits: tf.Tensor | None  # [B], positive for "no answer"; None without that classifier


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
    max_query_length: Count = 64  # tokens at which a question is cut, or else 4 fewer than in data.max_seq_length
    max_answer_length: Count = 30  # tokens of the longest answer
    n_best_size: Count = 20  # answers that are written for each question
    # The answer is "" if the null odds are larger; null: chosen on the dev set.
    null_threshold: Real | None = None
    # How scores compare answers. en: exactly as SQuAD's scripts. characters: as CMRC 2018's (Chinese, Japanese, Thai).
    # words: without the punctuation of Unicode, for other languages. null: by the text of each scored file.
    answer_language: AnswerLanguage | None = None

    @model_validator(mode="after")
    def _can_leave_questions_unanswered(self) -> "QuestionAnsweringConfig":
        if self.version_2 and self.joint_prediction and not self.answerable_classifier:
            raise ValueError("version_2 with joint_prediction needs answerable_classifier: true")
        if self.head == "huggingface" and (self.joint_prediction or self.answerable_classifier):
            raise ValueError("head huggingface needs joint_prediction: false and answerable_classifier: false")
        return self


class QuestionAnsweringTask(FinetuningTask):
    """Predicts the start of the answer, its end given the start, and whether the question has an answer.

        start = h . w                                            allowed: the context, its [SEP], and [CLS]
        end given s = dense(gelu(dense([h_s ; h_t])))
        answerable = dense(gelu(dense([h_CLS ; sum_t softmax(start)_t h_t])))      positive: no answer

    Training uses the true start, inference the best `beam_size` starts. A layer over a pair of vectors is computed as
    two products, one for each vector, so that no tensor has the size [B, beam, S, 2 H]. The loss of a row is the mean
    of the cross-entropies of start and end, plus `answerable_loss_weight` times the binary cross-entropy, in float32.
    With `joint_prediction: false` the end does not depend on the start, as in Hugging Face's models.
    Source: finetune/qa/qa_tasks.py of the authors' code.
    """

    target_tensors = dict.fromkeys(("start_positions", "end_positions", "is_impossible"), ("", tf.int32))

    def __init__(self, config: FinetuningRunConfig, **model_options: Any) -> None:
        super().__init__(config, **model_options)
        task = config.task
        self.start_layer, self.end_layer = head_layer(1, "start"), head_layer(1, "end")
        self.end_hidden_layer = self.answerable_hidden_layer = self.answerable_layer = None
        if task.joint_prediction:
            self.end_hidden_layer = head_layer(task.head_size, "end_hidden")
        if task.answerable_classifier:
            self.answerable_layer = head_layer(1, "answerable")
            if task.answerable_uses_start_logits:
                self.answerable_hidden_layer = head_layer(task.head_size, "answerable_hidden")
        self.add_hidden_layers()

    @property
    def layer_names(self) -> dict[str, str]:
        """The authors' names, in which the last layers are numbered."""
        last = [each for each in ("answerable_hidden_layer", "answerable_layer") if getattr(self, each) is not None]
        names = {"start_layer": "dense", "end_layer": "dense_1", "end_hidden_layer": "qa_hidden"}
        numbered = {each: f"dense_{number}" for number, each in enumerate(last, start=2)}
        return {**super().layer_names, **names, **numbered}

    def forward(self, batch: Batch, context: ForwardContext) -> SpanLogits:
        hidden = self.head_input(self.encode(batch, context).sequence_output, context)
        in_context = batch["input_mask"] * batch["segment_ids"]
        is_cls = tf.cast(tf.range(tf.shape(in_context)[1]) == 0, tf.int32)
        allowed = tf.cast(tf.maximum(in_context, is_cls), tf.float32)
        start_logits = self._masked(self.start_layer(hidden)[..., 0], allowed)
        if self.answerable_layer is None:
            return SpanLogits(hidden, allowed, start_logits, None)
        vector = hidden[:, 0]
        if self.answerable_hidden_layer is not None:
            expected_start = tf.einsum("bs,bsh->bh", tf.nn.softmax(start_logits), hidden)
            vector = gelu(tf.add_n(_products(self.answerable_hidden_layer, vector, expected_start)))
        return SpanLogits(hidden, allowed, start_logits, self.answerable_layer(vector)[:, 0])

    def row_losses(self, batch: Batch, forward: SpanLogits) -> tf.Tensor:
        starts = batch["start_positions"]
        end_logits = self.end_logits(forward, starts[:, tf.newaxis])[:, 0]
        spans = (starts, forward.start_logits), (batch["end_positions"], end_logits)
        losses = [tf.nn.sparse_softmax_cross_entropy_with_logits(labels=ids, logits=logits) for ids, logits in spans]
        loss = (losses[0] + losses[1]) / 2.0
        if forward.answerable_logits is None:
            return loss
        impossible = tf.cast(batch["is_impossible"], tf.float32)
        answerable = tf.nn.sigmoid_cross_entropy_with_logits(labels=impossible, logits=forward.answerable_logits)
        return loss + self.config.task.answerable_loss_weight * answerable

    def outputs(self, batch: Batch, forward: SpanLogits) -> dict[str, tf.Tensor]:
        kept = {} if forward.answerable_logits is None else {"answerable_logits": forward.answerable_logits}
        if not self.config.task.joint_prediction:
            end_logits = self.end_logits(forward, tf.zeros([tf.shape(forward.hidden)[0], 1], tf.int32))[:, 0]
            return {**kept, "start_logits": forward.start_logits, "end_logits": end_logits}
        beam = tf.minimum(self.config.task.beam_size, tf.shape(forward.start_logits)[1])
        start_log_probs, starts = tf.math.top_k(tf.nn.log_softmax(forward.start_logits), beam)  # [B, K]
        end_logits = self.end_logits(forward, starts)  # [B, K, S]
        end_log_probs, ends = tf.math.top_k(tf.nn.log_softmax(end_logits), beam)  # [B, K, K]
        return {
            **kept,
            "start_top_log_probs": start_log_probs,
            "start_top_index": starts,
            "end_top_log_probs": end_log_probs,
            "end_top_index": ends,
        }

    def end_logits(self, forward: SpanLogits, starts: tf.Tensor) -> tf.Tensor:
        """Returns the logits of the end given each of K starts: [B, K] int32 -> [B, K, S] float32."""
        if self.end_hidden_layer is None:
            return self._masked(self.end_layer(forward.hidden)[..., 0], forward.allowed)[:, tf.newaxis]
        at_starts = tf.gather(forward.hidden, starts, batch_dims=1)  # [B, K, H]
        of_starts, of_ends = _products(self.end_hidden_layer, at_starts, forward.hidden)  # [B, K, F], [B, S, F]

        def logits_of(of_start: tf.Tensor) -> tf.Tensor:  # [B, F] -> [B, S]
            return self.end_layer(gelu(of_start[:, tf.newaxis] + of_ends))[..., 0]

        # One start at a time: all at once need [B, K, S, F], gigabytes.
        logits = tf.map_fn(logits_of, tf.transpose(of_starts, [1, 0, 2]), parallel_iterations=1)
        return self._masked(tf.transpose(logits, [1, 0, 2]), forward.allowed[:, tf.newaxis])

    @staticmethod
    def _masked(logits: tf.Tensor, allowed: tf.Tensor) -> tf.Tensor:
        return logits + _NOT_ALLOWED * (allowed - 1.0)


class AnswersHead(TransformersHead):
    """The head of a class for question answering, which predicts start and end independently."""

    ending, pipeline = "ForQuestionAnswering", "question-answering"
    description = "that finds the answer to a question in a text."
    layers = {
        "Electra": {"qa_outputs": ("dense", "dense_1")},  # the start and the end of an answer
        "Bert": {"qa_outputs": ("dense", "dense_1")},
        "ModernBert": {**MODERN_HIDDEN, "classifier": ("dense", "dense_1")},
    }
    noted = (
        *("version_2", "doc_stride", "max_query_length", "max_answer_length", "n_best_size"),
        *("null_threshold", "answer_language"),
    )

    def written(self, config: FinetuningRunConfig, weights: Weights, family: str) -> WrittenHead | str:
        if config.task.joint_prediction or config.task.answerable_classifier:
            return (
                "transformers has no class for this head: this is the encoder alone. With task.joint_prediction and "
                f"task.answerable_classifier false, fine-tuning trains the head of {family}{self.ending}."
            )
        note = (
            "The logits of the question, of its [SEP] and of padding mean nothing: training left them out, and so must "
            "the choice of an answer, as pipeline('question-answering') of transformers 4 does. The span of a question "
            "without an answer is [CLS]."
        )
        return WrittenHead(self.layers[family], weights, notes=(note,))

    def settings(self, found: FoundHead) -> dict[str, Any]:
        return {"version_2": False, "joint_prediction": False, "answerable_classifier": False}


class QuestionAnswering(Kind):
    """P is the `Answers` to the questions of a split."""

    name, settings, model = "question_answering", QuestionAnsweringConfig, QuestionAnsweringTask
    served, transformers = ServedAnswers, AnswersHead()
    is_for_own_data, has_loss = False, False
    chosen, primary = ("null_threshold",), "f1"
    truncation = "contexts are read in windows, but questions end at task.max_query_length {task.max_query_length}"

    def read(self, path: DataFile, config: FinetuningRunConfig, new: NewColumns | None = None) -> Examples:
        """Reads questions that have an answer or, in version 2, are impossible. Raises: UserError: one is neither.

        New questions have answers if this holds for all of them.
        """
        version_2 = config.task.version_2
        questions = read_squad(path) if new is None else read_questions(path)
        unanswered = [each.id for each in questions if not (each.answers or (version_2 and each.is_impossible))]
        if new is None and unanswered:
            advice = "state is_impossible" if version_2 else "give task=squad_v2"
            raise UserError(f"{path}: question {unanswered[0]} has no answer; {advice}")
        is_labelled = new is None or (not unanswered and any(each.answers for each in questions))
        return question_examples(questions, str(path), is_labelled)

    def encode(
        self, examples: Examples, config: FinetuningRunConfig, tokenizer: Tokenizer, is_training: bool
    ) -> EncodedExamples:
        task, (questions,) = config.task, examples.inputs
        lengths = {"doc_stride": task.doc_stride, "max_query_length": task.max_query_length}
        lengths["max_seq_length"] = config.data.max_seq_length
        if is_training:
            windows, dropped = training_windows(questions, tokenizer, **lengths)
            what = f"{examples.source}: the answers of {len(dropped)} of {len(questions)} questions "
            what += f"are not at answer_start ({', '.join(dropped[:3])})"
            if len(dropped) > max(1, math.floor(_MAX_DROPPED * len(questions))):
                raise UserError(f"{what}, expected at most {_MAX_DROPPED:.0%}; correct the file")
            if dropped:
                logger.warning("%s; they are left out", what)
            return windows
        gold, notes = [(each.id, each.answers, each.is_impossible) for each in questions], {}
        if examples.labels is not None:
            notes["answer_language"] = task.answer_language or answer_language(questions)
            logger.info("%s: scores by task.answer_language %s", examples.source, notes["answer_language"])
        return replace(squad_windows(questions, tokenizer, **lengths), gold=gold, notes=notes)

    def metric_names(self, split: Split) -> tuple[str, ...]:
        if not split.task.version_2:
            return "exact_match", "f1"
        groups = {"HasAns" if question.answers else "NoAns" for question in split.examples.inputs[0]}
        names = (name for name in _V2_SCORES if "_" not in name or name.split("_")[0] in groups)
        return *names, "null_threshold"

    def predict(self, split: Split, outputs: Outputs) -> Answers:
        task, windows = split.task, cast(SquadWindows, split.encoded)
        sizes = {"max_answer_length": task.max_answer_length, "n_best_size": task.n_best_size}
        answers = predicted_answers(windows, outputs, version_2=task.version_2, **sizes)
        found = Answers(answers, task.null_threshold if task.version_2 else None)
        if found.threshold is None and task.version_2 and split.examples.labels is not None:
            compared = split.examples.inputs[0], found.texts, found.null_odds, windows.notes["answer_language"]
            found = found._replace(threshold=choose_null_threshold(*compared))
        return found

    def scores(self, split: Split, answers: Answers) -> dict[str, float]:
        questions, texts = split.examples.inputs[0], {answer.id: answer.text for answer in answers.answers}
        language, threshold = split.encoded.notes["answer_language"], answers.threshold
        if threshold is None:  # version 1.1
            return squad_v1_scores(questions, texts, language)
        odds = {name: 1.0 + (odds > threshold) for name, odds in answers.null_odds.items()}  # above 1.0: no answer
        scores = squad_v2_scores(questions, texts, odds, language) | {"null_threshold": threshold}
        return {name: scores[name] for name in self.metric_names(split)}

    def with_chosen(self, task: Any, metrics: Mapping[str, Any]) -> Any:
        chosen: QuestionAnsweringConfig = super().with_chosen(task, metrics)
        if chosen.version_2 and chosen.null_threshold is None:
            logger.warning("there is no null_threshold before the first evaluation: every question gets an answer")
        return chosen

    def files(self, split: Split, answers: Answers) -> dict[str, bytes]:
        """The files of the official scripts for the dev set, by name; for the test set with `_test` in their names."""
        nbest = {answer.id: [span._asdict() for span in answer.spans] for answer in answers.answers}
        contents: dict[str, Any] = {"predictions": answers.texts, "nbest": nbest}
        if answers.threshold is not None:
            contents["null_odds"] = answers.null_odds
        suffix = "_test" if split.name == "test" else ""
        return {
            f"{name}{suffix}.json": json.dumps(content, indent=1, ensure_ascii=False).encode()
            for name, content in contents.items()
        }

    def content_of(self, rows: list[dict[str, Any]]) -> bytes:
        """Returns an object of JSON a line."""
        return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()

    def rows(self, split: Split, answers: Answers) -> list[dict[str, Any]]:
        """For each question: id, the answer ("" for none), its start and end, probability, score and null odds."""
        lines, texts = [], answers.texts
        for answer in answers.answers:
            line = {"id": answer.id, "text": texts[answer.id], "null_odds": answer.null_odds}
            line |= dict.fromkeys(("best_text", "start", "end", "probability", "score"))
            for best in answer.spans[:1]:
                line |= {"best_text": best.text, "start": best.start, "end": best.end}
                line |= {"probability": best.probability, "score": best.start_score + best.end_score}
            lines.append(line)
        return lines

    def alarm(self, split: Split, answers: Answers) -> str | None:
        texts = set(answers.texts.values())
        if len(texts) == 1 and len(answers.answers) > 1:
            return f"all {len(answers.answers)} answers of the dev set are {texts.pop()!r}"
        return None


def _products(layer: Linear, first: tf.Tensor, second: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Two tensors whose sum is layer([first ; second]): [..., H] each -> [..., F] each."""
    size = first.shape[-1]
    if not layer.built:
        layer.build((None, 2 * size))
    kernel, bias = layer.tensors()
    return tf.tensordot(first, kernel[:size], 1), tf.tensordot(second, kernel[size:], 1) + bias


def question_examples(questions: Sequence[Question], source: str, is_labelled: bool) -> Examples:
    """Returns questions as examples."""
    labels = [question.answers for question in questions] if is_labelled else None
    ids = [question.id for question in questions]
    return Examples((list(questions),), labels, ids, source, range(1, len(ids) + 1))
