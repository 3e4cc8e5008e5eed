"""Question answering as it is served: the best spans of a context, and whether the question has an answer in it.

Windows and rules are those of `run_finetuning.py --predict` (`electra_tf.tasks.finetune.answers`), in TensorFlow
operations.
"""

import tensorflow as tf

from electra_tf.export.best_spans import best_spans
from electra_tf.export.context_windows import ContextWindows, context_windows, is_max_context
from electra_tf.export.packing import Rows, cut, halves, joined_pairs, tokens_of
from electra_tf.export.served_model import Outputs, Served, ServedModel, ServingShapes, in_blocks
from electra_tf.tasks.finetune.config import QuestionAnsweringConfig
from electra_tf.tasks.finetune.question_answering import QuestionAnsweringTask
from electra_tf.text.tokenizer import BertTokenizer

_ODDS_WITHOUT_TOKENS = 1e6  # of a context that has none: there is no answer


class AnsweringModel(ServedModel):
    """`answer` and `embed`.

    Args:
        null_threshold: null odds above which a question is left unanswered; None: none is.
    """

    default = "answer"

    def __init__(
        self, task: QuestionAnsweringTask, tokenizer: BertTokenizer, shapes: ServingShapes, null_threshold: float | None
    ):
        self._config: QuestionAnsweringConfig = task.config.task
        self._null_threshold = null_threshold
        super().__init__(task, task.layers, tokenizer, shapes)

    @property
    def least_length(self) -> int:
        return self._config.max_query_length + 4  # [CLS] question [SEP] token [SEP]

    def served(self) -> dict[str, Served]:
        texts = self.texts("question", "context")
        answer = {"answer": (self._answer, texts), "answer_ids": (self._answer_ids, self.ids())}
        return {**answer, **super().served()}

    def _answer(self, question: tf.Tensor, context: tf.Tensor) -> Outputs:
        """The answers to questions. A long context becomes overlapping windows; nothing of it is cut away.

        Args:
            question, context: [N] string, UTF-8; each invalid byte counts as a character.
        Returns: `text` [N] string, with its `start` and `end` (exclusive) [N] int32 in characters (code points) of the
            context; "", 0 and 0 where there is no answer. `score` [N] float32, of the best span: the sum of the
            log-probabilities (of the independent head: of the logits) of its start and its end; the lowest number there
            is without a span. Of version 2 `null_score` [N] float32: where it is above the threshold, there is no
            answer. The n-best list, of K = `n_best_size` whatever the null score is: see `best_spans`. `truncated` [N]
            bool, whether the question was cut.
        """
        # Tokenized together, as one set of operations is enough.
        ids, starts, ends = self.tokenizer.tokenize_with_offsets(joined_pairs(question, context))
        whole, tokens = halves(tokens_of(ids))
        query = cut(whole, self._config.max_query_length)
        windows = context_windows(query, tokens, self.shapes.max_seq_length, self._config.doc_stride)
        rows = self.pack(windows.parts(query, tokens), least_width=self._beam)
        outputs = in_blocks(self._best_of_windows, rows, self._shapes_of_best())
        score, first, last = self._candidates(windows, outputs)
        in_context = tf.gather(tokens.start, windows.question)[:, tf.newaxis, tf.newaxis]
        start, end = (
            # One value more, so that there is one to gather where no context has a token.
            tf.gather(tf.concat([characters.values, [0]], axis=0), in_context + token)
            for characters, token in ((starts, first), (ends, last))
        )
        by_question = [self._by_question(values, windows, tf.size(question)) for values in (score, start, end)]
        spans = best_spans(context, *by_question, self._config.n_best_size)
        best = {name: spans[f"nbest_{name}"][:, 0] for name in ("text", "start", "end", "score")}
        if self._config.version_2:
            null_score = self._null_score(windows, outputs, tokens.length, spans)
            best["null_score"] = null_score
            if self._null_threshold is not None:
                answered = tf.cast(null_score, tf.float64) <= self._null_threshold
                best |= {name: tf.where(answered, best[name], nothing) for name, nothing in _NO_ANSWER.items()}
        return {**best, **spans, "truncated": query.length < whole.length}

    def _answer_ids(self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> Outputs:
        """What the head gives for token ids, for those who look for spans themselves.

        Args:
            input_ids, input_mask, segment_ids: [N, T] int32: [CLS] question [SEP] context [SEP], segment 1 from the
                context on; the mask is 1 for a token, 0 for padding.
        Returns: of the joint head, with K, the beam, the best starts `start_top_index` [N, K] int32 with their
            `start_top_log_probs` [N, K] float32, and for each of them the best ends `end_top_index` [N, K, K] int32
            with `end_top_log_probs` [N, K, K] float32; of the independent head `start_logits` and `end_logits` [N, T]
            float32. Of the classifier `answerable_logits` [N] float32, positive for "no answer".
        """
        return self._head(self.given(input_ids, input_mask, segment_ids))

    def _head(self, rows: Rows) -> Outputs:
        task, batch = self.get_task(), rows._asdict()
        return task.predictions(batch, task(batch))

    @property
    def _beam(self) -> int:
        """K: the starts of a window that are looked at, and the ends of each."""
        size = self._config.beam_size if self._config.joint_prediction else self._config.n_best_size
        return min(size, self.shapes.max_seq_length)

    def _shapes_of_best(self) -> dict[str, tuple[list[int], tf.DType]]:
        """Of `_best_of_windows`, without the axis of windows."""
        starts, ends = [self._beam], [self._beam if self._config.joint_prediction else 1, self._beam]
        shapes = {
            "start": (starts, tf.int32),
            "start_score": (starts, tf.float32),
            "end": (ends, tf.int32),
            "end_score": (ends, tf.float32),
        }
        return {**shapes, **({"null_score": ([], tf.float32)} if self._config.version_2 else {})}

    def _best_of_windows(self, rows: Rows) -> Outputs:
        """The best starts of windows [W, K], the best ends of each or of all starts [W, K or 1, K], and null scores."""
        head = self._head(rows)
        if self._config.joint_prediction:
            best = {
                "start": head["start_top_index"],
                "start_score": head["start_top_log_probs"],
                "end": head["end_top_index"],
                "end_score": head["end_top_log_probs"],
            }
        else:
            of_tokens = {
                name: tf.where(rows.input_mask > 0, head[f"{name}_logits"], -float("inf")) for name in ("start", "end")
            }
            start_score, start = tf.math.top_k(of_tokens["start"], self._beam)
            end_score, end = tf.math.top_k(of_tokens["end"], self._beam)
            ends = {"end": end[:, tf.newaxis], "end_score": end_score[:, tf.newaxis]}
            best = {"start": start, "start_score": start_score, **ends}
        if self._config.version_2:
            of_cls = "answerable_logits" not in head
            best["null_score"] = (
                head["start_logits"][:, 0] + head["end_logits"][:, 0] if of_cls else head["answerable_logits"]
            )
        return best

    def _candidates(self, windows: ContextWindows, best: Outputs) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """All pairs of starts and ends: their scores [W, K, K], -inf where not allowed, and their first and last token.

        A span lies in the context, begins in the window where its first token has most context, and has at most
        `max_answer_length` tokens. Tokens are numbered as in the context, 0 where not allowed.
        """
        shift = (windows.begin - windows.position)[:, tf.newaxis, tf.newaxis]
        first = tf.cast(best["start"], tf.int64)[:, :, tf.newaxis] + shift  # [W, K, 1]
        last = tf.cast(best["end"], tf.int64) + shift  # [W, K or 1, K]
        begin, length = (values[:, tf.newaxis, tf.newaxis] for values in (windows.begin, windows.length))
        allowed = (first >= begin) & (last < begin + length)
        allowed &= (last >= first) & (last - first < self._config.max_answer_length)
        longest = self.shapes.max_seq_length - 3
        farthest = -(-longest // min(longest, self._config.doc_stride))
        allowed &= is_max_context(windows, first[:, :, 0], farthest)[:, :, tf.newaxis]
        score = best["start_score"][:, :, tf.newaxis] + best["end_score"]
        allowed &= tf.math.is_finite(score)
        return tf.where(allowed, score, -float("inf")), *(tf.where(allowed, token, 0) for token in (first, last))

    def _by_question(self, values: tf.Tensor, windows: ContextWindows, num_questions: tf.Tensor) -> tf.Tensor:
        """[W, K, K] -> [N, candidates of the question with most windows]; -inf or 0 where there are fewer."""
        ragged = tf.RaggedTensor.from_value_rowids(
            values, windows.question, nrows=tf.cast(num_questions, tf.int64), validate=False
        )
        dense = ragged.to_tensor(-float("inf") if values.dtype.is_floating else 0)  # [N, windows, K, K]
        return tf.reshape(dense, [num_questions, tf.shape(dense)[1] * self._beam**2])

    def _null_score(
        self, windows: ContextWindows, best: Outputs, context_length: tf.Tensor, spans: Outputs
    ) -> tf.Tensor:
        """[N] float32: the smallest over the windows of a question."""
        scores = tf.math.unsorted_segment_min(best["null_score"], windows.question, tf.size(context_length))
        scores = tf.where(context_length > 0, scores, _ODDS_WITHOUT_TOKENS)
        if self._config.answerable_classifier:
            return scores
        return tf.where(spans["num_answers"] > 0, scores - spans["nbest_score"][:, 0], scores)


_NO_ANSWER = {"text": "", "start": 0, "end": 0}
