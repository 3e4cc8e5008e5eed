"""A trained model on texts: vectors, masked words, detection of replaced tokens, predictions of a fine-tuned task."""

import dataclasses
import functools
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, SupportsIndex, overload

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.api.encoder import EncoderLayer
from electra_tf.api.networks import FloatArray, Networks
from electra_tf.api.process import users_process
from electra_tf.api.tables import as_table
from electra_tf.api.texts import masked_features, text_columns_of
from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig
from electra_tf.data.batch import TEXT_TENSORS, Batch
from electra_tf.data.bucketing import Features, padded_batches
from electra_tf.finetuning.predict import data_of, outputs_of
from electra_tf.tasks.finetune.features import text_features
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.weights import FOLDERS
from electra_tf.weights.hub import upload
from electra_tf.weights.hugging_face.sentence_transformers import pooling_of
from electra_tf.weights.stored_model import StoredModel
from electra_tf.weights.write import write_model

logger = logging.getLogger(__name__)


class Model:
    """A trained model on texts, which `load` makes.

    Where a method takes texts, these are a list, an array, a column of a table, or any iterable of texts; of one text
    alone the result is that text's, not a list.

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
        self.config, self.tokenizer, self.batch_size = stored.encoder, stored.tokenizer, int(batch_size)
        self.max_seq_length = self._possible_length(stored.trained_length if max_seq_length is None else max_seq_length)
        stored = dataclasses.replace(stored, facts=stored.facts | {"max_seq_length": self.max_seq_length})
        self._source, self._networks = stored.source, Networks(stored)
        self._finetuned = self._networks.finetuned

    def __repr__(self) -> str:
        kind, sizes = self._finetuned.config.task.kind if self._finetuned else "encoder", self.config
        return f"<electra_tf.Model {kind}, {sizes.num_layers} layers of {sizes.hidden_size}: {self._source}>"

    @functools.cached_property
    def encoder(self) -> EncoderLayer:
        """The encoder as a `keras` layer, for a model of your own; it shares this model's weights."""
        self._networks.is_shared = True
        return EncoderLayer(self._networks.encoder, self.tokenizer.vocabulary.pad_id)

    @functools.cached_property
    def task(self) -> keras.Model:
        """The fine-tuned Keras model, or that of the pre-training with a copy of the weights that are known.

        Its `config` has the settings; it maps a batch of `inputs` to the encoder's output.
        """
        if self._finetuned:
            self._networks.is_shared = True
            return self._finetuned
        with users_process():
            return self._networks.stored().build_task("float32")

    def inputs(self, texts: Any, max_seq_length: int | None = None) -> dict[str, npt.NDArray[np.int32]]:
        """Texts or pairs of texts as the arguments of `encoder`, for `fit` and `predict` of a model of your own.

        Args:
            texts: N texts, or N pairs of texts.
            max_seq_length: the width S of the arrays; None: as many tokens as the longest text has, at most the
                model's `max_seq_length`.

        Returns:
            `input_ids`, `input_mask`, `segment_ids`: [N, S] int32.
        """
        longest = self.max_seq_length if max_seq_length is None else self._possible_length(max_seq_length)
        features = self._features(text_columns_of(texts)[0], longest)
        width = int(features.lengths.max(initial=3)) if max_seq_length is None else longest
        if not features.num_rows:
            return {name: np.zeros([0, width], np.int32) for name in TEXT_TENSORS}
        (batch,) = padded_batches(features, np.arange(features.num_rows, dtype=np.int32)[np.newaxis], [width])
        inputs = {name: batch[name].numpy() for name in TEXT_TENSORS}
        inputs["input_ids"][inputs["input_mask"] == 0] = self.tokenizer.vocabulary.pad_id
        return inputs

    def encode(
        self,
        texts: Any,
        pooling: str | None = None,
        *,
        normalize: bool | None = None,
        layers: int | Sequence[int] | None = None,
        batch_size: int | None = None,
        progress: bool = False,
    ) -> FloatArray:
        """A vector for each text.

        Args:
            texts: N texts, or N pairs of texts.
            pooling: `mean` of the vectors of all tokens, [CLS] and [SEP] included, their `max` in each place, or `cls`,
                the vector of [CLS]; None: that of a folder of sentence-transformers, also its scaling to length 1, or
                else `mean`.
            normalize: whether vectors are scaled to length 1; None: as the folder says, or else not.
            layers: the layer whose vectors are pooled, 1 the first and -1 the last, or several, for their mean; None:
                the last one.
            batch_size: texts in one forward pass; None: the model's.
            progress: show a progress bar.

        Returns:
            [N, H] float32; of one text [H].
        """
        stated = self._networks.others.pooling if pooling is None else str(pooling)
        mode, scales = pooling_of(self._source, stated)
        columns, is_one = text_columns_of(texts)
        vectors = np.zeros([len(columns[0]), self.config.hidden_size], np.float32)
        compute = self._networks.layer_vectors(-1 if layers is None else layers)
        for row, values in self._networks.rows(
            self._features(columns), compute, batch_size or self.batch_size, progress
        ):
            vectors[row] = values[0] if mode == "cls" else getattr(values, mode)(axis=0)
        if scales if normalize is None else normalize:
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors[0] if is_one else vectors

    @overload
    def token_vectors(self, texts: str) -> FloatArray: ...

    @overload
    def token_vectors(self, texts: Iterable[Any]) -> list[FloatArray]: ...

    def token_vectors(self, texts: Any) -> Any:
        """The vectors of each text's tokens, [CLS] and [SEP] included.

        Args:
            texts: N texts, or N pairs of texts.

        Returns:
            For each text an array [T, H] float32.
        """
        return self._in_order(texts, self._networks.layer_vectors(-1))

    @overload
    def tokens(self, texts: str) -> list[str]: ...

    @overload
    def tokens(self, texts: Iterable[Any]) -> list[list[str]]: ...

    def tokens(self, texts: Any) -> Any:
        """The tokens of each text in the order of `token_vectors`, [CLS] and [SEP] included.

        Args:
            texts: N texts, or N pairs of texts.

        Returns:
            For each text its T tokens.
        """
        columns, is_one = text_columns_of(texts)
        features = self._features(columns)
        pieces = self._tokens_of(features.input_ids)
        tokens = [pieces[features.row(row)] for row in range(features.num_rows)]
        return tokens[0] if is_one else tokens

    @overload
    def detect(self, texts: str) -> FloatArray: ...

    @overload
    def detect(self, texts: Iterable[Any]) -> list[FloatArray]: ...

    def detect(self, texts: Any) -> Any:
        """The probability that a token was replaced, for each text's tokens.

        Args:
            texts: N texts.

        Returns:
            For each text an array [T] float32, in the order of `tokens`.

        Raises:
            UserError: the model has no discriminator, or that of Electric or TEAMS.
        """
        if self._networks.head is None:
            raise UserError(
                f"{self._source} has no discriminator that works alone; load a run of electra, or its discriminator's "
                "folder (of electric, use `detect` of its SavedModel: electra-tf export)"
            )
        return self._in_order(texts, self._networks.detect)

    @overload
    def fill_mask(self, texts: str, top_k: int = ...) -> list[list[tuple[str, float]]]: ...

    @overload
    def fill_mask(self, texts: Iterable[Any], top_k: int = ...) -> list[list[list[tuple[str, float]]]]: ...

    @users_process()
    def fill_mask(self, texts: Any, top_k: int = 5) -> Any:
        """The most likely tokens for each [MASK], by the generator or the masked language model.

        Args:
            texts: N texts with [MASK] in them.
            top_k: the number of tokens.

        Returns:
            For each text, for each [MASK] in it, `top_k` pairs of a token and its probability, the likeliest first.

        Raises:
            UserError: the model has no masked language model that it trained, or a text has more tokens than the
                model's `max_seq_length`.
        """
        columns, is_one = text_columns_of(texts)
        features, positions = masked_features(columns, self.tokenizer, self.max_seq_length)
        predict = self._networks.predict_masked()
        filled: list[list[list[tuple[str, float]]]] = []
        for row, places in enumerate(positions):
            ids = tf.constant(features.input_ids[features.row(row)])[tf.newaxis]
            shares = predict(ids, tf.constant([places], tf.int32))[0]
            best, tokens = tf.math.top_k(shares, min(top_k, self.tokenizer.vocabulary.size))
            pairs = zip(map(self._tokens_of, tokens), best.numpy().tolist(), strict=True)
            filled.append([list(zip(*pair, strict=True)) for pair in pairs])
        return filled[0] if is_one else filled

    @overload
    def predict(self, inputs: str) -> Any: ...

    @overload
    def predict(self, inputs: Any) -> list[Any]: ...

    @users_process()
    def predict(self, inputs: Any) -> Any:
        """The predictions that `electra-tf finetune --predict` writes.

        Args:
            inputs: one text, or N; for a task of pairs, pairs of texts; or a table with the columns of the training
                data.

        Returns:
            For each example a dictionary of the columns that the command writes; of tagging, a list of a
                (word, tag, probability) for each word.

        Raises:
            UserError: the model is not fine-tuned, or the inputs do not fit its task.
        """
        if isinstance(inputs, str):
            return self.predict([inputs])[0]
        task = self._finetuned and self._finetuned.config.task
        inputs = list(inputs) if isinstance(inputs, Iterator) else inputs
        if hasattr(inputs, "__len__") and not len(inputs):
            return []
        table = as_table(inputs, getattr(task, "text_columns", ()), "inputs")
        data = data_of(self._networks.others, table)
        outputs = outputs_of(self._networks.others, data, *self._networks.strategy_and_loop)
        return data.kind.python_values(data.evaluated(outputs).rows)

    @users_process()
    def save(self, path: str | os.PathLike[str], format: str = "hugging_face", *, overwrite: bool = False) -> str:
        """Writes the model with its present weights, as `electra-tf convert` and `electra-tf export` do.

        Args:
            path: a new directory.
            format: `hugging_face`; `bert`, the same with BERT's classes; `sentence_transformers`, the encoder with its
                pooling; `tf1`, a checkpoint of the authors' code; or `saved_model`, which takes raw text and is written
                to PATH/1.
            overwrite: replace an existing PATH/1 of a SavedModel.

        Returns:
            The directory; of a SavedModel PATH/1.

        Raises:
            UserError: the directory is not empty, or the format cannot hold the model.
        """
        path = os.fspath(path)
        if format == "saved_model":
            from electra_tf.serving.saved_model import export_saved_model, served_model

            task = self._networks.stored().build_task(None if self._finetuned else "float32")
            return export_saved_model(served_model(task, self.tokenizer), path, overwrite)
        for line in write_model(self._networks.stored(), format, path):
            logger.log(logging.INFO if line.endswith(" parameters") else logging.WARNING, line)
        return path

    @users_process()
    def push_to_hub(
        self,
        name: str,
        *,
        revision: str | None = None,
        private: bool | None = None,
        token: str | None = None,
        format: str = "hugging_face",
        overwrite: bool = True,
    ) -> str:
        """Uploads what `save` writes to the Hugging Face Hub, with a model card. The licence is yours to state.

        Args:
            name: `OWNER/NAME`, or `NAME` of your own; the repository is made if there is none.
            revision: a branch, which is made if there is none; None: `main`.
            private: whether a new repository is private; None: as the owner's settings say.
            token: an access token; None: that of `hf auth login` or HF_TOKEN.
            format: `hugging_face`, `bert` or `sentence_transformers`.
            overwrite: False: keep a model that is there.

        Returns:
            The URL of the commit; with `overwrite=False` that of a branch which has this model already.

        Raises:
            UserError: the Hub cannot be reached, or refuses it; with `overwrite=False` there is another model.
        """
        if format not in FOLDERS:
            raise UserError(f"format is {format!r}, expected one of {', '.join(FOLDERS)}")
        with tempfile.TemporaryDirectory() as folder:
            saved = self.save(os.path.join(folder, "model"), format)
            return upload(saved, name, private, token, revision, overwrite)

    def _possible_length(self, max_seq_length: int) -> int:
        """The length. Raises: UserError: the model has no so many positions, or it is no length."""
        longest = self.config.max_position_embeddings
        if not (isinstance(max_seq_length, SupportsIndex) and 3 <= max_seq_length <= longest):
            raise UserError(
                f"max_seq_length is {max_seq_length!r}, expected 3 to {longest}, the positions of the model"
            )
        return int(max_seq_length)

    def _features(self, columns: list[list[str]], max_seq_length: int | None = None) -> Features:
        longest = self.max_seq_length if max_seq_length is None else max_seq_length
        return text_features(columns, {}, self.tokenizer, longest, None).features

    def _tokens_of(self, ids: Any) -> list[str]:
        return [piece.decode() for piece in self.tokenizer.tokens_of(tf.constant(ids)).numpy()]

    def _in_order(self, texts: Any, compute: Callable[[Batch], tf.Tensor]) -> Any:
        columns, is_one = text_columns_of(texts)
        rows = sorted(self._networks.rows(self._features(columns), compute, self.batch_size), key=lambda row: row[0])
        values = [values for _, values in rows]
        return values[0] if is_one else values
