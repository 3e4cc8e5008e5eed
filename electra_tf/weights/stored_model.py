"""A trained model in no particular format: arrays by name, sizes, tokenizer and other facts; and its Keras model."""

import dataclasses
import functools
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.networks import SHAPELESS_SETTINGS, EncoderConfig
from electra_tf.models.encoder import Encoder, build_encoder
from electra_tf.models.generators import TransformerGenerator
from electra_tf.models.heads import MaskedLmHead
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.kinds import build_finetuning_task
from electra_tf.tasks.finetune.settings import FinetuningRunConfig
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.tasks.pretrain import Objective, build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig, parse_config
from electra_tf.text.kinds import load_tokenizer
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocabulary import StoredTokenizer, TextSettings, Vocabulary
from electra_tf.weights.names import (
    AUTHORS_SCOPES,
    POOLER,
    Weights,
    encoder_variables,
    generator_variables,
    list_briefly,
    named_variables,
)

logger = logging.getLogger(__name__)

_LAYER = re.compile(r"/encoder/layer_(\d+)/")
_DIFFERENCE = "_difference"  # the end of the names of `DisentangledEmbeddings`' tables


class SourceOverrides(NamedTuple):
    """Settings of a source that the user gives, because the source lacks them or has wrong ones; None: the source's.

    Attributes:
        vocabulary: the content of a vocabulary file.
        num_heads, generator_num_heads: the attention heads of the encoder, and of a generator.
    """

    vocabulary: bytes | None = None
    text_settings: TextSettings | None = None
    num_heads: int | None = None
    generator_num_heads: int | None = None


NO_OVERRIDES = SourceOverrides()
# The flag that turns a setting of the text off.
FLAGS_OF_SETTINGS = {"lower_case": "cased"}


