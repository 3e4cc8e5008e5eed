"""A trained model as a SavedModel that takes raw text: tokenizer, encoder and head in one graph, for TF Serving."""

import contextlib
import os

import absl.logging
import tensorflow as tf
from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2

from electra_tf.config.errors import UserError, first_line
from electra_tf.config.files import is_remote
from electra_tf.models.tying import stand_alone
from electra_tf.tasks.pretrain.electra import Electra
from electra_tf.tasks.pretrain.objective import Objective
from electra_tf.text.tokenizer import BertTokenizer

_TEXT = tf.TensorSpec([None], tf.string, name="text")
# TF Serving calls this signature where a request names none.
_DEFAULT_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
_VERSION = "1"
# Where TF Serving looks for warm-up requests, below the version's directory; a short text, a batch of unlike lengths.
WARMUP_FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")
_WARMUP_BATCHES = (
    ["The quick brown fox jumps over the lazy dog."],
    ["ELECTRA learns from every token.", "A discriminator tells which of the tokens in a text were replaced."],
)


class TextEncoder(tf.Module):
    """What the SavedModel holds: `embed`, and `detect` where the objective has a discriminator.

    Args:
        objective: trained; not to be trained further, as its encoder is made to stand alone.
        tokenizer: of the vocabulary it was trained with.
        max_seq_length: texts with more tokens are cut off there, [CLS] and [SEP] included.
    """

    def __init__(self, objective: Objective, tokenizer: BertTokenizer, max_seq_length: int):
        super().__init__(name="electra_text_encoder")
        # Behind a function, so that only the graphs below are saved: TensorFlow would save the Keras layers' own calls
        # too, and the generator's weights. What the graphs read must then be named here.
        self._get_objective = lambda: objective
        stand_alone(objective.encoder)
        has_discriminator = isinstance(objective, Electra)
        layers = objective.detection_layers if has_discriminator else [objective.encoder]
        self._weights = [variable for layer in layers for variable in layer.variables]
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self.embed = tf.function(self._embed, input_signature=[_TEXT])
        # Saving traces every function that stands here, called or not.
        self.detect = tf.function(self._detect, input_signature=[_TEXT]) if has_discriminator else None

    def _embed(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Vectors of texts. T is the length of the longest text of the call.

        Args:
            text: [N] string, UTF-8.
        Returns: `pooled_output` [N, H] float32, the vector of [CLS]; `sequence_output` [N, T, H] float32, a vector a
            token, 0 in padding; `tokens` [N, T] string, "" in padding.
        """
        inputs = self._inputs(text)
        output = self._get_objective()(inputs)
        real = tf.cast(inputs["input_mask"], tf.float32)[:, :, tf.newaxis]
        return {
            "pooled_output": tf.cast(output.pooled_output, tf.float32),
            "sequence_output": tf.cast(output.sequence_output, tf.float32) * real,
            "tokens": self._tokens(inputs),
        }

    def _detect(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Which tokens were replaced.

        Args:
            text: [N] string, UTF-8.
        Returns: `tokens` [N, T] string, "" in padding; `replaced_probability` [N, T] float32, 0 in padding.
        """
        inputs = self._inputs(text)
        probability = self._get_objective().detect(inputs) * tf.cast(inputs["input_mask"], tf.float32)
        return {"tokens": self._tokens(inputs), "replaced_probability": probability}

    def _inputs(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """[CLS] text [SEP] of each text, padded to the longest: three tensors [N, T] int32."""
        vocabulary = self._tokenizer.vocabulary
        ids = self._tokenizer.tokenize(text)[:, : self._max_seq_length - 2]
        ends = [tf.fill([tf.size(text), 1], special) for special in (vocabulary.cls_id, vocabulary.sep_id)]
        ids = tf.concat([ends[0], ids, ends[1]], axis=1)
        input_ids = ids.to_tensor(default_value=vocabulary.pad_id)
        # Never of width 0: a call without a single text has a [CLS] column too.
        missing = tf.maximum(0, 2 - tf.shape(input_ids)[1])
        input_ids = tf.pad(input_ids, [[0, 0], [0, missing]], constant_values=vocabulary.pad_id)
        input_mask = tf.cast(tf.sequence_mask(ids.row_lengths(), tf.shape(input_ids)[1]), tf.int32)
        return {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": tf.zeros_like(input_ids)}

    def _tokens(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.where(inputs["input_mask"] > 0, self._tokenizer.tokens_of(inputs["input_ids"]), "")

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """The served functions by name: serving_default and embed, and detect where there is a discriminator."""
        embed = self.embed.get_concrete_function()
        served = {_DEFAULT_SIGNATURE: embed, "embed": embed}
        if self.detect is not None:
            served["detect"] = self.detect.get_concrete_function()
        return served


def export_saved_model(text_encoder: TextEncoder, output_dir: str | os.PathLike, overwrite: bool = False) -> str:
    """Writes `output_dir/1/`, the layout of TF Serving, with warm-up requests for every signature.

    On a local disk the directory appears whole, or not at all. `output_dir` may be on any filesystem that TensorFlow
    writes.

    Args:
        overwrite: replace a version 1 that is there.
    Returns: the version's directory.
    Raises: UserError: if `output_dir` holds something already.
    """
    output_dir = os.fspath(output_dir)
    version_dir = os.path.join(output_dir, _VERSION)
    # A remote store cannot rename a directory.
    temporary = version_dir if is_remote(output_dir) else os.path.join(output_dir, ".unfinished")
    try:
        tf.io.gfile.makedirs(output_dir)
        names = {name.rstrip("/") for name in tf.io.gfile.listdir(output_dir)} - {".unfinished"}
    except tf.errors.OpError as error:
        raise UserError(
            f"--output_dir={output_dir} is no usable directory: {first_line(error)}; give another one"
        ) from None
    if names - {_VERSION} or (names and not overwrite):
        raise UserError(
            f"--output_dir={output_dir} already holds {min(names - {_VERSION} or names)}; give a new directory, or "
            "--overwrite to replace 1"
        )
    # At every save TensorFlow warns of renamed inner names, which nobody sees, and names the temporary directory.
    absl.logging.set_verbosity(absl.logging.ERROR)
    tf.get_logger().setLevel("ERROR")
    try:
        if tf.io.gfile.exists(temporary):  # of an export that was killed, or to be replaced
            with contextlib.suppress(tf.errors.NotFoundError):  # ram:// removes all, then misses the directory
                tf.io.gfile.rmtree(temporary)
        signatures = text_encoder.signatures()
        tf.saved_model.save(text_encoder, temporary, signatures=signatures)
        _write_warmup_requests(temporary, sorted(signatures))
        if temporary != version_dir:
            if names:
                tf.io.gfile.rmtree(version_dir)
            tf.io.gfile.rename(temporary, version_dir)
    except tf.errors.OpError as error:
        raise UserError(f"{version_dir} cannot be written: {first_line(error)}; make room there") from None
    return version_dir


def _write_warmup_requests(version_dir: str, signature_names: list[str]) -> None:
    """Writes requests for each signature: TF Serving plays them at its start, so that the first real one is not slow.

    Source: the SavedModel warm-up page of TensorFlow Serving's documentation.
    """
    file = os.path.join(version_dir, WARMUP_FILE)
    tf.io.gfile.makedirs(os.path.dirname(file))
    with tf.io.TFRecordWriter(file) as writer:
        for signature_name in signature_names:
            for texts in _WARMUP_BATCHES:
                request = predict_pb2.PredictRequest(
                    model_spec=model_pb2.ModelSpec(signature_name=signature_name),
                    inputs={"text": tf.make_tensor_proto(texts)},
                )
                log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
                writer.write(log.SerializeToString(deterministic=True))
