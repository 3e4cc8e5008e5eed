"""Served classification and regression: a text or a pair of texts -> labels with probabilities, or a number.

If the model was fine-tuned with a stride, a long text is cut into windows, whose logits are averaged. Without a stride
it is truncated. `electra-tf finetune --predict` does the same.
"""

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.export.served_model import Outputs, Served, ServedModel, ServingShapes, in_blocks
from electra_tf.tasks.finetune.sentence import SentenceConfig, SentenceTask
from electra_tf.text.packing import Rows, cut_pair, windows
from electra_tf.text.tokenizer import Tokenizer


class SentenceModel(ServedModel):
    """Serves a model for sentences: `classify` (one label or several) or `regress`, and `embed`.

    A subclass defines `outputs_of`.
    """

    default = "classify"

    def __init__(self, task: SentenceTask, tokenizer: Tokenizer, shapes: ServingShapes):
        self._config: SentenceConfig = task.config.task
        self._is_pair = len(self._config.text_columns) == 2
        stride, longest = self._config.stride, shapes.max_seq_length - 2
        self.has_windows = stride is not None
        if self.has_windows and stride > longest:
            raise UserError(
                f"--max_seq_length={shapes.max_seq_length}: expected {stride + 2} or more: [CLS], [SEP] and the "
                f"{stride} tokens of the fine-tuning's stride"
            )
        super().__init__(task, tokenizer, shapes)

    @property
    def least_length(self) -> int:
        return 5 if self._is_pair else 3

    def served(self) -> dict[str, Served]:
        predict = (self._predict, self.texts("text"))
        if self._is_pair:
            predict = (self._predict_pairs, self.texts("text", "text_pair"))
        return {self.default: predict, f"{self.default}_ids": (self._predict_ids, self.ids()), **super().served()}

    def _predict(self, text: tf.Tensor) -> Outputs:
        """The predictions for texts.

        Args:
            text: [N] string, UTF-8.
        Returns: the outputs of `_predict_ids`; `truncated` [N] bool, whether the text was cut.
        """
        if self._config.stride is not None:
            logits, is_cut = self._mean_logits(text)
            return {**self.outputs_of(logits), "truncated": is_cut}
        rows, truncated = self.rows(text)
        return {**self._predicted(rows), "truncated": truncated}

    def _predict_pairs(self, text: tf.Tensor, text_pair: tf.Tensor) -> Outputs:
        """The predictions for pairs of texts.

        Args:
            text, text_pair: [N] string, UTF-8: the first and the second text of each pair.
        Returns: the outputs of `_predict_ids`; `truncated` [N] bool, whether one of the texts was cut.
        """
        # One call for both inputs, so that the graph has the tokenizer's operations once.
        (tokens, is_cut), num_pairs = self.tokenize(self.pairs(text, text_pair)), tf.size(text)
        whole = tokens[:num_pairs], tokens[num_pairs:]
        parts = cut_pair(*whole, self.shapes.max_seq_length - 3)
        lost = [part.row_lengths() < each.row_lengths() for part, each in zip(parts, whole, strict=True)]
        lost += [is_cut[:num_pairs], is_cut[num_pairs:]]
        return {**self._predicted(self.pack(parts)), "truncated": tf.reduce_any(lost, axis=0)}

    def _predict_ids(self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> Outputs:
        """The predictions for token ids.

        Args:
            input_ids, input_mask, segment_ids: [N, T] int32; the mask is 1 for a token, 0 for padding.
        Returns: for classification:
            label: [N] string, the likeliest.        labels: [N, C] string, all labels.
            probabilities: [N, C] float32, in the order of `labels`; they sum to 1.
        For several labels `predicted` [N, C] bool in place of `label`, and independent probabilities. For regression:
            value: [N] float32, in the unit of the training file.
        """
        return self._predicted(self.checked_rows(input_ids, input_mask, segment_ids))

    def _mean_logits(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[N, C] float32: the mean over the windows of each text. [N] bool: whether the text was cut."""
        tokens, is_cut = self.tokenize(text, is_windowed=True)
        parts, of_text = windows(tokens, self.shapes.max_seq_length - 2, self._config.stride)
        shapes = {"logits": ([self._config.num_outputs], tf.float32)}
        logits = in_blocks(lambda rows: {"logits": self._logits(rows)}, self.pack([parts]), shapes)["logits"]
        sums = tf.math.unsorted_segment_sum(tf.cast(logits, tf.float64), of_text, tf.size(text))
        counts = tf.math.unsorted_segment_sum(tf.ones_like(of_text, tf.float64), of_text, tf.size(text))
        return tf.cast(sums / counts[:, tf.newaxis], tf.float32), is_cut

    def _predicted(self, rows: Rows) -> Outputs:
        return self.outputs_of(self._logits(rows))

    def _logits(self, rows: Rows) -> tf.Tensor:
        return self.get_task()(rows._asdict())

    def outputs_of(self, logits: tf.Tensor) -> Outputs:
        """The outputs for [N, C] logits."""
        raise NotImplementedError

    def _labels(self, logits: tf.Tensor) -> tf.Tensor:
        """All labels for each example: [N, C] string."""
        return tf.tile(tf.constant(self._config.labels)[tf.newaxis], [tf.shape(logits)[0], 1])


class ClassificationModel(SentenceModel):
    """Serves a model for one label."""

    def outputs_of(self, logits: tf.Tensor) -> Outputs:
        label = tf.gather(tf.constant(self._config.labels), tf.argmax(logits, axis=1))
        return {"label": label, "labels": self._labels(logits), "probabilities": tf.nn.softmax(logits)}


class MultiLabelModel(SentenceModel):
    """Serves a model for several labels."""

    def outputs_of(self, logits: tf.Tensor) -> Outputs:
        return {"predicted": logits > 0, "labels": self._labels(logits), "probabilities": tf.sigmoid(logits)}


class RegressionModel(SentenceModel):
    """Serves a model for a number."""

    default = "regress"

    def outputs_of(self, logits: tf.Tensor) -> Outputs:
        config = self._config
        value = config.min_value + tf.cast(logits[:, 0], tf.float64) * (config.max_value - config.min_value)
        return {"value": tf.cast(value, tf.float32)}
