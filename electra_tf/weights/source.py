"""Reads a trained model of any format, for `--from` of the converter and `--init_from` of training."""

import dataclasses
import logging
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.files import absolute_path, exists, is_directory, is_hub, names_in, read_bytes
from electra_tf.models.encoder import build_encoder
from electra_tf.models.generators import TransformerGenerator
from electra_tf.models.heads import MaskedLmHead
from electra_tf.tasks.finetune.kinds import build_finetuning_task
from electra_tf.tasks.finetune.seeds import FinetunedModel, PretrainedEncoder
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.tasks.pretrain import Objective, build_objective
from electra_tf.tasks.pretrain.config import parse_config
from electra_tf.text.kinds import load_tokenizer
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocabulary import CASED_TEXT, TextSettings, Vocabulary, read_vocabulary_file
from electra_tf.text.vocabulary_settings import stated_settings
from electra_tf.train.checkpoints import checkpoint_prefix_of, find_checkpoint, in_precision
from electra_tf.weights.hub import download
from electra_tf.weights.hugging_face.reader import is_hugging_face, read_hugging_face
from electra_tf.weights.names import discriminator_variables, encoder_variables, generator_variables, named_variables
from electra_tf.weights.run import load_objective, read_run
from electra_tf.weights.stored_model import NO_OVERRIDES, SourceOverrides, StoredModel, assign_weights
from electra_tf.weights.tf1 import read_tf1

logger = logging.getLogger(__name__)


def read_stored_model(
    path: str | os.PathLike, overrides: SourceOverrides = NO_OVERRIDES, flag: str = "--from"
) -> StoredModel:
    """Reads a trained model to convert it or to fine-tune it, and logs which weights are not read.

    Args:
        path: see `read_source`.        overrides: settings of the source that the user gives; none for a run.
        flag: the flag of the path, for messages.
    Raises: UserError: there is no such model, weights are missing, or the vocabulary does not fit.
    """
    model, notes = read_source(path, overrides, flag)
    for note in notes:
        logger.warning(note)
    model = model.finished()
    model.require_fitting_vocabulary()
    return model


def read_source(
    path: str | os.PathLike,
    overrides: SourceOverrides = NO_OVERRIDES,
    flag: str = "--from",
    unstated_settings: TextSettings | None = None,
) -> tuple[StoredModel, list[str]]:
    """Reads a model with all weights of its training.

    Args:
        path: a run or a checkpoint of one, see `electra_tf.train.checkpoints.find_checkpoint`; the prefix of a
            TensorFlow 1 checkpoint, a file of it, or a directory with TensorFlow's file `checkpoint`; a Hugging Face
            folder, or a directory with `discriminator/` and `generator/`; `hf://OWNER/NAME[@REVISION]` of the Hub.
        overrides, flag: see `read_stored_model`.
        unstated_settings: of the text of a TensorFlow 1 checkpoint; None: BERT's.
    Returns: the model, and lines for the log.
    Raises: UserError: there is no such model or weights are missing.
    """
    path = os.fspath(path)
    if is_hub(path):
        folder, name = download(path, flag)
        model, notes = read_hugging_face(folder, overrides)
        return dataclasses.replace(model, source=name), notes
    place = f"{flag}={path}"
    is_folder, prefix = is_directory(path), checkpoint_prefix_of(path)
    if (checkpoint := find_checkpoint(path, flag)) is not None:
        if overrides != NO_OVERRIDES:
            raise UserError(
                f"{place} is a run, which states its vocabulary, casing and numbers of heads: remove --vocab_file, "
                "--cased, --num_heads, --generator_num_heads and --set encoder.num_heads"
            )
        return read_run(checkpoint), []
    path = absolute_path(path)
    if prefix is None and not is_folder:
        raise UserError(
            f"{place}: there is no run, no checkpoint and no Hugging Face folder; give the directory of a run or a "
            "folder, or the path of a checkpoint's files without their endings"
        )
    if prefix is None and is_hugging_face(path):
        return read_hugging_face(path, overrides)
    overrides = overrides._replace(text_settings=overrides.text_settings or unstated_settings)
    return read_tf1(prefix or _registered_prefix(path, place), overrides)


