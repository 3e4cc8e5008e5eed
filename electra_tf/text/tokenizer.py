"""BERT's tokenization as TensorFlow ops: one object for the data builder, tf.data and the SavedModel."""

import tensorflow as tf
import tensorflow_text as tf_text

from electra_tf.text.normalization import BasicTokenizer
from electra_tf.text.vocabulary import CONTINUATION_PREFIX, UNK, Vocabulary

MAX_CHARACTERS_PER_WORD = 200  # a longer word is [UNK]: the authors' WordpieceTokenizer
MAX_BYTES_PER_CHARACTER = 4  # UTF-8


class BertTokenizer(tf.Module):
    """Text to the ids that BERT's and ELECTRA's own Python code gives, in batches, at the speed of C++.

    Args of the constructor:
        vocabulary: what the ids index.
        lower_case: letters are lowered.
        strip_accents: accents are stripped; as in BERT, only where letters are lowered too.
    Source: google-research/electra, model/tokenization.py (FullTokenizer).
    """

    def __init__(self, vocabulary: Vocabulary, lower_case: bool = True, strip_accents: bool = True) -> None:
        super().__init__(name="bert_tokenizer")
        self.vocabulary = vocabulary
        self.lower_case = lower_case
        self.strip_accents = strip_accents
        self._basic_tokenizer = BasicTokenizer(lower_case, strip_accents)
        with tf.device("CPU:0"):  # next to the string ops, also on a machine with a GPU
            self._tokens = tf.constant(vocabulary.tokens)
            self._word_pieces = tf_text.FastWordpieceTokenizer(
                list(vocabulary.tokens),
                suffix_indicator=CONTINUATION_PREFIX,
                max_bytes_per_word=MAX_CHARACTERS_PER_WORD * MAX_BYTES_PER_CHARACTER,
                token_out_type=tf.int32,
                unknown_token=UNK,
                no_pretokenization=True,
            )

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Cuts lines into WordPiece ids; no special tokens are added.

        Args:
            texts: [N] string, UTF-8; invalid bytes are dropped.
        Returns: [N, (tokens)] int32.
        """
        texts = tf.convert_to_tensor(texts, tf.string)
        return self._tokenize_exactly(texts)

    def tokens_of(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
        """The tokens that ids stand for.

        Args:
            ids: any shape, dense or ragged, int32 in [0, V).
        Returns: the same shape, string.
        """
        return tf.ragged.map_flat_values(lambda flat_ids: tf.gather(self._tokens, flat_ids), ids)

    def _tokenize_exactly(self, texts: tf.Tensor) -> tf.RaggedTensor:
        words, num_characters, rows = self._basic_tokenizer.words(texts)
        words = tf.where(num_characters > MAX_CHARACTERS_PER_WORD, UNK, words)
        pieces = self._word_pieces.tokenize(words)  # [W, (pieces)]
        ids_of_rows = tf.RaggedTensor.from_value_rowids(pieces, rows, nrows=tf.size(texts, tf.int64), validate=False)
        return ids_of_rows.merge_dims(1, 2)
