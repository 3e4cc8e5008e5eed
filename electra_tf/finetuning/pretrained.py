"""The encoder that fine-tuning starts from: its sizes, weights and tokenizer."""

import os
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
import yaml

from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig
from electra_tf.convert.names import encoder_variables
from electra_tf.convert.stored_weights import list_briefly, require_none_missing
from electra_tf.export.finetuned import load_finetuned
from electra_tf.export.load import load_run, load_tokenizer
from electra_tf.models.encoder import Encoder
from electra_tf.runs.checkpoints import damage, newest_whole, step_of
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.files import exists, read_bytes
from electra_tf.text.tokenizer import BertTokenizer
from electra_tf.text.vocabulary import Vocabulary, read_vocabulary_file

_HEAD_SIZE = 64  # of all of the authors' models


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
        require_none_missing(self.source, sorted(set(variables) - set(self.weights)))
        if left := sorted(set(self.weights) - set(variables)):
            raise UserError(
                f"{self.source} holds {list_briefly(left)}, which the encoder has not; leave out --set encoder.*, "
                "sizes follow from the checkpoint"
            )
        for name, variable in variables.items():
            found, expected = list(self.weights[name].shape), variable.shape.as_list()
            if found != expected:
                raise UserError(
                    f"{self.source}: {name} has shape {found}, the encoder's is {expected}; leave out --set encoder.*, "
                    "sizes follow from the checkpoint"
                )
        for name, variable in variables.items():
            variable.assign(self.weights[name])
        return f"loaded {len(variables)} of {len(variables)} encoder variables from {self.source}"


def load_pretrained(
    path: str | os.PathLike, vocab_file: str | None = None, lower_case: bool = True, num_heads: int | None = None
) -> PretrainedEncoder:
    """Reads an encoder.

    Args:
        path: the directory of a run (of pre-training or fine-tuning), for its newest whole checkpoint; one of its
            checkpoints or milestones; or a checkpoint of the authors' code. Of a checkpoint its prefix, or its
            directory for the newest in it.
        vocab_file, lower_case, num_heads: of one of the authors' checkpoints, which does not say. None for the last:
            one head for 64 hidden units, as in all of their models.
    Raises: UserError: if there is no such checkpoint, it is damaged or not whole, or the vocabulary does not fit.
    """
    path = os.fspath(path).removesuffix(".index").rstrip("/")
    if exists(RunDirectory(path).config_file):
        encoder = _of_run(path, None)
    else:
        prefix = path if exists(f"{path}.index") else tf.train.latest_checkpoint(path)
        if prefix is None:
            raise UserError(f"--init_from={path}: there is neither a run nor a checkpoint; expected one of the two")
        inside, folder = os.path.split(os.path.dirname(prefix))
        is_of_run = folder in ("checkpoints", "milestones", "best") and exists(RunDirectory(inside).config_file)
        encoder = _of_run(inside, prefix) if is_of_run else _of_authors(prefix, vocab_file, lower_case, num_heads)
    if encoder.tokenizer.vocabulary.size != encoder.config.vocab_size:
        raise UserError(
            f"the vocabulary has {encoder.tokenizer.vocabulary.size} tokens, the encoder of {encoder.source} has "
            f"{encoder.config.vocab_size}; give the vocabulary it was trained with (--vocab_file)"
        )
    return encoder


def _of_run(model_dir: str, prefix: str | None) -> PretrainedEncoder:
    run = RunDirectory(model_dir)
    if "task" in (yaml.safe_load(read_bytes(run.config_file)) or {}):
        tuned = load_finetuned(model_dir, prefix)
        encoder, config, source = tuned.task.encoder, tuned.config.encoder, tuned.source
    else:
        if prefix is None and (prefix := newest_whole(run.checkpoints)) is None:
            raise UserError(f"--init_from={model_dir} is a run without a checkpoint yet; train it first")
        step = step_of(prefix)
        objective = load_run(model_dir, step)
        encoder, config, source = objective.encoder, objective.config.encoder, f"step {step} of {model_dir}"
    weights = {name: variable.numpy() for name, variable in encoder_variables(encoder).items()}
    return PretrainedEncoder(config, weights, load_tokenizer(model_dir), read_bytes(run.vocab_file), source)


def _of_authors(prefix: str, vocab_file: str | None, lower_case: bool, num_heads: int | None) -> PretrainedEncoder:
    if reason := damage(prefix):
        raise UserError(f"--init_from={prefix} is no readable TensorFlow checkpoint: {reason}; give another one")
    if vocab_file is None:
        raise UserError(
            f"--init_from={prefix} has no vocabulary with it; give the one it was trained with as --vocab_file"
        )
    reader = tf.train.load_checkpoint(prefix)
    weights = {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name.startswith("electra/") and not name.endswith(("/adam_m", "/adam_v"))
    }
    config = _sizes_of(prefix, weights, num_heads)
    content = read_vocabulary_file(vocab_file)
    tokenizer = BertTokenizer(Vocabulary.from_bytes(content, vocab_file), lower_case, lower_case)
    return PretrainedEncoder(config, weights, tokenizer, content, prefix)


def _sizes_of(prefix: str, weights: dict[str, np.ndarray], num_heads: int | None) -> EncoderConfig:
    """The sizes of an encoder, from the shapes of its weights."""
    names = ("word_embeddings", "position_embeddings", "token_type_embeddings")
    tables, first_layer = (
        [f"electra/embeddings/{name}" for name in names],
        "electra/encoder/layer_0/intermediate/dense/kernel",
    )
    if missing := [name for name in (*tables, first_layer) if name not in weights]:
        raise UserError(f"{prefix} holds no variable {list_briefly(missing)}; give a checkpoint of ELECTRA")
    (vocab_size, embedding_size), (positions, _), (types, _) = (weights[name].shape for name in tables)
    hidden_size, intermediate_size = weights[first_layer].shape
    return EncoderConfig(
        vocab_size=vocab_size,
        embedding_size=embedding_size,
        hidden_size=hidden_size,
        num_layers=len({name.split("/")[2] for name in weights if name.startswith("electra/encoder/layer_")}),
        num_heads=num_heads or max(1, hidden_size // _HEAD_SIZE),
        intermediate_size=intermediate_size,
        max_position_embeddings=positions,
        type_vocab_size=types,
    )
