"""A trained model on texts: vectors, detection of replaced tokens, predictions of a fine-tuned task."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.api.process import users_process
from electra_tf.api.tables import as_list, as_table
from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig
from electra_tf.data.batch import TEXT_TENSORS, Batch, mask_and_segments
from electra_tf.data.bucketing import Features, batches, evaluation_order, fitting_batch_size
from electra_tf.models.encoder import build_encoder
from electra_tf.models.heads import ReplacedTokenHead
from electra_tf.tasks.finetune.features import text_features
from electra_tf.tasks.finetune.predict import data_of, outputs_of
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.distribution import one_device
from electra_tf.weights.names import discriminator_variables
from electra_tf.weights.source import finetuned_model, read_stored_model, source_overrides
from electra_tf.weights.stored_model import StoredModel, assign_weights, pooling_of

_EXAMPLE = {name: tf.ones([1, 3], tf.int32) for name in TEXT_TENSORS}


class Model:
    """A trained model on texts, which `load` makes.

    Attributes:
        config: the sizes of its encoder.
        tokenizer: maps texts to ids, see `electra_tf.text.tokenizer.Tokenizer`.
        max_seq_length (int): tokens of a text that are read, with [CLS] and [SEP]; longer texts lose their end.
            `predict` reads as many as in fine-tuning.
        batch_size (int): texts in one forward pass.
    """

    config: EncoderConfig
    tokenizer: Tokenizer
    batch_size: int

    def __init__(self, stored: StoredModel, max_seq_length: int | None = None, batch_size: int = 32):
        if not isinstance(batch_size, SupportsIndex) or batch_size < 1:
            raise UserError(f"batch_size is {batch_size!r}, expected an integer from 1 on")
        self.config, self.tokenizer, self.batch_size = stored.encoder, stored.tokenizer, int(batch_size)
        longest, trained = stored.encoder.max_position_embeddings, stored.trained_length
        self.max_seq_length = trained if max_seq_length is None else max_seq_length
        if not (isinstance(self.max_seq_length, SupportsIndex) and 3 <= self.max_seq_length <= longest):
            raise UserError(
                f"max_seq_length is {max_seq_length!r}, expected 3 to {longest}, the positions of the model"
            )
        self._source, self._head, self._finetuned, self._pooling = stored.source, None, None, stored.pooling
        if stored.finetuned is not None:
            self._finetuned = finetuned_model(stored)
            self._encoder = self._finetuned.task.encoder
            # Not `build_strategy`, which would set an option of the whole process.
            self._strategy = one_device("")
            self._loop = DeviceLoop(self._finetuned.task, self._strategy)
        if stored.finetuned is None or stored.finetuned.train.precision != "float32":  # vectors are always float32
            self._encoder = build_encoder(stored.encoder, "float32")
            self._encoder(**_EXAMPLE)
            stored.assign_encoder(self._encoder)
        if stored.has_discriminator_head and stored.objective != "electric":  # which needs its generator too
            self._head = ReplacedTokenHead(stored.encoder, name="discriminator_predictions")
            self._head(tf.zeros([1, 3, stored.encoder.hidden_size]))
            assign_weights(stored.source, stored.weights, discriminator_variables(self._encoder, self._head))
        self._compute = tf.function(self._vectors, reduce_retracing=True, autograph=False)
        self._detect = tf.function(self._probabilities, reduce_retracing=True, autograph=False)

    def __repr__(self) -> str:
        kind, sizes = self._finetuned.config.task.kind if self._finetuned else "encoder", self.config
        return f"<electra_tf.Model {kind}, {sizes.num_layers} layers of {sizes.hidden_size}: {self._source}>"

    def encode(self, texts: Sequence[str], pooling: str | None = None) -> npt.NDArray[np.float32]:
        """A vector for each text.

        Args:
            texts: N texts.
            pooling: `mean` of the vectors of all tokens, [CLS] and [SEP] included, their `max` in each place, or `cls`,
                the vector of [CLS]; None: that of a folder of sentence-transformers, also its scaling to length 1, or
                else `mean`.

        Returns:
            [N, H] float32.
        """
        mode, normalize = pooling_of(self._source, self._pooling if pooling is None else str(pooling))
        texts = _list_of_texts(texts)
        vectors = np.zeros([len(texts), self.config.hidden_size], np.float32)
        for row, values in self._rows(texts, self._compute):
            vectors[row] = values[0] if mode == "cls" else getattr(values, mode)(axis=0)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if normalize else vectors

    def token_vectors(self, texts: Sequence[str]) -> list[npt.NDArray[np.float32]]:
        """The vectors of each text's tokens, [CLS] and [SEP] included.

        Args:
            texts: N texts.

        Returns:
            For each text an array [T, H] float32.
        """
        return self._in_order(texts, self._compute)

    def tokens(self, texts: Sequence[str]) -> list[list[str]]:
        """The tokens of each text in the order of `token_vectors`, [CLS] and [SEP] included.

        Args:
            texts: N texts.

        Returns:
            For each text its T tokens.
        """
        features = self._features(texts)
        pieces = [piece.decode() for piece in self.tokenizer.tokens_of(tf.constant(features.input_ids)).numpy()]
        return [pieces[features.row(row)] for row in range(features.num_rows)]

    def detect(self, texts: Sequence[str]) -> list[npt.NDArray[np.float32]]:
        """The probability that a token was replaced, for each text's tokens.

        Args:
            texts: N texts.

        Returns:
            For each text an array [T] float32, in the order of `tokens`.

        Raises:
            UserError: the model has no discriminator, or that of Electric.
        """
        if self._head is None:
            raise UserError(
                f"{self._source} has no discriminator that works alone; load a run of electra, or its discriminator's "
                "folder (of electric, use `detect` of its SavedModel: electra-tf export)"
            )
        return self._in_order(texts, self._detect)

    @users_process()
    def predict(self, inputs: Any) -> list[Any]:
        """The predictions that `electra-tf finetune --predict` writes.

        Args:
            inputs: texts; for a task of pairs, pairs of texts; or a table with the columns of the training data.

        Returns:
            For each example a dictionary of the columns that the command writes; of tagging, a list of a
                (word, tag, probability) for each word.

        Raises:
            UserError: the model is not fine-tuned, or the inputs do not fit its task.
        """
        if self._finetuned is None:
            raise UserError(f"{self._source} is not fine-tuned; load a seed of electra-tf finetune, or such a folder")
        task = self._finetuned.config.task
        inputs = list(inputs) if isinstance(inputs, Iterator) else inputs
        if hasattr(inputs, "__len__") and not len(inputs):
            return []
        table = as_table(inputs, getattr(task, "text_columns", ()), "inputs")
        data = data_of(self._finetuned, table)
        outputs = outputs_of(self._finetuned, data, self._strategy, self._loop)
        return data.kind.python_values(data.evaluated(outputs).rows)

    def _vectors(self, batch: Batch) -> tf.Tensor:
        outputs = self._encoder(batch["input_ids"], **mask_and_segments(batch))
        return tf.cast(outputs.sequence_output, tf.float32)

    def _probabilities(self, batch: Batch) -> tf.Tensor:
        assert self._head is not None  # `detect` says it
        return tf.sigmoid(self._head(self._vectors(batch)))

    def _features(self, texts: Sequence[str]) -> Features:
        return text_features([_list_of_texts(texts)], {}, self.tokenizer, self.max_seq_length, None).features

    def _in_order(self, texts: Sequence[str], compute: Callable[[Batch], tf.Tensor]) -> list[npt.NDArray[np.float32]]:
        return [values for _, values in sorted(self._rows(texts, compute), key=lambda row: row[0])]

    def _rows(
        self, texts: Sequence[str], compute: Callable[[Batch], tf.Tensor]
    ) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """The outputs of a function for the real tokens of each text, with the text's number, the longest first."""
        features = self._features(texts)
        if not features.num_rows:
            return
        order = evaluation_order(features, fitting_batch_size(features.num_rows, self.batch_size))
        for batch in batches(features, order, range(1, self.max_seq_length + 1)):
            outputs = compute(batch).numpy()
            for row, values in zip(batch["row_index"].numpy(), outputs, strict=True):
                if row >= 0:
                    yield row, values[: features.lengths[row]]


