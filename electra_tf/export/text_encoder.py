"""A pre-training run as it is served: vectors of texts, and which of their tokens were replaced."""

import tensorflow as tf

from electra_tf.export.packing import Rows
from electra_tf.export.served_model import Outputs, Served, ServedModel, ServingShapes
from electra_tf.tasks.pretrain.electra import Electra
from electra_tf.tasks.pretrain.objective import Objective
from electra_tf.text.tokenizer import BertTokenizer


class TextEncoder(ServedModel):
    """`embed`, and `detect` where the objective has a discriminator."""

    def __init__(self, objective: Objective, tokenizer: BertTokenizer, shapes: ServingShapes):
        self._has_discriminator = isinstance(objective, Electra)
        layers = objective.detection_layers if self._has_discriminator else [objective.encoder]
        super().__init__(objective, layers, tokenizer, shapes)

    def served(self) -> dict[str, Served]:
        detect = {"detect": (self._detect, self.texts("text")), "detect_ids": (self._detect_ids, self.ids())}
        return {**super().served(), **(detect if self._has_discriminator else {})}

    def _detect(self, text: tf.Tensor) -> Outputs:
        """Which tokens were replaced.

        Args:
            text: [N] string, UTF-8.
        Returns: that of `_detect_ids`; `tokens` [N, T] string, "" in padding; `num_tokens` [N] int32, [CLS] and [SEP]
            included; `truncated` [N] bool, whether the text was cut.
        """
        return self.of_tokens(self._detected, text)

    def _detect_ids(self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> Outputs:
        """Which of the tokens were replaced.

        Args:
            input_ids, input_mask, segment_ids: [N, T] int32; the mask is 1 for a token, 0 for padding.
        Returns: `replaced_probability` [N, T] float32, 0 in padding.
        """
        return self._detected(self.given(input_ids, input_mask, segment_ids))

    def _detected(self, rows: Rows) -> Outputs:
        probability = self.get_task().detect(rows._asdict())
        return {"replaced_probability": probability * tf.cast(rows.input_mask, tf.float32)}