def load_finetuned(path: str | os.PathLike) -> FinetunedModel:
    """The fine-tuned model at a path.

    Args:
        path: the directory of a seed, one of its checkpoints, or another source of `read_source` with a task's head.
    Raises: UserError: see `read_stored_model`; the model is not fine-tuned.
    """
    stored = read_stored_model(path, flag="--model_dir")
    if stored.finetuned is None:
        raise UserError(f"--model_dir={path} is not fine-tuned; give the directory of a fine-tuned seed, OUTPUT/seed_0")
    return finetuned_model(stored)


def finetuned_model(stored: StoredModel, precision: str | None = None) -> FinetunedModel:
    """A fine-tuned model that was read.

    Args: precision: the dtype of matrix products and activations; None for the source's own.
    """
    config = in_precision(stored.finetuned, precision)
    task = build_finetuning_task(config)
    assign_weights(stored.source, stored.weights, named_variables(task))
    return FinetunedModel(config, task, stored.tokenizer, stored.source)


def load_trained(path: str | os.PathLike, precision: str | None = None) -> tuple[Objective | FinetuningTask, Tokenizer]:
    """A trained task for serving, and its tokenizer.

    Args: path: a run, a checkpoint of one, or a Hugging Face folder.        precision: see `finetuned_model`.
    Raises: UserError: see `read_stored_model`; a TensorFlow 1 checkpoint.
    """
    path = os.fspath(path)
    if is_hub(path):
        path, _ = download(path, "--model_dir")
    if (checkpoint := find_checkpoint(path, "--model_dir")) is not None:
        path = checkpoint.prefix  # the newest whole one is looked for once
        if not checkpoint.run.is_finetuned:
            return load_objective(path, precision), load_tokenizer(checkpoint.run.read_tokenizer(), path)
    elif checkpoint_prefix_of(path) or tf.train.latest_checkpoint(path):
        raise UserError(
            f"--model_dir={path} is a TensorFlow 1 checkpoint, which does not state its heads and casing; make a "
            "folder of it by electra-tf convert --to=hugging_face, with --num_heads and --cased if they are unusual"
        )
    stored = read_stored_model(path, flag="--model_dir")
    if stored.finetuned is None and exists(os.path.join(path, "modules.json")):  # of sentence-transformers
        logger.warning("%s: its encoder alone is served, without the pooling, %s", path, stored.pooling)
    return task_of(stored, precision), stored.tokenizer


def task_of(stored: StoredModel, precision: str | None) -> Objective | FinetuningTask:
    """The fine-tuned task of a stored model, or an objective with its encoder, and its discriminator's head if any."""
    if stored.finetuned is not None:
        return finetuned_model(stored, precision).task
    has_head = stored.has_detector
    values = {
        "objective": {"name": "electra", "generator": {"kind": "uniform"}} if has_head else {"name": "bert_mlm"},
        "encoder": stored.encoder.model_dump(mode="json"),
        "data": {"max_seq_length": stored.trained_length},
        "train": {"num_steps": 1, "batch_size": 1},  # it is not trained
        "optimizer": {"learning_rate": 1.0},
    }
    objective = build_objective(in_precision(parse_config(values, f"of {stored.source}"), precision))
    variables = encoder_variables(objective.encoder)
    if has_head:
        variables = discriminator_variables(objective.encoder, objective.replaced_token_head)
    assign_weights(stored.source, stored.weights, variables)
    return objective


