"""The encoder of a model as a Keras layer, for models of the user's own."""

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig
from electra_tf.data.batch import TEXT_TENSORS
from electra_tf.models.encoder import Encoder, build_encoder
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.random import RandomStream


class EncoderVectors(NamedTuple):
    """The output of an `EncoderLayer`.

    Attributes:
        sequence_output: [B, S, H] float32, a vector for each token.
        pooled_output: [B, H] float32, that of [CLS].
    """

    sequence_output: tf.Tensor
    pooled_output: tf.Tensor


@keras.saving.register_keras_serializable("electra_tf")
class EncoderLayer(keras.layers.Layer):
    """The encoder of a model as a `keras` layer, to build and `fit` models with; it shares the model's weights.

    Its call takes `input_ids` [B, S] int32, and optionally `input_mask` [B, S] int32, 1 for real tokens (None: all but
    [PAD]), and `segment_ids` [B, S] int32, 1 for the second text of a pair (None: 0); or one dictionary of them, as
    `Model.inputs` returns it. It returns `EncoderVectors`; `sequence_output` has `input_mask` as its Keras mask. In
    training it applies the dropout of the model's settings; a `seed` of None is drawn by Python's `random`, as those of
    Keras' layers. `trainable = False` freezes the weights. Keras saves a model with this layer as a `.keras` file and
    loads it with `custom_objects={"EncoderLayer": electra_tf.EncoderLayer}`.
    """

    def __init__(
        self, encoder: Encoder, pad_id: int, seed: int | None = None, name: str | None = None, trainable: bool = True
    ):
        # Without autocast: bfloat16 would round ids that are floats to other tokens.
        super().__init__(name=name, trainable=trainable, autocast=False)
        self._encoder, self._pad_id = encoder, pad_id
        self._seed = random.randrange(2**31) if seed is None else seed
        self.supports_masking = True
        self._calls = self.add_weight(
            name="training_calls",
            shape=(),
            dtype="int64",
            initializer="zeros",
            trainable=False,
            aggregation="only_first_replica",
        )
        self.built = True

    def get_config(self) -> dict[str, Any]:
        shared = {"pad_id": self._pad_id, "seed": self._seed, "name": self.name, "trainable": self.trainable}
        return {"encoder": self._encoder.config.model_dump(mode="json"), **shared}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "EncoderLayer":
        """A layer with random weights, for Keras, which then reads those of its file."""
        encoder = build_encoder(EncoderConfig(**config["encoder"]), "float32")
        encoder(**{name: tf.ones([1, 3], tf.int32) for name in TEXT_TENSORS})
        return cls(**config | {"encoder": encoder})

    def __call__(
        self,
        input_ids: tf.Tensor | Mapping[str, tf.Tensor],
        input_mask: tf.Tensor | None = None,
        segment_ids: tf.Tensor | None = None,
        **options: Any,
    ) -> EncoderVectors:
        given = dict(input_ids) if isinstance(input_ids, Mapping) else {"input_ids": input_ids}
        given = {"input_mask": input_mask, "segment_ids": segment_ids} | given
        inputs = {name: values for name, values in given.items() if values is not None}
        if unknown := inputs.keys() - {*TEXT_TENSORS}:
            raise TypeError(f"the encoder takes {', '.join(TEXT_TENSORS)}, and not {', '.join(sorted(unknown))}")
        if any(type(each).__module__.startswith("tf_keras.") for each in tf.nest.flatten(dict(inputs))):
            raise UserError("a model of tf_keras would train without the encoder; build it of `import keras`")
        return super().__call__(inputs, **options)

    def compute_mask(self, inputs: Mapping[str, tf.Tensor], previous_mask: Any = None) -> tuple[tf.Tensor, None]:
        """The Keras mask of each output."""
        if "input_mask" in inputs:
            return keras.ops.cast(inputs["input_mask"], "bool"), None
        return keras.ops.not_equal(inputs["input_ids"], self._pad_id), None

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> EncoderVectors:
        input_ids = tf.cast(inputs["input_ids"], tf.int32)
        mask = inputs.get("input_mask", input_ids != self._pad_id)
        segments = inputs.get("segment_ids", tf.zeros_like(input_ids))
        context = ForwardContext()
        if training:  # every call, and every example of all replicas, drops other units
            replica = tf.distribute.get_replica_context()
            first = replica.replica_id_in_sync_group * tf.shape(input_ids)[0] if replica else 0
            self._calls.value.assign_add(1, read_value=False)
            calls = tf.convert_to_tensor(self._calls)
            context = ForwardContext(
                training=True, random=RandomStream(self._seed, calls, tf.cast(first, tf.int64), "encoder")
            )
        outputs = self._encoder(input_ids, tf.cast(mask, tf.int32), tf.cast(segments, tf.int32), context=context)
        return EncoderVectors(tf.cast(outputs.sequence_output, tf.float32), tf.cast(outputs.pooled_output, tf.float32))
