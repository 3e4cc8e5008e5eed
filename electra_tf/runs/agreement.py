"""What the shapes of weights do not tell, of a source and of the run that takes its weights: heads, epsilons, text.

Where these differ everything loads, and the model computes nonsense.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass

from electra_tf.config.errors import UserError
from electra_tf.config.schema import EncoderConfig
from electra_tf.convert.stored_model import StoredModel
from electra_tf.files import read_bytes, read_json
from electra_tf.runs.directory import RunDirectory
from electra_tf.tasks.base import Task
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config

logger = logging.getLogger(__name__)

_ENCODER, _GENERATOR = "encoder", "objective.generator"


@dataclass(frozen=True)
class Known:
    """What is known of a model beside its weights.

    Attributes:
        networks: their settings, by the group of a configuration that holds them.
        tokens: of the vocabulary.        lower_case, strip_accents: how text was tokenized. None where it is not known.
    """

    networks: Mapping[str, EncoderConfig]
    tokens: tuple[bytes, ...] | None = None
    lower_case: bool | None = None
    strip_accents: bool | None = None


def known_of_run(run: RunDirectory) -> Known:
    """By the files of a run."""
    try:
        networks = _networks(load_config(run.config_file))
    except UserError as error:  # its objective may be of a module that this call does not load
        logger.warning("heads and layer_norm_epsilon of %s are not compared: %s", run.path, error)
        networks = {}
    text = read_json(run.tokenizer_file)
    return Known(networks, _tokens(read_bytes(run.vocab_file)), text.get("lower_case"), text.get("strip_accents"))


def known_beside(prefix: str) -> Known:
    """Of a checkpoint that lies in no run: the vocabulary beside it."""
    return Known({}, _tokens(read_bytes(os.path.join(os.path.dirname(prefix), "vocab.txt"))))


def known_of_folder(model: StoredModel) -> Known:
    """Of one of Hugging Face's folders, or two beside each other."""
    networks = {_ENCODER: model.encoder, _GENERATOR: model.generator}
    networks = {group: sizes for group, sizes in networks.items() if sizes is not None}
    return Known(networks, _tokens(model.vocabulary_file), model.lower_case, model.strip_accents)


def known_of_task(task: Task, vocab_file: str | None, text: Mapping[str, bool], fresh_generator: bool) -> Known:
    """Of a task that is to get weights; of a generator only if it gets some."""
    config = getattr(task, "config", None)
    networks = _networks(config) if isinstance(config, PretrainingConfig) else {}
    if fresh_generator:
        networks.pop(_GENERATOR, None)
    tokens = None if vocab_file is None else _tokens(read_bytes(vocab_file))
    return Known(networks, tokens, text.get("lower_case"), text.get("strip_accents"))


def require_agreement(place: str, theirs: Known, ours: Known) -> None:
    """Compares what both know. Raises: UserError: if it differs.

    Args:
        place: what messages call the source.
    """
    for group, found in theirs.networks.items():
        wanted = ours.networks.get(group, found)
        for holder, name in ((group, "num_heads"), (_ENCODER, "layer_norm_epsilon")):
            theirs_is, ours_is = getattr(found, name), getattr(wanted, name)
            if theirs_is != ours_is:
                raise UserError(
                    f"{place}: {name} of its {group.rpartition('.')[2]} is {theirs_is}, {holder}.{name} is {ours_is}; "
                    f"set it to {theirs_is}"
                )
    if None not in (theirs.tokens, ours.tokens) and theirs.tokens != ours.tokens:
        raise UserError(f"{place} has another vocabulary than the data; build the data with that of the source")
    if None not in (theirs.lower_case, ours.lower_case) and theirs.lower_case != ours.lower_case:
        text = {True: "lower-cased", False: "cased"}
        raise UserError(
            f"{place} was trained on {text[theirs.lower_case]} text, the data is {text[ours.lower_case]}; build the "
            "data as the source's was"
        )
    stripped = (theirs.strip_accents, ours.strip_accents)
    if (
        theirs.lower_case and None not in stripped and theirs.strip_accents != ours.strip_accents
    ):  # cased text keeps them
        text = {True: "without accents", False: "with its accents"}
        raise UserError(
            f"{place} was trained on text {text[theirs.strip_accents]}, the data is {text[ours.strip_accents]}; build "
            "the data as the source's was"
        )


def _networks(config: PretrainingConfig) -> dict[str, EncoderConfig]:
    networks = {_ENCODER: config.encoder}
    if getattr(config.objective, "has_generator_network", False):
        networks[_GENERATOR] = config.objective.generator_encoder(config)
    return networks


def _tokens(vocabulary_file: bytes | None) -> tuple[bytes, ...] | None:
    """The lines of a vocab.txt, as what ends a line may differ."""
    return None if vocabulary_file is None else tuple(map(bytes.strip, vocabulary_file.rstrip().split(b"\n")))
