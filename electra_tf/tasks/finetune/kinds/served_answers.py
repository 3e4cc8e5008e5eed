"""Served question answering: the best spans of a context, and whether it holds an answer.

A long context is cut into windows (`context_windows` of squad_features.py), whose spans are compared
(`answers.py`). `electra-tf finetune --predict` calls the same functions.
"""

import tensorflow as tf

from electra_tf.tasks.finetune.kinds.answers import (
    allowed_spans,
    best_positions,
    n_best,
    null_odds,
    span_texts,
    window_null_scores,
)
from electra_tf.tasks.finetune.kinds.squad_features import context_windows, cut_query
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.tasks.served import Served, ServedModel, ServedOutputs, ServingShapes, in_blocks
from electra_tf.text.packing import Rows, cut, cut_texts, max_bytes
from electra_tf.text.tokenizer import Tokenizer

_NO_ANSWER = {"text": "", "start": 0, "end": 0}


class ServedAnswers(ServedModel):
    """Serves a question-answering model: `answer` and `embed`.

    A question gets no answer if its null odds are above the setting `null_threshold`; null: every question gets one.
    """

    default, least_length = "answer", 5  # [CLS] question [SEP] token [SEP]
    has_windows = True

    def __init__(self, task: FinetuningTask, tokenizer: Tokenizer, shapes: ServingShapes):
        self._config = task.config.task
        super().__init__(task, tokenizer, shapes)

    def served(self) -> dict[str, Served]:
        answer: Served = (self._answer, self.texts("question", "context"))
        return {"answer": answer, "answer_ids": self.for_ids(self._head), **super().served()}

    def _answer(self, question: tf.Tensor, context: tf.Tensor) -> ServedOutputs:
        """The answers to questions. A long context is cut into overlapping windows, and all of them are searched.

        Args:
            question, context: [N] string, UTF-8; each invalid byte counts as a character.
        Returns:
            text: [N] string, the answer; "" if there is none.
            start, end: [N] int32, its first character (code point) in the context and its end (exclusive); 0 and 0
                without an answer.
            score: [N] float32, the sum of the log-probabilities of the start and the end of the best span (with the
                independent head, of their logits); the lowest float32 without a span.
            null_score: [N] float32, only for version 2; above the threshold there is no answer.
            nbest_text [N, K] string, nbest_start, nbest_end [N, K] int32, nbest_score [N, K] float32: the K best spans
                (`n_best_size`), whatever the null score is. Beyond `num_answers` a score is the lowest float32.
            nbest_probability: [N, K] float32, the softmax of these scores.
            num_answers: [N] int32, the number of spans in the list.
            truncated: [N] bool, whether the question or the end of the context was cut.
        """
        num_questions = tf.size(question)
        # One call for both inputs, so that the graph has the tokenizer's operations once.
        question, is_cut = cut_texts(question, max_bytes(self.shapes.max_seq_length))
        longest = max_bytes(self.shapes.max_seq_length, is_windowed=True)
        context, is_context_cut = cut_texts(context, longest)
        tokenized = self.tokenizer.tokenize_with_offsets(self.pairs(question, context))
        is_context_cut |= tokenized[0].row_lengths()[num_questions:] > longest
        tokens, token_starts, token_ends = (cut(each, longest) for each in tokenized)
        context_of = tf.range(num_questions, 2 * num_questions, dtype=tf.int64)
        query = cut_query(tokens[:num_questions], self.shapes.max_seq_length, self._config.max_query_length)
        truncated = is_cut | is_context_cut | (query.row_lengths() < tokens.row_lengths()[:num_questions])
        windows = context_windows(query, tokens, context_of, self.shapes.max_seq_length, self._config.doc_stride)
        rows = self.pack(windows.parts(query, tokens), least_width=self._beam)
        best = self._best_of_windows(rows)
        spans = allowed_spans(best, windows, token_starts.values, token_ends.values, self._config.max_answer_length)
        texts = span_texts(context, spans.question, spans.start, spans.end)
        listed = n_best(spans, texts, num_questions, self._config.n_best_size)
        types = {"start": tf.int32, "end": tf.int32, "probability": tf.float32}
        listed |= {name: tf.cast(listed[name], dtype) for name, dtype in types.items()}
        outputs = {name: listed[name][:, 0] for name in ("text", "start", "end", "score")}
        if self._config.version_2:
            null_score = null_odds(best["null_score"], windows.question, listed, self._config.answerable_classifier)
            outputs["null_score"] = null_score
            if self._config.null_threshold is not None:
                answered = tf.cast(null_score, tf.float64) <= self._config.null_threshold
                outputs |= {name: tf.where(answered, outputs[name], nothing) for name, nothing in _NO_ANSWER.items()}
        outputs |= {f"nbest_{name}": listed[name] for name in ("text", "start", "end", "score", "probability")}
        return {**outputs, "num_answers": tf.cast(listed["num_answers"], tf.int32), "truncated": truncated}

    def _head(self, rows: Rows) -> ServedOutputs:
        """The outputs of the head, for callers who choose spans themselves.

        Args:
            rows: [N, T] each: [CLS] question [SEP] context [SEP], segment 1 from the context on.
        Returns: with the joint head and K, its beam:
            start_top_index [N, K] int32, start_top_log_probs [N, K] float32: the best starts.
            end_top_index [N, K, K] int32, end_top_log_probs [N, K, K] float32: the best ends for each of them.
        With the independent head:
            start_logits, end_logits: [N, T] float32.
        With the classifier:
            answerable_logits: [N] float32, positive for "no answer".
        """
        task, batch = self.get_task(), rows._asdict()
        return task.outputs(batch, task(batch))

    @property
    def _beam(self) -> int:
        """K: the number of starts of a window that are considered, and of ends for each of them."""
        size = self._config.beam_size if self._config.joint_prediction else self._config.n_best_size
        return min(size, self.shapes.max_seq_length)

    def _best_of_windows(self, rows: Rows) -> ServedOutputs:
        """The best starts of windows [W, K], the best ends of each or of all starts [W, K or 1, K], and null scores."""
        starts, ends = [self._beam], [self._beam if self._config.joint_prediction else 1, self._beam]
        shapes: dict[str, tuple[list[int], tf.DType]] = {
            "start": (starts, tf.int32),
            "start_score": (starts, tf.float32),
            "end": (ends, tf.int32),
            "end_score": (ends, tf.float32),
        }
        if self._config.version_2:
            shapes["null_score"] = ([], tf.float32)

        def best_of(some_rows: Rows) -> ServedOutputs:
            outputs = self._head(some_rows)
            best = best_positions(outputs, some_rows.num_tokens, self._beam)
            return {**best, **({"null_score": window_null_scores(outputs)} if self._config.version_2 else {})}

        return in_blocks(best_of, rows, shapes)
