"""Served pre-trained models: vectors for texts, and which tokens were replaced."""

import tensorflow as tf

from electra_tf.tasks.pretrain.electra import Electra
from electra_tf.tasks.pretrain.objective import Objective
from electra_tf.tasks.served import Served, ServedModel, ServedOutputs, ServingShapes
from electra_tf.text.packing import Rows
from electra_tf.text.tokenizer import Tokenizer


class TextEncoder(ServedModel):
    """Serves a pre-trained model: `embed`, and `detect` if the objective has a discriminator."""

    def __init__(self, objective: Objective, tokenizer: Tokenizer, shapes: ServingShapes):
        self._has_discriminator = isinstance(objective, Electra) and bool(objective.detection_layers)
        super().__init__(objective, tokenizer, shapes)

    def served(self) -> dict[str, Served]:
        served = super().served()
        if self._has_discriminator:
            served |= {"detect": (self._detect, self.texts("text")), "detect_ids": (self._detect_ids, self.ids())}
        return served

    def _detect(self, text: tf.Tensor) -> ServedOutputs:
        """The probability that a token was replaced, for each token of texts.

        Args:
            text: [N] string, UTF-8.
        Returns: the outputs of `_detect_ids` and `with_tokens`.
        """
        return self.with_tokens(self._detected, text)

    def _detect_ids(self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> ServedOutputs:
        """The probability that a token was replaced, for each token id.

        Args:
            input_ids, input_mask, segment_ids: [N, T] int32; the mask is 1 for a token, 0 for padding.
        Returns:
            replaced_probability: [N, T] float32; 0 in padding.
        """
        return self._detected(self.checked_rows(input_ids, input_mask, segment_ids))

    def _detected(self, rows: Rows) -> ServedOutputs:
        probability = self.get_task().detect(rows._asdict())
        return {"replaced_probability": probability * tf.cast(rows.input_mask, tf.float32)}
