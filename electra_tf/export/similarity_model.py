"""Served sentence vectors: a text -> its vector; two texts -> the cosine of their vectors."""

import tensorflow as tf

from electra_tf.export.served_model import Outputs, Served, ServedModel
from electra_tf.tasks.finetune.similarity import mean_vectors
from electra_tf.text.packing import Rows


class SimilarityModel(ServedModel):
    """Serves a model of similarity: `sentence_embed`, `similarity` and `embed`."""

    default = "sentence_embed"

    def served(self) -> dict[str, Served]:
        return {
            "sentence_embed": (self._sentence_embed, self.texts("text")),
            "sentence_embed_ids": (self._sentence_embed_ids, self.ids()),
            "similarity": (self._similarity, self.texts("text", "text_pair")),
            **super().served(),
        }

    def _sentence_embed(self, text: tf.Tensor) -> Outputs:
        """A vector for each text, whose cosines with other texts' vectors are similarities.

        Args:
            text: [N] string, UTF-8.
        Returns: the output of `_sentence_embed_ids`; `truncated` [N] bool, whether the text was cut.
        """
        rows, truncated = self.rows(text)
        return {**self._sentence_vectors(rows), "truncated": truncated}

    def _sentence_embed_ids(self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> Outputs:
        """A vector for each row of token ids.

        Args:
            input_ids, input_mask, segment_ids: [N, T] int32; the mask is 1 for a token, 0 for padding.
        Returns:
            sentence_vector: [N, H] float32, the mean of the vectors of all tokens, [CLS] and [SEP] included.
        """
        return self._sentence_vectors(self.checked_rows(input_ids, input_mask, segment_ids))

    def _similarity(self, text: tf.Tensor, text_pair: tf.Tensor) -> Outputs:
        """The similarity of two texts.

        Args:
            text, text_pair: [N] string, UTF-8.
        Returns:
            cosine: [N] float32.        truncated: [N] bool, whether one of the texts was cut.
        """
        rows, truncated = self.rows(self.pairs(text, text_pair))
        directions = tf.math.l2_normalize(self._sentence_vectors(rows)["sentence_vector"], axis=1)
        first, second = tf.split(directions, 2)
        truncated = tf.reduce_any(tf.reshape(truncated, [2, -1]), axis=0)
        return {"cosine": tf.reduce_sum(first * second, axis=1), "truncated": truncated}

    def _sentence_vectors(self, rows: Rows) -> Outputs:
        output = self.get_task().encoder(**rows._asdict())
        return {"sentence_vector": mean_vectors(output.sequence_output, rows.input_mask)}
