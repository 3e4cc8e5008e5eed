"""The one interface of all tokenizers, for the data builder, tf.data and the SavedModel; `kinds.py` chooses one."""

from collections.abc import Sequence

import tensorflow as tf
from tokenizers import Tokenizer as HuggingFaceTokenizer

from electra_tf.text.hugging_face import hugging_face_tokenizer
from electra_tf.text.segment import program_to_run, segmented
from electra_tf.text.vocabulary import BERT_TEXT, TextSettings, Vocabulary


class Tokenizer(tf.Module):
    """Maps text to ids, in batches and in C++; a tf.Module, so that a SavedModel can hold it.

    Attributes:
        runs_in_graphs: whether text can be tokenized in a graph, as in a SavedModel. Otherwise only eager tensors can.
        given_segment: the user's word on the program that cuts text into words, see `program_to_run`.
    """

    runs_in_graphs = True
    given_segment: str | None = None

    def __init__(self, vocabulary: Vocabulary, settings: TextSettings = BERT_TEXT) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.settings = vocabulary.text_settings or settings
        with tf.device("CPU:0"):  # next to the string ops, also on a machine with a GPU
            self._tokens = tf.constant(vocabulary.tokens)

    @property
    def description(self) -> str:
        """What the tokens are, for a model card."""
        raise NotImplementedError

    @property
    def hugging_face_settings(self) -> dict[str, bool | int | str]:
        """Entries of tokenizer_config.json that describe the normalization."""
        return {}

    @property
    def segmenter(self) -> str:
        """The program that cuts text into words before it is tokenized, or "". Raises: UserError: `program_to_run`."""
        return program_to_run(self.settings.segment, self.given_segment)

    def segment(self, texts: Sequence[str]) -> Sequence[str]:
        """Texts as `tokenize` takes them, with spaces between words. Raises: UserError: `segmenter`, `segmented`."""
        return segmented(self.segmenter, texts)

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The ids of lines, without special tokens: [N] string in UTF-8 -> [N, (tokens)] int32."""
        raise NotImplementedError

    def tokenize_with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Tokenizes lines, and finds the position of each token in its line, in characters (Unicode code points).

        A token ends after the accents stripped from its last character. White space and deleted characters may lie
        between tokens. Tokens are in order and do not overlap, except if one character becomes several tokens, or if
        normalization changes neighbouring characters together: then each of their tokens has all of them.

        Args:
            texts: [N] string, UTF-8; each invalid byte counts as a character.
        Returns: the ids of `tokenize` [N, (tokens)] int32, the starts [N, (tokens)] int64, and the ends (exclusive)
            [N, (tokens)] int64.
        """
        raise NotImplementedError

    def in_context(self, words: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Words [W] string of texts, which are tokenized one by one: `Vocabulary.in_context` as TensorFlow ops.

        Args: rows: [W] int64, ascending, the text of each word.
        """
        return words

    def tokens_of(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
        """The tokens of ids (int32 in [0, V), dense or ragged), as strings in the same shape."""
        return tf.ragged.map_flat_values(lambda flat_ids: tf.gather(self._tokens, flat_ids), ids)

    def to_hugging_face(self) -> HuggingFaceTokenizer:
        """The same tokenizer for the library `tokenizers`, without special tokens around a text."""
        return hugging_face_tokenizer(self.vocabulary, self.settings)
