"""Trained encoders rearranged for serving: what depends on the weights alone is computed once, not in each call."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from electra_tf.models.bert_block import JoinedWeights, TransformerLayer, inference_layer
from electra_tf.models.embeddings import DisentangledEmbeddings
from electra_tf.models.encoder import Encoder
from electra_tf.models.layers import INFERENCE, ForwardContext, Part


def prepare_for_inference(encoder: Encoder) -> None:
    """Lets an encoder compute with copies of its weights that are made for serving; it cannot be trained any more.

    BERT's layers become one `InferenceLayers`, and disentangled embeddings plain ones with the summed tables. Results
    stay the same, but for `all_layer_outputs`, which has the last layer's only, and `attention_probs`, which is empty.
    """
    embeddings, layers = encoder.embeddings, encoder.transformer_layers
    if isinstance(embeddings, DisentangledEmbeddings):
        embeddings = embeddings.merged()
    if isinstance(layers[0], TransformerLayer):
        layers = (InferenceLayers(layers, encoder.compute_dtype),)
    encoder.parts = lambda: (embeddings, layers)  # Keras lets no layer be replaced


_OUTPUT_NAMES = ("kernel", "bias", "LayerNorm/gamma", "LayerNorm/beta")
_NAMES = JoinedWeights(
    qkv_kernel="qkv/kernel",
    qkv_bias="qkv/bias",
    intermediate=("intermediate/kernel", "intermediate/bias"),
    attention_output=tuple(f"attention_output/{name}" for name in _OUTPUT_NAMES),
    output=tuple(f"output/{name}" for name in _OUTPUT_NAMES),
)


class InferenceLayers(Part):
    """All layers of a trained encoder, without dropout. Two halves of a batch are computed at the same time.

    TensorFlow computes products of few rows on one core, and products of many rows faster on one core each than one
    after the other on two. The layers are one function in the graph: all signatures of an export share it. The weights
    of all layers are one variable of each kind, because every input of the function costs time in each call.

    Args:
        layers: the layers to copy the weights of.
        dtype: of the products and of the hidden states; LayerNorm is in float32.
    Call: as of a `TransformerLayer`, which returns None in place of the probabilities.
    """

    def __init__(self, layers: Sequence[TransformerLayer], dtype: str) -> None:
        super().__init__(name="layers", trainable=False)
        self._config, self._attention_mask = layers[0].config, layers[0].attention_mask

        def variable(name: str, *values: tf.Tensor) -> tf.Variable:
            own = tf.float32 if "LayerNorm" in name else dtype
            return tf.Variable(tf.cast(tf.stack(values), own), trainable=False, name=f"layers/{name}")

        self._stacked = tf.nest.map_structure(variable, _NAMES, *(layer.joined_weights("float32") for layer in layers))
        hidden = tf.TensorSpec([None, None, self._config.hidden_size], dtype)
        compute = tf.function(
            self._compute,
            input_signature=[hidden, tf.TensorSpec([None, None], tf.int32)],
            autograph=False,
            experimental_attributes={"_noinline": True},
        )
        # Hidden from TensorFlow, which would save it as a function of its own.
        self._get_compute: Callable[[], Any] = lambda: compute

    def call(
        self, hidden: tf.Tensor, key_mask: tf.Tensor, context: ForwardContext = INFERENCE
    ) -> tuple[tf.Tensor, None]:
        assert not context.training, "an encoder that is prepared for inference cannot be trained"
        compute, half = self._get_compute(), tf.shape(hidden)[0] // 2

        def halves() -> tf.Tensor:
            return tf.concat([compute(hidden[:half], key_mask[:half]), compute(hidden[half:], key_mask[half:])], axis=0)

        output = tf.cond(half > 0, halves, lambda: compute(hidden, key_mask))
        return tf.ensure_shape(output, hidden.shape), None

    def _compute(self, hidden: tf.Tensor, key_mask: tf.Tensor) -> tf.Tensor:
        of_layers = zip(*map(tf.unstack, tf.nest.flatten(self._stacked)), strict=True)
        for flat in of_layers:
            weights = tf.nest.pack_sequence_as(self._stacked, flat)
            hidden, _ = inference_layer(hidden, key_mask, weights, self._config, self._attention_mask)
        return hidden
