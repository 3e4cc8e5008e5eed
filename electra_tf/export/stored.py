"""Any checkpoint as a `StoredModel`: runs of ours, of pre-training or fine-tuning, the authors' and Hugging Face's."""

import dataclasses
import logging
import os

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import EncoderConfig
from electra_tf.convert.hugging_face_reader import AS_IT_SAYS, Given, read_hugging_face
from electra_tf.convert.names import encoder_variables, finetuned_variables, tf1_variables
from electra_tf.convert.stored_model import StoredModel
from electra_tf.convert.stored_weights import sound_values
from electra_tf.convert.tf1 import read_tf1
from electra_tf.export.finetuned import load_finetuned
from electra_tf.export.load import load_run, load_tokenizer
from electra_tf.files import read_bytes, read_json
from electra_tf.models.tying import stand_alone
from electra_tf.runs.checkpoints import step_of
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.source import find_source
from electra_tf.tasks.pretrain import Objective
from electra_tf.text.vocabulary import read_vocabulary_file

logger = logging.getLogger(__name__)

_GIVEN_BY = {
    "vocabulary": "--vocab_file",
    "lower_case": "--cased",
    "strip_accents": "strip_accents",
    "num_heads": "the number of heads (--num_heads, encoder.num_heads)",
    "generator_num_heads": "--generator_num_heads",
}


def read_stored_model(
    path: str | os.PathLike, given: Given = AS_IT_SAYS, scopes: tuple[str, ...] = (), flag: str = "--from"
) -> StoredModel:
    """Reads a model and its tokenizer, and logs what is left out.

    Args:
        path: see `electra_tf.runs.source.find_source`.
        given: what the user says of the source; nothing of a run, which says all of it itself.
        scopes: with what names begin that are read; empty: all.        flag: by which the user gives the path.
    Returns: the model; its weights are float32 and finite.
    Raises: UserError: if there is no such model, it is damaged or not whole, or the vocabulary does not fit.
    """
    source = find_source(path, flag)
    if source.run is not None:
        _require_nothing_given(given, f"{flag}={os.fspath(path)}")
        model, notes = _of_run(source.run, source.prefix, scopes), []
    elif source.prefix is not None:
        model, notes = _of_authors(source.prefix, given, scopes, flag)
    else:
        model, notes = read_hugging_face(source.path, given)
    for note in notes:
        logger.warning(note)
    model.require_sound()
    return dataclasses.replace(model, weights=sound_values(model.source, model.weights))


def _require_nothing_given(given: Given, place: str) -> None:
    if names := [_GIVEN_BY[name] for name, value in given._asdict().items() if value is not None]:
        raise UserError(f"{place} is of a run, which says this itself: leave out {', '.join(names)}")


def _of_run(run: RunDirectory, prefix: str, scopes: tuple[str, ...]) -> StoredModel:
    tokenizer = load_tokenizer(run.path)
    text = {
        "vocabulary_file": read_bytes(run.vocab_file),
        "lower_case": tokenizer.lower_case,
        "strip_accents": tokenizer.strip_accents,
    }
    if run.is_finetuned:
        tuned = load_finetuned(run.path, prefix)
        return StoredModel(
            source=tuned.source,
            encoder=tuned.config.encoder,
            generator=None,
            weights=_values(finetuned_variables(tuned.task, tuned.config.name)),
            step=step_of(tuned.source),
            finetuned=tuned.config,
            facts={"run": run.path, "init_from": tuned.config.init_from},
            **text,
        )
    step = step_of(prefix)
    objective = load_run(run.path, prefix=prefix)
    configuration, data = objective.config.model_dump(mode="json"), read_json(run.data_file).get("data", [])
    named = _named(objective, encoder_alone=scopes == ("electra/",))
    return StoredModel(
        source=f"step {step} of {run.path}",
        encoder=objective.config.encoder,
        generator=_generator_sizes(objective) if "generator_predictions/output_bias" in named else None,
        weights=_values(named),
        objective=objective.config.objective.name,
        step=step,
        facts={"run": run.path, "data": data, "configuration": configuration},
        **text,
    )


def _named(objective: Objective, encoder_alone: bool) -> dict[str, tf.Variable]:
    """An objective's variables by the authors' names; the encoder's alone where they have no such objective."""
    stand_alone(objective.encoder)
    if encoder_alone:
        return encoder_variables(objective.encoder)
    try:
        return tf1_variables(objective)
    except UserError as error:
        logger.warning("%s; its encoder alone is read", error)
        return encoder_variables(objective.encoder)


def _generator_sizes(objective: Objective) -> EncoderConfig | None:
    """Of ELECTRA's generator; None for the masked-LM baseline."""
    settings = objective.config.objective
    return settings.generator_encoder(objective.config) if hasattr(settings, "generator") else None


def _values(named: dict[str, tf.Variable]) -> dict:
    return {name: variable.numpy() for name, variable in named.items()}


def _of_authors(prefix: str, given: Given, scopes: tuple[str, ...], flag: str) -> tuple[StoredModel, list[str]]:
    content, beside = given.vocabulary, os.path.join(os.path.dirname(prefix), "vocab.txt")
    if content is None and (found := read_bytes(beside)) is not None:
        content = found, beside
    if content is None:
        raise UserError(f"{flag}={prefix} has no vocabulary with it; give the one it was trained with as --vocab_file")
    lower_case = given.lower_case is not False
    return read_tf1(
        prefix,
        content[0],
        lower_case,
        lower_case if given.strip_accents is None else given.strip_accents,
        given.num_heads,
        given.generator_num_heads,
        scopes,
    )


def given_of(
    vocab_file: str | None = None,
    cased: bool = False,
    num_heads: int | None = None,
    generator_num_heads: int | None = None,
) -> Given:
    """What the flags of a command say of a source. Raises: UserError: if the vocabulary cannot be read."""
    vocabulary = None if vocab_file is None else (read_vocabulary_file(vocab_file), vocab_file)
    return Given(vocabulary, False if cased else None, None, num_heads, generator_num_heads)
