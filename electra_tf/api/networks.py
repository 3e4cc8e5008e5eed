"""The networks of a loaded model, and what they compute for rows of tokens."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tqdm.auto import tqdm

from electra_tf.data.batch import Batch, mask_and_segments
from electra_tf.data.bucketing import Features, evaluation_order, fitting_batch_size, padded_batches
from electra_tf.models.encoder import build_encoder
from electra_tf.models.generators import TransformerGenerator
from electra_tf.models.heads import ReplacedTokenHead
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.distribution import one_device
from electra_tf.weights.names import (
    discriminator_variables,
    encoder_variables,
    generator_variables,
    named_variables,
)
from electra_tf.weights.stored_model import StoredModel, assign_weights

FloatArray = npt.NDArray[np.float32]
Compute = Callable[[Batch], tf.Tensor]


class Networks:
    """The encoder of a stored model, and its head if it has one that works alone.

    Attributes:
        others: the stored model without the weights that are in the variables here.
        finetuned: the fine-tuned task; None of a pre-trained model.
        encoder: of a fine-tuned model the task's own, in its precision; else in float32.
        head: the discriminator's; None without one.
        is_shared: whether a program of the user's may train the weights.
    """

    def __init__(self, stored: StoredModel):
        task = stored.build_task(None if stored.finetuned else "float32")
        self.finetuned = task if isinstance(task, FinetuningTask) else None
        self.encoder, self.is_shared = task.encoder, False
        self.head: ReplacedTokenHead | None = None
        variables = encoder_variables(self.encoder)
        if self.finetuned is not None:
            variables = named_variables(self.finetuned)
        elif stored.has_detector:
            self.head = task.replaced_token_head
            variables = discriminator_variables(self.encoder, self.head)
        self._vector_encoder = self.encoder
        if self.encoder.compute_dtype != "float32":  # of a fine-tuned model; vectors are always float32
            self._vector_encoder = build_encoder(stored.encoder, "float32")
            self._vector_encoder(*tf.ones([3, 1, 3], tf.int32))  # creates the variables
            stored.assign_encoder(self._vector_encoder)
        others = {name: value for name, value in stored.weights.items() if name not in variables}
        self._variables, self.others = variables, dataclasses.replace(stored, weights=others, task=None)
        self._layer_vectors: dict[tuple[int, ...], Compute] = {}

    @functools.cached_property
    def strategy_and_loop(self) -> tuple[tf.distribute.Strategy, DeviceLoop[FinetuningTask]]:
        """What the fine-tuned task predicts with."""
        assert self.finetuned is not None  # `predict` says it
        strategy = one_device()  # not `build_strategy`, which would set an option of the whole process
        return strategy, DeviceLoop(self.finetuned, strategy)

    def stored(self) -> StoredModel:
        """The model with its present weights."""
        weights = {name: variable.numpy() for name, variable in self._variables.items()}
        return dataclasses.replace(self.others, weights=self.others.weights | weights)

    def layer_vectors(self, layers: int | Sequence[int]) -> Compute:
        """The function that computes the mean of layers' vectors, [B, S, H] float32.

        Args:
            layers: from 1 on, or from -1, the last, down.
        Raises: ValueError: there is no such layer.
        """
        encoder, most = self._vector_encoder, self.encoder.config.num_layers
        numbers = (layers,) if isinstance(layers, int | np.integer) else tuple(layers)
        key = tuple((range(1, most + 1) if number > 0 else range(-most, 0)).index(number) for number in numbers)
        if encoder is not self.encoder and self.is_shared:
            self.stored().assign_encoder(encoder)

        def vectors(batch: Batch) -> tf.Tensor:
            outputs = encoder(batch["input_ids"], **mask_and_segments(batch)).all_layer_outputs
            return tf.add_n([tf.cast(outputs[number], tf.float32) for number in key]) / len(key)

        return self._layer_vectors.setdefault(key, tf.function(vectors, reduce_retracing=True, autograph=False))

    @functools.cached_property
    def detect(self) -> Compute:
        """The function that computes the probability that a token was replaced, [B, S] float32."""
        head = self.head
        assert head is not None

        def probabilities(batch: Batch) -> tf.Tensor:
            outputs = self.encoder(batch["input_ids"], **mask_and_segments(batch))
            return tf.sigmoid(head(tf.cast(outputs.sequence_output, tf.float32)))

        return tf.function(probabilities, reduce_retracing=True, autograph=False)

    def predict_masked(self) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
        """The function that computes the probabilities of tokens: (ids [B, S], positions [B, M] int32) -> [B, M, V].

        Raises: UserError: there is no masked language model that was trained.
        """
        network = self._masked_lm
        if self.is_shared:  # the generator has weights of its own, and copies of those that it shares
            stored = self.stored()
            assign_weights(stored.source, stored.masked_lm_weights, generator_variables(network))
        return self._masked_probabilities

    @functools.cached_property
    def _masked_lm(self) -> TransformerGenerator:
        return self.stored().build_masked_lm()

    @functools.cached_property
    def _masked_probabilities(self) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
        network = self._masked_lm

        def probabilities(ids: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
            return tf.nn.softmax(network(ids, tf.ones_like(ids), tf.zeros_like(ids), positions).logits)

        return tf.function(probabilities, reduce_retracing=True, autograph=False)

    def rows(
        self, features: Features, compute: Compute, batch_size: int, progress: bool = False
    ) -> Iterator[tuple[int, FloatArray]]:
        """The outputs of a function for the real tokens of each row, with the row's number, the longest first."""
        if not features.num_rows:
            return
        order = evaluation_order(features, fitting_batch_size(features.num_rows, batch_size))
        padded: Any = padded_batches(features, order, range(1, int(features.lengths.max()) + 1))
        for batch in tqdm(padded, total=len(order), unit="batch", disable=not progress):
            outputs = compute(batch).numpy()
            for row, values in zip(batch["row_index"].numpy(), outputs, strict=True):
                if row >= 0:
                    yield row, values[: features.lengths[row]]
