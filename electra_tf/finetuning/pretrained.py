"""The encoder that fine-tuning starts from: its sizes, weights and tokenizer."""

import os
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import EncoderConfig
from electra_tf.convert.names import encoder_variables
from electra_tf.convert.stored_weights import list_briefly
from electra_tf.export.stored import given_of, read_stored_model
from electra_tf.files import is_remote
from electra_tf.models.encoder import Encoder
from electra_tf.text.tokenizer import BertTokenizer
from electra_tf.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class PretrainedEncoder:
    """An encoder as it is before fine-tuning.

    Attributes:
        config: its sizes.        weights: by the authors' names, see `electra_tf.convert.names.encoder_variables`.
        tokenizer, vocabulary_file: of its text; the second is the content of vocab.txt.
        source: the checkpoint, for messages and for the record.
    """

    config: EncoderConfig
    weights: dict[str, np.ndarray]
    tokenizer: BertTokenizer
    vocabulary_file: bytes
    source: str

    def assign_to(self, encoder: Encoder) -> str:
        """Gives an encoder of the same sizes these weights. Returns: a line for the log."""
        variables = encoder_variables(encoder)
        if problem := self._problem(variables):
            raise UserError(f"{self.source} {problem}; leave out --set encoder.*, sizes follow from the checkpoint")
        for name, variable in variables.items():
            variable.assign(self.weights[name])
        return f"loaded {len(variables)} of {len(variables)} encoder variables from {self.source}"

    def _problem(self, variables: dict[str, tf.Variable]) -> str | None:
        if missing := sorted(set(variables) - set(self.weights)):
            return f"holds no variable {list_briefly(missing)}"
        if left := sorted(set(self.weights) - set(variables)):
            return f"holds {list_briefly(left)}, which the encoder has not"
        for name, variable in variables.items():
            found, expected = list(self.weights[name].shape), variable.shape.as_list()
            if found != expected:
                return f"has {name} of shape {found}, the encoder's is {expected}"
        return None


def load_pretrained(
    path: str | os.PathLike, vocab_file: str | None = None, lower_case: bool = True, num_heads: int | None = None
) -> PretrainedEncoder:
    """Reads an encoder.

    Args:
        path: see `electra_tf.export.stored.read_stored_model`.
        vocab_file, lower_case, num_heads: of one of the authors' checkpoints, which does not say, or against what a
            folder of Hugging Face's says. None for the last: as the source says, or one head for 64 hidden units.
    Raises: UserError: if there is no such model, it is damaged or not whole, or the vocabulary does not fit.
    """
    path = os.fspath(path)
    if not is_remote(path):  # the record names it wherever the command is called from
        path = os.path.abspath(path)
    given = given_of(vocab_file, cased=not lower_case, num_heads=num_heads)
    model = read_stored_model(path, given, scopes=("electra/",), flag="--init_from")
    vocabulary = Vocabulary.from_bytes(model.vocabulary_file, f"of {model.source}")
    tokenizer = BertTokenizer(vocabulary, model.lower_case, model.strip_accents)
    return PretrainedEncoder(model.encoder, model.part("electra/"), tokenizer, model.vocabulary_file, model.source)