@dataclass(frozen=True)
class StoredModel:
    """A trained model. Every format is read into it and written from it.

    Attributes:
        source: the checkpoint or folder, for messages and records.
        encoder: the sizes of ELECTRA's discriminator, or of the only encoder.
        generator: the sizes of ELECTRA's generator; None without one.
        weights: float32 and finite, by the names of `electra_tf.weights.names`, kernels as [in, out]; without the
            optimizer's state. Embeddings that both networks use are there once, in `electra/`.
        stored_tokenizer: how text was tokenized; its content is empty if the source has no vocabulary.
        objective: the name of the pre-training objective in a configuration; "" if it is unknown.
        step: the training step; 0 if it is unknown.
        finetuned: the configuration of a fine-tuned model; None for any other.
        states_settings: whether the source states the settings that shapes do not show: numbers of heads,
            `layer_norm_epsilon`, casing. A TensorFlow 1 checkpoint does not.
        kept_scope: the scope of the network for later use: `generator/` in the first phase of two_stage.
        facts: facts for model cards, each key optional. data: the SHA-256 of each input stage's manifest.
            init_from: the source of the initial weights. configuration: the settings of the training, of a folder the
            few that it states. is_assumed: True if objective and settings are not the source's own words.
            max_seq_length: the longest input of a truncated model, or of a folder of sentence-transformers.
            foreign_tokenizer: the tokenizer that the text needs, if this program has no such one.
            sentence_transformers: True of a folder of that library.
        pooling: how a text's vector is made of those of its tokens, see `hugging_face.sentence_transformers`.
        notes: lines for the log, about what of the source is not read.
        segment: the user's word on the program that cuts text into words, see `electra_tf.text.segment`.
        checkpoint: the prefix of the checkpoint of a run; "" of another source.
        task: the Keras model of a run, which was built to read `weights`; None of another source.
    """

    source: str
    encoder: EncoderConfig
    generator: EncoderConfig | None
    weights: Weights
    stored_tokenizer: StoredTokenizer
    objective: str = ""
    step: int = 0
    finetuned: FinetuningConfig | None = None
    states_settings: bool = True
    kept_scope: str = "electra/"
    facts: dict[str, Any] = field(default_factory=dict)
    pooling: str = "mean"
    notes: tuple[str, ...] = ()
    segment: str | None = None
    checkpoint: str = ""
    task: FinetuningTask | Objective | None = None

    @property
    def origin(self) -> str:
        """The model in the records of a run that starts from it. A run may have a newer checkpoint tomorrow."""
        return self.checkpoint or self.source

    @property
    def has_discriminator_head(self) -> bool:
        return bool(self.part("discriminator_predictions/"))

    @property
    def has_detector(self) -> bool:
        """Whether its discriminator is an encoder with a plain head, and works alone.

        Electric's needs the two towers of its generator, and the head of TEAMS has an encoder layer of its own.
        """
        return "discriminator_predictions/dense/kernel" in self.weights and self.objective != "electric"

    @property
    def trained_length(self) -> int:
        """The longest input of the training, at the end of pre-training; the number of positions if it is unknown."""
        if self.finetuned:
            return self.finetuned.data.max_seq_length
        known = self.facts.get("configuration", {}).get("data", {}) | self.facts
        return known.get("max_seq_length", self.encoder.max_position_embeddings)

    @property
    def has_masked_lm_head(self) -> bool:
        return "generator_predictions/dense/kernel" in self.weights

    @property
    def pooler(self) -> tuple[npt.NDArray[np.float32], ...]:
        """Kernel and bias of BERT's pooler, which a fine-tuned head has as its hidden layer; empty without one."""
        scopes = (POOLER, f"task_specific/{self.finetuned.name}/hidden/") if self.finetuned else (POOLER,)
        return tuple(self.part(scopes).values()) if self.encoder.has_pooler else ()

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.stored_tokenizer, f"of {self.source}", self.segment)

    def part(self, scope: str | tuple[str, ...]) -> Weights:
        """The weights whose names begin with `scope`, for example `electra/`, or with one of several."""
        return {name: value for name, value in self.weights.items() if name.startswith(scope)}

    @property
    def masked_lm_weights(self) -> Weights:
        """All weights, those of the masked language model by the names of a generator that shares nothing."""
        # A masked language model alone, and what a generator shares, are in the scope of the encoder.
        encoder = self._first_layers((self.generator or self.encoder).num_layers)
        return {name.replace("electra/", "generator/", 1): value for name, value in encoder.items()} | self.weights

    def _first_layers(self, num_layers: int) -> Weights:
        """The weights of the encoder without those of its layers from this one on."""
        layers = {name: _LAYER.search(name) for name in self.part("electra/")}
        return {name: self.weights[name] for name, layer in layers.items() if not layer or int(layer[1]) < num_layers}

    def finished(self) -> "StoredModel":
        """The model for every use but pre-training, which may go on with all that the source has; logs its `notes`.

        Embeddings are whole tables. In the first phase of two_stage, only the generator's encoder is left.

        Raises: UserError: see `require_fitting_vocabulary`.
        """
        for note in self.notes:
            logger.warning(note)
        model = self.with_merged_tables()
        if self.kept_scope != "electra/":
            alone = self.generator_alone()
            model = dataclasses.replace(alone, weights=alone.part("electra/"))
        model.require_fitting_vocabulary()
        return model

    def generator_alone(self) -> "StoredModel":
        """The generator of the first phase of two_stage, which shares nothing, as a masked language model."""
        encoder = {name.replace(self.kept_scope, "electra/"): each for name, each in self.part(self.kept_scope).items()}
        weights = encoder | self.part("generator_predictions/")
        assert self.generator is not None
        return dataclasses.replace(
            self, encoder=self.generator, generator=None, weights=weights, kept_scope="electra/", task=None
        )

    def with_merged_tables(self) -> "StoredModel":
        """The model with whole tables in place of `DisentangledEmbeddings`' differences to the generator's."""
        if not any(name.endswith(_DIFFERENCE) for name in self.weights):
            return self
        weights = {}
        for name, value in self.weights.items():
            if name.endswith(_DIFFERENCE):
                name = name.removesuffix(_DIFFERENCE)
                value = self.weights[name.replace("electra/", "generator/", 1)] + value
            weights[name] = value
        return dataclasses.replace(self, weights=weights, task=None)

    def truncated(self, num_layers: int) -> "StoredModel":
        """The encoder alone, with its first layers; a final LayerNorm stays.

        Raises: UserError: the encoder does not have so many layers.
        """
        if num_layers not in range(1, self.encoder.num_layers + 1):
            raise UserError(
                f"layers={num_layers}: the encoder of {self.source} has {self.encoder.num_layers} layers; give 1 to "
                f"{self.encoder.num_layers}"
            )
        return dataclasses.replace(
            self,
            source=f"{self.source} (layers={num_layers}: its encoder alone)",
            encoder=self.encoder.model_copy(update={"num_layers": int(num_layers)}),
            generator=None,
            weights=self._first_layers(num_layers),
            finetuned=None,
            facts=self.facts | {"max_seq_length": self.trained_length},
            task=None,
        )

    def with_text_columns(self, names: Sequence[str]) -> "StoredModel":
        """The model for columns of text: two for pairs, which a folder of another program does not state.

        Raises: UserError: it reads no such columns, or another number of them.
        """
        config = self.finetuned
        known = getattr(config and config.task, "text_columns", None)  # empty: any
        if config is None or known is None or len(names) not in ([len(known)] if known else [1, 2]):
            raise UserError(f"text_columns {', '.join(names)}: {self.source} is not a model of {len(names)} texts")
        task = config.task.model_copy(update={"text_columns": tuple(names)})
        return dataclasses.replace(self, finetuned=config.model_copy(update={"task": task}))

    def of_authors(self) -> tuple["StoredModel", list[str]]:
        """The part that other formats can hold: the whole model, or its encoder and a line for the log."""
        unknown = [name for name in self.weights if not name.startswith((*AUTHORS_SCOPES, POOLER))]
        if not unknown:
            return self, []
        parts = ", ".join(sorted({name.split("/")[0] for name in unknown}))
        note = f"{self.source}: only its encoder is converted; other formats have no {parts}"
        return dataclasses.replace(self, weights=self.part("electra/"), generator=None, task=None), [note]

    def require_fitting_vocabulary(self) -> None:
        """Raises: UserError: it needs another tokenizer, or has no vocabulary or not that of its word table."""
        if foreign := self.facts.get("foreign_tokenizer"):
            raise UserError(
                f"{self.source} needs its tokenizer {foreign}, which is not computed here; give its vocabulary as "
                "vocab_file, and as input and examples text that this tokenizer has cut into words"
            )
        content = self.stored_tokenizer.content
        vocabulary = Vocabulary.from_bytes(content, f"of {self.source}") if content else None
        if vocabulary is None or not vocabulary.fits(self.encoder.vocab_size):
            raise UserError(
                f"the vocabulary has {vocabulary.size if vocabulary else 'no'} tokens, the encoder of {self.source} "
                f"{self.encoder.vocab_size}; give the vocabulary it was trained with as vocab_file"
            )

    def build_task(self, precision: str | None = None) -> FinetuningTask | Objective:
        """The Keras model with these weights: of a run that of its training, which was built when it was read.

        Else a fine-tuned task; or an objective with the encoder and, if it works alone, the discriminator's head. The
        discriminator of Electric needs the towers of its generator: it gets the objective of its training.

        Args:
            precision: the dtype of matrix products and activations; None for the source's own.
        """
        config = self.finetuned or (self.task.config if self.task else None)
        if self.task and config == self.task.config and precision in (None, config.train.precision):
            return self.task
        stated, is_alone = self.facts.get("configuration", {}), False
        if config is None and self.objective == "electric" and self.has_discriminator_head:
            config = parse_config(stated, f"of {self.source}")
        elif config is None:
            is_alone = not self.has_detector
            objective = {"name": "bert_mlm"} if is_alone else {"name": "electra", "generator": {"kind": "uniform"}}
            values = {
                "objective": objective,
                "encoder": self.encoder.model_dump(mode="json"),
                "data": {"max_seq_length": self.encoder.max_position_embeddings},
                "train": {"num_steps": 1, "batch_size": 1},  # it is not trained
                "optimizer": {"learning_rate": 1.0},
            }
            config = parse_config(values, f"of {self.source}")
            data = config.data.model_copy(update={"max_seq_length": self.trained_length})  # as short as it may be
            config = config.model_copy(update={"data": data})
            precision = precision or stated.get("train", {}).get("precision")
        if precision is not None:  # weights are float32 in either precision
            config = config.model_copy(update={"train": config.train.model_copy(update={"precision": precision})})
        task = untrained_task(config)
        variables = encoder_variables(task.encoder) if is_alone else named_variables(task)
        assign_weights(self.source, self.weights, variables)
        return task

    @property
    def masked_lm_sizes(self) -> EncoderConfig:
        """Those of the masked language model. Raises: UserError: it has none that was trained and that reads masks."""
        if not self.has_masked_lm_head or self.objective == "electric":
            raise UserError(f"{self.source} has no generator or masked LM that it trained and that reads masks")
        return self.generator or self.encoder

    def build_masked_lm(self) -> TransformerGenerator:
        """The masked language model in float32. Raises: UserError: see `masked_lm_sizes`."""
        sizes = self.masked_lm_sizes
        encoder = build_encoder(sizes, "float32")
        head = MaskedLmHead(sizes, encoder.embeddings, name="generator_predictions", dtype="float32")
        network = TransformerGenerator(encoder, head)
        network(*tf.zeros([4, 1, 3], tf.int32))  # creates the variables
        head.adopt_num_tokens(self.tokenizer.vocabulary.size)
        assign_weights(self.source, self.masked_lm_weights, generator_variables(network))
        return network

    def initialize(self, task: FinetuningTask) -> str:
        """Copies the weights into a task's encoder, and the pooler into its head. Returns, Raises: `assign_encoder`."""
        line = self.assign_encoder(task.encoder)
        if self.pooler and task.hidden_layer is not None and task.config.encoder.has_pooler:
            task.hidden_layer.set_weights(self.pooler)
            line += ", and its pooler"
        return line

    def assign_encoder(self, encoder: Encoder) -> str:
        """Copies the encoder's weights into an encoder of the same sizes, or with fewer layers: the first ones.

        Returns: a line for the log.
        Raises: UserError: sizes differ, or settings with which the weights would compute something else.
        """
        for name in SHAPELESS_SETTINGS if self.states_settings else ():
            value, other = getattr(self.encoder, name), getattr(encoder.config, name)
            if value != other:
                raise UserError(
                    f"{self.source} was trained with encoder.{name} {value}, not {other}; remove "
                    f"the setting encoder.{name}, for a fine-tuning that has begun give a new output_dir too"
                )
        num_layers, whole = encoder.config.num_layers, len(self.part("electra/"))
        variables, weights = encoder_variables(encoder), self._first_layers(num_layers)
        if unused := sorted(set(weights) - set(variables)):
            raise UserError(f"{self.source} holds {list_briefly(unused)}, which the encoder lacks; remove encoder.*")
        assign_weights(self.source, weights, variables)
        part = "" if len(weights) == whole else f" (the first {num_layers} of {self.encoder.num_layers} layers)"
        return f"loaded {len(variables)} of {whole} encoder variables from {self.source}{part}"