def masked_language_model(stored: StoredModel) -> TransformerGenerator:
    """The masked language model of a stored model in float32; of ELECTRA its generator.

    Raises: UserError: it has none that it trained.
    """
    if not stored.has_masked_lm_head or stored.objective == "electric":
        raise UserError(f"{stored.source} has no generator or masked LM that it trained and that reads masks")
    sizes = stored.generator or stored.encoder
    encoder = build_encoder(sizes, "float32")
    head = MaskedLmHead(sizes, encoder.embeddings, name="generator_predictions", dtype="float32")
    network = TransformerGenerator(encoder, head)
    network(*tf.zeros([4, 1, 3], tf.int32))  # creates the variables
    head.adopt_num_tokens(stored.tokenizer.vocabulary.size)
    assign_weights(stored.source, stored.masked_lm_weights, generator_variables(network))
    return network


def _registered_prefix(directory: str, place: str) -> str:
    """The newest checkpoint of a directory, which TensorFlow's file `checkpoint` names."""
    if (prefix := tf.train.latest_checkpoint(directory)) is not None:
        if os.path.realpath(os.path.dirname(prefix)) != os.path.realpath(directory):
            raise UserError(f"{place}: its file `checkpoint` names {prefix}, in another directory; give that path")
        return prefix
    if seeds := sorted(name for name in names_in(directory) if name.startswith("seed_")):
        raise UserError(f"{place} holds the seeds of a fine-tuning; give one, for example {directory}/{seeds[0]}")
    raise UserError(
        f"{place} holds neither config.yaml (a run), nor a checkpoint that TensorFlow's file `checkpoint` names, nor "
        "config.json (a Hugging Face folder); give one of these"
    )


def source_overrides(
    vocab_file: str | None = None,
    cased: bool = False,
    num_heads: int | None = None,
    generator_num_heads: int | None = None,
) -> SourceOverrides:
    """The settings of a source that flags of a command give.

    Raises: UserError: the vocabulary cannot be read, or its own settings contradict `cased`.
    """
    vocabulary, settings = None, CASED_TEXT if cased else None
    if vocab_file is not None:
        vocabulary = read_vocabulary_file(vocab_file)
        own = stated_settings(Vocabulary.from_bytes(vocabulary, vocab_file), vocab_file, read_bytes)
        if cased and own is not None and own.lower_case:
            raise UserError(f"--cased: the vocabulary {vocab_file} was built with lower_case true; remove the flag")
        settings = own or settings
    return SourceOverrides(vocabulary, settings, num_heads, generator_num_heads)


def load_pretrained(path: str | os.PathLike, values: Mapping[str, Any] = MappingProxyType({})) -> PretrainedEncoder:
    """The encoder that fine-tuning starts from.

    Args:
        path: see `read_source`.
        values: the settings of the fine-tuning. `data.vocab_file`, `data.cased` and, for a TensorFlow 1 checkpoint,
            `encoder.num_heads` are for sources that do not state them.
    Raises: UserError: see `read_stored_model`.
    """
    path = absolute_path(path)  # for the record of the run
    data, encoder = (each if isinstance(each := values.get(group), Mapping) else {} for group in ("data", "encoder"))
    if (checkpoint := find_checkpoint(path, "--init_from")) is not None:
        path = checkpoint.prefix  # of a run, its newest checkpoint by name, because it may have another one tomorrow
    states_heads = checkpoint is not None or is_hub(path) or is_hugging_face(path)
    num_heads = None if states_heads else encoder.get("num_heads")
    overrides = source_overrides(data.get("vocab_file"), bool(data.get("cased")), num_heads)
    model = read_stored_model(path, overrides, flag="--init_from")
    if states_heads and encoder.get("num_heads", model.encoder.num_heads) != model.encoder.num_heads:
        raise UserError(f"--init_from={path} has {model.encoder.num_heads} heads; remove the setting encoder.num_heads")
    source = model.source if checkpoint is None else path
    return PretrainedEncoder(model.encoder, model.tokenizer, source, model.assign_encoder, model.pooler)
