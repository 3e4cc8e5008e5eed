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
            detect = self.for_texts(self._detected, has_tokens=True)
            served |= {"detect": detect, "detect_ids": self.for_ids(self._detected)}
        return served

    def _detected(self, rows: Rows) -> ServedOutputs:
        """Returns: replaced_probability: [N, T] float32, whether each token was replaced; 0 in padding."""
        probability = self.get_task().detect(rows._asdict())
        return {"replaced_probability": probability * tf.cast(rows.input_mask, tf.float32)}
