"""The data of question answering, and what the head's outputs mean: answers, and whether there is one."""

import json
import logging
import math
from collections.abc import Sequence

from electra_tf.config.errors import UserError
from electra_tf.data.squad import Question
from electra_tf.tasks.finetune.answers import PredictedAnswer, nbest_of, predicted_answers, predictions_of
from electra_tf.tasks.finetune.config import FinetuningConfig, QuestionAnsweringConfig
from electra_tf.tasks.finetune.data import Outputs, TaskData
from electra_tf.tasks.finetune.squad_features import squad_windows, training_windows
from electra_tf.tasks.finetune.squad_scores import choose_null_threshold, squad_v1_scores, squad_v2_scores
from electra_tf.text.tokenizer import BertTokenizer

logger = logging.getLogger(__name__)

_MOST_DROPPED = 0.05  # share of the training questions whose answer is not in their context; SQuAD's own is below 0.001


class QuestionData(TaskData):
    """Questions with their contexts.

    Args:
        train: None where only predictions are made.
        evaluated: without answers they are predicted only.
        null_threshold: null odds above which a question is left unanswered; None: chosen on the evaluated questions.
    """

    primary_metric = "f1"

    def __init__(
        self,
        config: FinetuningConfig,
        tokenizer: BertTokenizer,
        train: Sequence[Question] | None,
        evaluated: Sequence[Question],
        source: str,
        null_threshold: float | None = None,
    ):
        self._task: QuestionAnsweringConfig = config.task
        self._threshold = config.task.null_threshold if null_threshold is None else null_threshold
        self.source, self.num_evaluated = source, len(evaluated)
        lengths = {
            "max_seq_length": config.data.max_seq_length,
            "doc_stride": config.task.doc_stride,
            "max_query_length": config.task.max_query_length,
        }
        self.train = None
        if train is not None:
            windows, dropped = training_windows(train, tokenizer, **lengths)
            _warn_of_dropped(dropped, len(train), source)
            self.train = windows.features
        self._windows = squad_windows(evaluated, tokenizer, **lengths)
        self.evaluation = self._windows.features
        self._last: tuple[Outputs, list[PredictedAnswer]] | None = None  # they take seconds

    def metrics(self, outputs: Outputs) -> dict[str, float]:
        questions, answers = self._windows.questions, self.answers(outputs)
        if not self._task.version_2:
            return squad_v1_scores(questions, predictions_of(answers, None))
        threshold = self._null_threshold(answers)
        odds = {answer.id: answer.null_odds for answer in answers}
        scores = squad_v2_scores(questions, predictions_of(answers, None), odds, threshold)
        wanted = ("exact", "f1", "HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1")
        return {**{name: scores[name] for name in wanted if name in scores}, "null_threshold": threshold}

    def prediction_files(self, outputs: Outputs) -> dict[str, bytes]:
        answers = self.answers(outputs)
        threshold = self._null_threshold(answers) if self._task.version_2 else None
        files = {"predictions.json": predictions_of(answers, threshold), "nbest.json": nbest_of(answers)}
        if threshold is not None:
            files["null_odds.json"] = {answer.id: answer.null_odds for answer in answers}
            files["null_threshold.json"] = {"null_threshold": threshold}
        return {name: json.dumps(content, indent=1, ensure_ascii=False).encode() for name, content in files.items()}

    def prediction_table(self, outputs: Outputs) -> bytes:
        """One JSON object a line: id, the answer ("" for none) with its place, probability, score and null odds."""
        lines = []
        for answer in self.answers(outputs):
            best = answer.spans[0] if answer.spans else None
            is_none = best is None or (self._threshold is not None and (answer.null_odds or 0.0) > self._threshold)
            line = {"id": answer.id, "text": "" if is_none else best.text, "null_odds": answer.null_odds}
            line |= dict.fromkeys(("best_text", "start", "end", "probability", "score"))  # where no span is possible
            if best is not None:
                line |= {"best_text": best.text, "start": best.start, "end": best.end}
                line |= {"probability": best.probability, "score": best.start_score + best.end_score}
            lines.append(json.dumps(line, ensure_ascii=False))
        return ("\n".join(lines) + "\n").encode()

    def problem(self, outputs: Outputs) -> str | None:
        answers = self.answers(outputs)
        threshold = self._null_threshold(answers) if self._task.version_2 else None
        texts = set(predictions_of(answers, threshold).values())
        if len(texts) == 1 and len(answers) > 1:
            return f"all {len(answers)} answers of the dev set are {texts.pop()!r}"
        return None

    def answers(self, outputs: Outputs) -> list[PredictedAnswer]:
        """The answers to the evaluated questions, in their order."""
        task = self._task
        if self._last is None or self._last[0] is not outputs:
            answers = predicted_answers(
                self._windows,
                outputs,
                version_2=task.version_2,
                max_answer_length=task.max_answer_length,
                n_best_size=task.n_best_size,
            )
            self._last = outputs, answers
        return self._last[1]

    def _null_threshold(self, answers: Sequence[PredictedAnswer]) -> float:
        if self._threshold is not None:
            return self._threshold
        texts = predictions_of(answers, None)
        odds = {answer.id: answer.null_odds for answer in answers}
        return choose_null_threshold(self._windows.questions, texts, odds).threshold


def _warn_of_dropped(dropped: Sequence[str], num_questions: int, source: str) -> None:
    if not dropped:
        return
    listed = ", ".join(dropped[:3])
    what = f"{len(dropped)} of {num_questions} questions in {source} have an answer that is not in their context"
    if len(dropped) > max(1, math.floor(_MOST_DROPPED * num_questions)):
        raise UserError(f"{what} ({listed}, ...), expected at most {_MOST_DROPPED:.0%}; correct answer_start")
    logger.warning("%s (%s); they are left out", what, listed)
