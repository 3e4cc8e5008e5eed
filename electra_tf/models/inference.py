"""Trained encoders rearranged for serving: what depends on the weights alone is computed once, not in each call."""

from collections.abc import Sequence

import tensorflow as tf
import tf_keras

from electra_tf.models.embeddings import DisentangledEmbeddings
from electra_tf.models.encoder import Encoder, JoinedWeights, TransformerLayer, inference_layer
from electra_tf.models.layers import INFERENCE, ForwardContext


def prepare_for_inference(encoder: Encoder) -> None:
    """Replaces the encoder's layers by one `InferenceLayers`; it cannot be trained any more. Idempotent.

    Its results stay the same, but for `all_layer_outputs`, which has the last layer's only, and `attention_probs`,
    which is empty.
    """
    if not isinstance(encoder.transformer_layers[0], InferenceLayers):
        encoder.transformer_layers = [InferenceLayers(encoder.transformer_layers, encoder.compute_dtype)]


def stand_alone(encoder: Encoder) -> None:
    """Replaces disentangled embeddings by plain ones with the summed tables; the encoder's results stay the same.

    For serving and export, not for an encoder that is trained further together with the generator.
    """
    if isinstance(encoder.embeddings, DisentangledEmbeddings):
        encoder.embeddings = encoder.embeddings.merged()


class InferenceLayers(tf_keras.layers.Layer):
    """All layers of a trained encoder, without dropout. Two halves of a batch are computed at the same time.

    TensorFlow computes products of few rows on one core, and products of many rows faster on one core each than one
    after the other on two. The layers are one function in the graph: all signatures of an export share it.

    Args:
        layers: the layers to copy the weights of.
        dtype: of the hidden states.
    Call: as of a `TransformerLayer`, which returns None in place of the probabilities.
    """

    def __init__(self, layers: Sequence[TransformerLayer], dtype: str):
        super().__init__(name="layers", trainable=False, autocast=False)
        self._copies = [_InferenceLayer(layer) for layer in layers]
        hidden = tf.TensorSpec([None, None, layers[0].config.hidden_size], dtype)
        compute = tf.function(
            self._compute,
            input_signature=[hidden, tf.TensorSpec([None, None], tf.int32)],
            autograph=False,
            experimental_attributes={"_noinline": True},
        )
        self._get_compute = lambda: compute  # hides it from TensorFlow, which would save it as a function of its own
        self.built = True

    def call(self, hidden: tf.Tensor, key_mask: tf.Tensor, context: ForwardContext = INFERENCE):
        assert not context.training, "an encoder that is prepared for inference cannot be trained"
        compute, half = self._get_compute(), tf.shape(hidden)[0] // 2

        def halves() -> tf.Tensor:
            return tf.concat([compute(hidden[:half], key_mask[:half]), compute(hidden[half:], key_mask[half:])], axis=0)

        output = tf.cond(half > 0, halves, lambda: compute(hidden, key_mask))
        return tf.ensure_shape(output, hidden.shape), None

    def _compute(self, hidden: tf.Tensor, key_mask: tf.Tensor) -> tf.Tensor:
        for layer in self._copies:
            hidden = layer(hidden, key_mask)
        return hidden


class _InferenceLayer(tf_keras.layers.Layer):
    """A `TransformerLayer` without dropout, which returns the hidden states alone. Kernels have the compute dtype."""

    def __init__(self, layer: TransformerLayer):
        super().__init__(name=layer.name, dtype=layer.dtype_policy, trainable=False, autocast=False)
        self._config, self._attention_mask = layer.config, layer.attention_mask
        with tf.name_scope(layer.name):
            qkv_kernel, qkv_bias, intermediate, *outputs = layer.joined_weights()
            dense = [self._weight(qkv_kernel), self._weight(qkv_bias), tuple(map(self._weight, intermediate))]
            for kernel, bias, *norm in outputs:
                norm = (tf.Variable(values, trainable=False) for values in norm)
                dense.append((self._weight(kernel), self._weight(bias), *norm))
        self._weights_of_layer = JoinedWeights(*dense)
        self.built = True

    def call(self, hidden: tf.Tensor, key_mask: tf.Tensor) -> tf.Tensor:
        return inference_layer(hidden, key_mask, self._weights_of_layer, self._config, self._attention_mask)[0]

    def _weight(self, values: tf.Tensor) -> tf.Variable:
        return tf.Variable(tf.cast(values, self.compute_dtype), trainable=False)
