"""Multiple choice: the model, its data and its predictions."""

import numpy as np
import tensorflow as tf

from electra_tf.data.batch import Batch
from electra_tf.data.tables import tsv
from electra_tf.models.layers import ForwardContext
from electra_tf.tasks.finetune.choices import ChoiceExamples
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.data import Outputs, TaskData
from electra_tf.tasks.finetune.task import FinetuningTask, head_layer, sequences_as_rows
from electra_tf.tasks.finetune.text_features import TextFeatures, choice_features
from electra_tf.text.tokenizer import Tokenizer


class MultipleChoiceTask(FinetuningTask):
    """Scores each choice with its context: logits [B, C] float32, the lowest number where an example has no choice.

    A batch has B examples of C sequences of S tokens. The head of a sequence is dropout and a dense layer on the vector
    of [CLS], or that of ElectraForMultipleChoice, which has another dense layer and GELU before them, or of
    ModernBertForMultipleChoice, which has a LayerNorm too. The loss of an example is its cross-entropy over choices.
    Source: models/electra and models/modernbert of transformers 5.
    """

    target_tensors = {"label_ids": ("", tf.int32)}
    text_axes = "CS"

    def __init__(self, config: FinetuningConfig, **model_options):
        super().__init__(config, **model_options)
        self.output_layer = head_layer(1, "classifier")
        self.add_hidden_layers()

    def forward(self, batch: Batch, context: ForwardContext) -> tf.Tensor:
        """[B, C] float32 logits."""
        rows, context = sequences_as_rows(batch, context)
        logits = self.output_layer(self.head_input(self.encode(rows, context).pooled_output, context))  # [B C, 1]
        is_choice = batch["input_mask"][:, :, 0] > 0
        return tf.where(is_choice, tf.reshape(logits, tf.shape(is_choice)), logits.dtype.min)

    def row_losses(self, batch: Batch, forward: tf.Tensor) -> tf.Tensor:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label_ids"], logits=forward)

    def predictions(self, batch: Batch, forward: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": forward}


class ChoiceData(TaskData):
    """Contexts with choices, one of which is right.

    Args:
        train: the training split; None if the data is only predicted.
        evaluated: the evaluated split; without labels it is only predicted.
        split: its name, for the name of its predictions.
    """

    primary_metric = "accuracy"
    metric_names = ("accuracy", "loss")

    def __init__(
        self,
        config: FinetuningConfig,
        tokenizer: Tokenizer,
        train: ChoiceExamples | None,
        evaluated: ChoiceExamples,
        split: str = "validation",
    ):
        self._evaluated, self._split, self.has_labels = evaluated, split, evaluated.labels is not None
        self.source, self.num_evaluated = (train or evaluated).source, len(evaluated)

        def features_of(examples: ChoiceExamples) -> TextFeatures:
            targets = {} if examples.labels is None else {"label_ids": np.array(examples.labels, np.int32)}
            return choice_features(examples, targets, tokenizer, config.data.max_seq_length)

        self.set_features(features_of(train) if train is not None else None, features_of(evaluated))

    def metrics(self, outputs: Outputs) -> dict[str, float]:
        is_right = outputs["logits"].argmax(axis=1) == self.evaluation.row_targets["label_ids"]
        return {"accuracy": float(np.mean(is_right)), "loss": float(np.mean(outputs["loss"], dtype=np.float64))}

    def prediction_files(self, outputs: Outputs) -> dict[str, bytes]:
        """The predictions as TSV: id, label (if known), prediction, and each choice's probability, counted from 0."""
        from scipy import special

        labels, logits = self._evaluated.labels, outputs["logits"]
        probabilities = special.softmax(logits, axis=1)
        known = [] if labels is None else ["label"]
        table = [["id", *known, "prediction", *(f"probability_{n}" for n in range(logits.shape[1]))]]
        for index, (name, choices) in enumerate(zip(self._evaluated.ids, self._evaluated.choices, strict=True)):
            known = [] if labels is None else [labels[index]]
            shares = [f"{share:.6f}" for share in probabilities[index, : len(choices)]]
            missing = [""] * (logits.shape[1] - len(choices))
            table.append([name, *known, logits[index].argmax(), *shares, *missing])
        return {f"predictions_{self._split}.tsv": tsv(table)}

    def problem(self, outputs: Outputs) -> str | None:
        num_choices, loss = np.diff(self.evaluation.first_choice), float(np.mean(outputs["loss"]))
        of_constant = float(np.mean(np.log(num_choices)))
        # A model that has memorised its training set has a high loss, but a better accuracy than chance.
        if loss >= of_constant and self.metrics(outputs)["accuracy"] <= np.mean(1 / num_choices):
            return f"the dev loss is {loss:.4f}; equal scores for all choices have {of_constant:.4f}"
        return None
