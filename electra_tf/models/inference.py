"""Trained encoders rearranged for serving: what depends on the weights alone is computed once, not in each call."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from electra_tf.models.bert_block import TransformerLayer, inference_layer
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


# Of a part's weights; one without a LayerNorm has the first two.
_NAMES = ("kernel", "bias", "LayerNorm/gamma", "LayerNorm/beta")


class InferenceLayers(Part):
    """All layers of a trained encoder, without dropout. Two halves of a call are computed at the same time.

    TensorFlow computes products of few rows on one core, and products of many rows faster on one core each than one
    after the other on two. The halves are two batches; of one sequence they are its two halves, which exchange keys and
    values in each layer. The layers are one function in the graph for each of both: all signatures of an export share
    them. The weights of all layers are one variable of each kind, because every input of a function costs time in each
    call.

    Args: layers: to copy the weights of.        dtype: of products and hidden states; LayerNorm is in float32.
    Call: as of a `TransformerLayer`, which returns None in place of the probabilities.
    """

    def __init__(self, layers: Sequence[TransformerLayer], dtype: str) -> None:
        super().__init__(name="layers", trainable=False)
        self._config, self._attention_mask = layers[0].config, layers[0].attention_mask

        def variable(name: str, values: Sequence[tf.Tensor]) -> tf.Variable:
            own = tf.float32 if "LayerNorm" in name else dtype
            return tf.Variable(tf.cast(tf.stack(values), own), trainable=False, name=f"layers/{name}")

        of_layers = [layer.joined_weights("float32") for layer in layers]
        stacked = {}
        for part in of_layers[0]:
            values = zip(*(weights[part] for weights in of_layers), strict=True)  # all kernels, all biases ...
            stacked[part] = tuple(variable(f"{part}/{name}", each) for name, each in zip(_NAMES, values, strict=False))
        self._stacked = stacked
        hidden = tf.TensorSpec([None, None, self._config.hidden_size], dtype)
        whole, in_two_parts = (
            tf.function(
                functools.partial(self._compute, num_parts),
                input_signature=[hidden, tf.TensorSpec([None, None], tf.int32)],
                autograph=False,
                experimental_attributes={"_noinline": True},
            )
            for num_parts in (1, 2)
        )
        # Hidden from TensorFlow, which would save them as functions of their own.
        self._get_functions: Callable[[], tuple[Any, Any]] = lambda: (whole, in_two_parts)

    def call(
        self, hidden: tf.Tensor, key_mask: tf.Tensor, context: ForwardContext = INFERENCE
    ) -> tuple[tf.Tensor, None]:
        assert not context.training, "an encoder that is prepared for inference cannot be trained"
        (whole, in_two_parts), half = self._get_functions(), tf.shape(hidden)[0] // 2

        def halves() -> tf.Tensor:
            return tf.concat([whole(hidden[:half], key_mask[:half]), whole(hidden[half:], key_mask[half:])], axis=0)

        def one_sequence() -> tf.Tensor:
            if self._attention_mask != "bidirectional":  # half of a sequence has no mask of its own
                return whole(hidden, key_mask)
            # Half of one token would be empty, and ONNX takes a size of 0 in a Reshape for the input's size.
            return tf.cond(
                tf.shape(hidden)[1] > 1, lambda: in_two_parts(hidden, key_mask), lambda: whole(hidden, key_mask)
            )

        output = tf.cond(half > 0, halves, one_sequence)
        return tf.ensure_shape(output, hidden.shape), None

    def _compute(self, num_parts: int, hidden: tf.Tensor, key_mask: tf.Tensor) -> tf.Tensor:
        shape = tf.shape(hidden)
        lengths = [(shape[1] + number) // num_parts for number in range(num_parts)]
        parts = [tf.reshape(rows, [-1, hidden.shape[2]]) for rows in tf.split(hidden, lengths, axis=1)]
        of_kinds = {kind: [tf.unstack(values) for values in stacked] for kind, stacked in self._stacked.items()}
        for index in range(self._config.num_layers):
            weights = {kind: tuple(values[index] for values in of_kind) for kind, of_kind in of_kinds.items()}
            parts, _ = inference_layer(parts, lengths, key_mask, weights, self._config, self._attention_mask)
        shapes = [[shape[0], length, hidden.shape[2]] for length in lengths]
        return tf.concat(list(map(tf.reshape, parts, shapes)), axis=1)