def _list_of_texts(texts: Iterable[str]) -> list[str]:
    """Raises: UserError: it is a text, a table or no list, or holds something else than texts."""
    if isinstance(texts, Mapping) or hasattr(texts, "columns"):
        raise UserError("expected a list of texts, found a table; give one of its columns")
    texts = as_list(texts, "texts", "a list of texts")
    return as_table(texts, ("text",), "texts").texts("text") if texts else []


@users_process()
def load(
    path: str | os.PathLike[str],
    *,
    layers: int | None = None,
    max_seq_length: int | None = None,
    batch_size: int = 32,
    vocab_file: str | None = None,
    cased: bool = False,
    text_columns: Sequence[str] | None = None,
) -> Model:
    """Loads a trained model.

    Args:
        path: a run, one of its checkpoints or milestones, the directory of a fine-tuned seed, a Hugging Face folder, or
            a checkpoint of the authors' code.
        layers: keep the encoder's first layers alone; None: the whole model.
        max_seq_length: tokens of a text that are read, with [CLS] and [SEP]; None: as many as in its training, or
            all positions if the source does not state its training.
        batch_size: texts in one forward pass.
        vocab_file: the vocabulary, for a source without one.
        cased: True if `vocab_file` is cased: text is not lower-cased.
        text_columns: the columns of text that `predict` reads from tables, two of a model for pairs; None: as in
            training, or `text` and, where a table has it, `text_pair` if the source does not state it.

    Returns:
        The model, ready for texts.

    Raises:
        UserError: there is no such model, or it lacks weights.
    """
    stored = read_stored_model(path, source_overrides(vocab_file, cased), flag="path")
    if text_columns is not None:
        stored = stored.with_text_columns(text_columns)
    return Model(stored if layers is None else stored.truncated(layers), max_seq_length, batch_size)
