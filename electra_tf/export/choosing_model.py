"""Served multiple choice: a context and its choices -> the score and the probability of each choice."""

import tensorflow as tf

from electra_tf.data.batch import TEXT_TENSORS
from electra_tf.export.served_model import Outputs, Served, ServedModel
from electra_tf.text.packing import Rows, cut_contexts


class ChoosingModel(ServedModel):
    """Serves a model of multiple choice: `choose` and `embed`."""

    default, least_length = "choose", 5

    def served(self) -> dict[str, Served]:
        size, width = self.shapes.batch_size, self.shapes.width
        choices = tf.TensorSpec([size, None], tf.string, name="choices")
        ids = [tf.TensorSpec([size, None, width], tf.int32, name=name) for name in TEXT_TENSORS]
        choose = {"choose": (self._choose, [*self.texts("context"), choices]), "choose_ids": (self._choose_ids, ids)}
        return {**choose, **super().served()}

    def _choose(self, context: tf.Tensor, choices: tf.Tensor) -> Outputs:
        """The scores of the choices of each context.

        Args:
            context: [N] string, UTF-8.
            choices: [N, C] string: each choice with its question, as in a training file; "" where a context has fewer.
        Returns: the outputs of `_choose_ids`; `truncated` [N] bool, whether the context or a choice was cut.
        """
        num_contexts, num_choices, room = tf.size(context), tf.shape(choices)[1], self.shapes.max_seq_length - 3
        message = "expected a row of choices for each context"
        with tf.control_dependencies([tf.debugging.assert_equal(num_contexts, tf.shape(choices)[0], message)]):
            texts = tf.concat([context, tf.reshape(choices, [-1])], axis=0)
        # One call for both inputs, so that the graph has the tokenizer's operations once.
        tokens, is_cut = self.tokenize(texts)
        context_of = tf.repeat(tf.range(num_contexts), num_choices)
        parts = cut_contexts(tokens[:num_contexts], tokens[num_contexts:], context_of, room)
        lengths = tokens.row_lengths()
        whole = tf.gather(lengths, context_of), lengths[num_contexts:]
        lost = [part.row_lengths() < length for part, length in zip(parts, whole, strict=True)]
        lost = tf.reduce_any([*lost, is_cut[num_contexts:]], axis=0)
        truncated = is_cut[:num_contexts] | tf.reduce_any(tf.reshape(lost, tf.shape(choices)), axis=1)
        rows = self.pack(parts)  # [N C, T]
        shape = [num_contexts, num_choices, tf.shape(rows.input_ids)[1]]
        rows = Rows(*(tf.reshape(values, shape) for values in rows))
        real = tf.cast(choices != "", tf.int32)[:, :, tf.newaxis]
        return {**self._chosen(rows._replace(input_mask=rows.input_mask * real)), "truncated": truncated}

    def _choose_ids(self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> Outputs:
        """The scores of choices, for token ids.

        Args:
            input_ids, input_mask, segment_ids: [N, C, T] int32: [CLS] context [SEP] choice [SEP], segment 1 from the
                choice on; the mask is 1 for a token, 0 for padding and everywhere in a choice that a context lacks.
        Returns:
            choice: [N] int32, the index of the likeliest.
            scores: [N, C] float32, the logits; the lowest float32 for a choice that a context lacks.
            probabilities: [N, C] float32, their softmax.
        """
        return self._chosen(self.checked_rows(input_ids, input_mask, segment_ids))

    def _chosen(self, rows: Rows) -> Outputs:
        scores = self.get_task()(rows._asdict())
        choice = tf.argmax(scores, axis=1, output_type=tf.int32)
        return {"choice": choice, "scores": scores, "probabilities": tf.nn.softmax(scores)}