def untrained_task(config: FinetuningRunConfig | PretrainingConfig[Any]) -> FinetuningTask | Objective:
    """The Keras model of a run with these settings, with initial weights."""
    return build_finetuning_task(config) if isinstance(config, FinetuningRunConfig) else build_objective(config)


def assign_weights(source: str, weights: Weights, variables: Mapping[str, tf.Variable]) -> list[str]:
    """Assigns all variables their weights by name, or none. A position table gets the first rows of a longer one.

    Returns: a line for the log for each table that was cut.
    Raises: UserError: a weight is missing or has another shape.
    """
    if missing := [name for name in variables if name not in weights]:
        remedy = "its objective or its sizes differ; give another model, or its own settings"
        without_head = [name for name in missing if not name.startswith("discriminator_predictions/")]
        if without_head and all(name.startswith("generator") for name in without_head):  # a discriminator or an encoder
            remedy = "give both networks of the pre-training with the sizes of objective.generator, or fresh_generator"
        raise UserError(f"{source} holds no variable {list_briefly(missing)}; {remedy}")
    values, problems, notes = {name: weights[name] for name in variables}, [], []
    for name, variable in variables.items():
        shape, expected = list(weights[name].shape), variable.shape.as_list()
        if shape == expected:
            continue
        problem = f"{name} has shape {shape}, the model's is {expected}"
        has_other_rows = len(expected) == 2 and shape[1:] == expected[1:]
        if has_other_rows and name.endswith("position_embeddings"):
            if shape[0] > expected[0]:
                values[name] = weights[name][: expected[0]]
                notes.append(f"{name}: the first {expected[0]} of {shape[0]} positions")
                continue
            problem += f": set encoder.max_position_embeddings to {shape[0]} or less"
        elif has_other_rows and name.endswith("word_embeddings"):
            problem += f": use data that was built with its vocabulary, and encoder.vocab_size {shape[0]}"
        problems.append(problem)
    if problems:
        raise UserError(f"{source}: {list_briefly(problems, '; ')}")
    for name, variable in variables.items():
        variable.assign(values[name])
    return notes


def sound_weights(source: str, values: Mapping[str, npt.NDArray[Any]]) -> Weights:
    """Weights of any floating-point type as float32. Raises: UserError: one has another type, NaN or infinity."""
    if odd := [name for name, value in values.items() if not tf.as_dtype(np.asarray(value).dtype).is_floating]:
        raise UserError(f"{source}: {list_briefly(odd)} holds no floating-point numbers; give a model's own weights")
    with np.errstate(over="ignore"):  # becomes infinity, which is refused
        sound = {name: np.asarray(value, np.float32) for name, value in values.items()}
    if broken := [name for name, value in sound.items() if not np.isfinite(value).all()]:
        raise UserError(f"{source}: {list_briefly(broken)} holds NaN or infinity; give an earlier checkpoint")
    return sound
