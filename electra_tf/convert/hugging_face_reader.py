"""Reading Hugging Face's folders: one model, or `discriminator/` and `generator/` beside each other."""

import os
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from electra_tf.config.errors import UserError
from electra_tf.config.schema import EncoderConfig
from electra_tf.convert.hugging_face_files import Tensors, read_tensors
from electra_tf.convert.hugging_face_names import hugging_face_tensor
from electra_tf.convert.hugging_face_task import finetuned_task
from electra_tf.convert.hugging_face_tokenizer_files import TokenizerFiles, read_tokenizer_files
from electra_tf.convert.sizes import (
    HEAD_SIZE,
    Shape,
    Shapes,
    default_num_heads,
    encoder_shapes,
    encoder_sizes,
    masked_lm_shapes,
    replaced_token_shapes,
    require_shapes,
)
from electra_tf.convert.stored_model import StoredModel
from electra_tf.convert.stored_weights import list_briefly
from electra_tf.files import exists, read_json
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.pretrain import OBJECTIVES
from electra_tf.text.vocabulary import Vocabulary

_CONFIG = "config.json"
_SIZES = {
    "vocab_size": "vocab_size",
    "embedding_size": "embedding_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
}
_SETTINGS = {
    "hidden_dropout_prob": "hidden_dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "initializer_range": "initializer_range",
    "layer_norm_eps": "layer_norm_epsilon",
}
_DEFAULT_NUM_HEADS = 4  # of transformers' ElectraConfig
_TASK_HEADS = ("classifier.", "qa_outputs.", "sequence_summary.")
_TABLE, _TIED = "electra.embeddings.word_embeddings.weight", "generator_lm_head.weight"


class Given(NamedTuple):
    """What a user says of a source that does not say it itself, or not rightly; None: as the source says.

    Attributes:
        vocabulary: of the text, the content of a vocab.txt and its path.
        num_heads, generator_num_heads: of the encoder that is kept, and of a generator.
    """

    vocabulary: tuple[bytes, str] | None = None
    lower_case: bool | None = None
    strip_accents: bool | None = None
    num_heads: int | None = None
    generator_num_heads: int | None = None


AS_IT_SAYS = Given()


@dataclass(frozen=True)
class _Network:
    """One folder.

    Attributes:
        weights: by the authors' names, the encoder's in the scope `electra`.
        finetuned: its task, if it has been fine-tuned for one that this program has.
        ours: what this program has noted in config.json; empty for other folders.
        notes: lines for the log.
    """

    folder: str
    sizes: EncoderConfig
    weights: dict[str, np.ndarray]
    finetuned: FinetuningConfig | None
    ours: dict
    notes: list[str]


def is_hugging_face(path: str) -> bool:
    """Whether a path is one of these folders."""
    return bool(_folders(path))


def read_hugging_face(path: str, given: Given = AS_IT_SAYS) -> tuple[StoredModel, list[str]]:
    """Reads an ElectraForPreTraining, ElectraForMaskedLM or ElectraModel, a fine-tuned model, or a pair.

    Of heads those of ElectraForSequenceClassification and ElectraForTokenClassification are read.
    Embeddings, or whole encoders, that are equal to the bit in `discriminator/` and `generator/` are the shared ones.

    Returns: the model, and lines for the log.
    Raises: UserError: if files are missing or damaged, or if config.json and tensors disagree.
    """
    folders = _folders(path)
    kept = _read_network(folders[0], given.num_heads)
    weights, generator = kept.weights, None
    if len(folders) > 1:
        _require_one_vocabulary(folders)
        other = _read_network(folders[1], given.generator_num_heads)
        generator = other.sizes
        weights = {**weights, **_generator_weights(kept, other)}
        notes = [*kept.notes, *other.notes]
    else:
        notes = kept.notes
    has_discriminator = "discriminator_predictions/dense/kernel" in weights
    is_baseline = kept.ours.get("objective") == "bert_mlm"
    if not has_discriminator and "generator_predictions/dense/kernel" in weights and not is_baseline:
        notes = [
            *notes,
            f"{kept.folder} is a masked language model alone, read as one that was trained so; if it is the generator "
            "of an ELECTRA, fine-tune its discriminator instead",
        ]
    tokenizer = _tokenizer_of(folders[0], given)
    model = StoredModel(
        source=path,
        encoder=kept.sizes,
        generator=generator,
        weights=weights,
        vocabulary_file=tokenizer.vocabulary_file,
        lower_case=tokenizer.lower_case,
        strip_accents=tokenizer.strip_accents,
        objective=_objective(weights, kept.ours),
        step=kept.ours.get("step", 0),
        finetuned=kept.finetuned,
        facts={"data": kept.ours["data"]} if kept.ours.get("data") else {},
    )
    return model, [*notes, *tokenizer.notes]


def _folders(path: str) -> list[str]:
    """The folder of the network that is kept, and that of a generator if there is one; none if it is something else."""
    if exists(os.path.join(path, _CONFIG)):
        return [path]
    found = [os.path.join(path, name) for name in ("discriminator", "electra", "generator")]
    return [folder for folder in found if exists(os.path.join(folder, _CONFIG))][:2]


def _read_network(folder: str, num_heads: int | None) -> _Network:
    config_file = os.path.join(folder, _CONFIG)
    config = read_json(config_file)
    _require_known(config, config_file)
    file, stored = read_tensors(folder)
    tensors, head = _of_electra(stored, file)
    sizes = _sizes(config, config_file, tensors, file, num_heads)
    expected = encoder_shapes(sizes, "electra")
    for root, shapes_of in (("discriminator_predictions.", replaced_token_shapes), ("generator_", masked_lm_shapes)):
        if any(name.startswith(root) for name in tensors):
            expected |= shapes_of(sizes)
    weights = _weights(expected, tensors, file)
    ours, notes = _ours(config, config_file), []
    task = finetuned_task(config, head, sizes, config_file) if head else None
    if task is not None:
        weights |= task.weights
    elif head:
        notes = [f"{file} is a fine-tuned model; its encoder alone is read, not {list_briefly(sorted(head))}"]
    known_heads = num_heads or ours.get("num_heads")
    return _Network(
        folder, sizes, weights, task and task.config, ours, notes + _doubts(config_file, sizes, known_heads)
    )


def _sizes(config: dict, config_file: str, tensors: Tensors, file: str, num_heads: int | None) -> EncoderConfig:
    """By the tensors' shapes; heads and rates by config.json. Raises: UserError: if the two disagree."""

    def shape_of(name: str) -> Shape | None:
        found = hugging_face_tensor(name)
        shape = tensors[found.name].shape if found.name in tensors else None
        return shape[::-1] if shape is not None and found.transposed else shape

    settings = {ours: config[theirs] for theirs, ours in _SETTINGS.items() if theirs in config}
    heads = num_heads or config.get("num_attention_heads", _DEFAULT_NUM_HEADS)
    if not isinstance(heads, int) or heads < 1:
        raise UserError(f"{config_file}: num_attention_heads is {heads!r}, expected a whole number; correct it")
    sizes = encoder_sizes(file, shape_of, num_heads=heads, **settings)
    wrong = [
        f"{theirs} is {config[theirs]!r:.40}, the tensors have {getattr(sizes, ours)}"
        for theirs, ours in _SIZES.items()
        if theirs in config and config[theirs] != getattr(sizes, ours)
    ]
    if wrong:
        raise UserError(f"{config_file}: {'; '.join(wrong)}; correct config.json: a generator has sizes of its own")
    return sizes


def _weights(expected: Shapes, tensors: Tensors, file: str) -> dict[str, np.ndarray]:
    """The tensors by the authors' names. Raises: UserError: if one is missing, unknown or of another shape."""
    stored = {name: hugging_face_tensor(name) for name in expected}
    shapes = {stored[n].name: shape[::-1] if stored[n].transposed else shape for n, shape in expected.items()}
    require_shapes(file, shapes, {name: tensor.shape for name, tensor in tensors.items()})
    return {
        name: np.ascontiguousarray(tensors[tensor.name].T if tensor.transposed else tensors[tensor.name])
        for name, tensor in stored.items()
    }


def _require_known(config: dict, path: str) -> None:
    """Raises: UserError: for another kind of model, or one that computes something else."""
    for key, expected, meaning in (
        ("model_type", "electra", "models of ELECTRA are read"),
        ("hidden_act", "gelu", "GELU in its exact form is what ELECTRA computes"),
        ("position_embedding_type", "absolute", "ELECTRA has a table of positions"),
        ("is_decoder", False, "ELECTRA sees the tokens on both sides"),
        ("pruned_heads", {}, "ELECTRA has all heads in each layer"),
    ):
        found = config.get(key, expected)
        if found != expected and (found or expected):  # [] and null are no pruned heads either
            raise UserError(f"{path}: {key} is {found!r:.80}, expected {expected!r}: {meaning}; give another folder")


def _of_electra(tensors: Tensors, source: str) -> tuple[Tensors, Tensors]:
    """The tensors under the names they have below a head, and those of a fine-tuned model's head.

    The tied table of a masked-LM head is left out too. Raises: UserError: if it is not tied.
    """
    if _TABLE not in tensors and _TABLE.removeprefix("electra.") in tensors:  # an ElectraModel
        tensors = {f"electra.{name}": tensor for name, tensor in tensors.items()}
    left = {name: tensor for name, tensor in tensors.items() if name.startswith(_TASK_HEADS)}
    kept = {name: tensor for name, tensor in tensors.items() if name not in left}
    table = kept.pop(_TIED, None)
    if table is not None and not np.array_equal(table, kept.get(_TABLE)):
        raise UserError(f"{source}: {_TIED} is not the word table, to which ELECTRA ties it; tie them and save again")
    return kept, left


def _ours(config: dict, path: str) -> dict:
    """What this program has noted; empty for a folder of others. Raises: UserError: for a step or data that are none.

    The name of an objective that is not known here, such as a user's own, is left out.
    """
    ours = config.get("electra_tf")
    if not isinstance(ours, dict):
        return {}
    step, data, objective = ours.get("step", 0), ours.get("data", []), ours.get("objective")
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        raise UserError(f"{path}: step of electra_tf is {step!r:.40}, expected a whole number from 0; correct it")
    if not isinstance(data, list) or not all(isinstance(identity, str) for identity in data):
        raise UserError(f"{path}: data of electra_tf is {data!r:.40}, expected a list of texts; correct it")
    known = isinstance(objective, str) and objective in OBJECTIVES
    return ours | {"step": step, "data": data, "objective": objective if known else ""}


def _doubts(path: str, sizes: EncoderConfig, known_heads: object) -> list[str]:
    """A warning of a number of heads that loads and is perhaps wrong; no shape tells it.

    Args:
        known_heads: what the user, or this program when it wrote the folder, says of it.
    """
    usual = default_num_heads(sizes.hidden_size)
    if sizes.num_heads in (usual, known_heads):
        return []
    return [
        f"warning: {path} says num_attention_heads {sizes.num_heads} for hidden_size {sizes.hidden_size}; published "
        f"ELECTRA models have one head for {HEAD_SIZE} units, here {usual}. A wrong number loads and computes "
        "nonsense; if it is wrong, correct config.json"
    ]


def _generator_weights(kept: _Network, generator: _Network) -> dict[str, np.ndarray]:
    """What the generator adds to the discriminator: its head, and what it does not share.

    Raises: UserError: if the one is no discriminator, the other no generator, or the two have different vocabularies.
    """
    for network, part, name in (
        (kept, "discriminator_predictions/dense/kernel", "ElectraForPreTraining"),
        (generator, "generator_predictions/dense/kernel", "ElectraForMaskedLM"),
    ):
        if part not in network.weights:
            raise UserError(f"{network.folder} is no {name}: it has no such head; give the folder of the other alone")
    if kept.sizes.vocab_size != generator.sizes.vocab_size:
        raise UserError(
            f"{kept.folder} has {kept.sizes.vocab_size} tokens, {generator.folder} {generator.sizes.vocab_size}; give "
            "the two networks of one model"
        )
    own = {name: value for name, value in generator.weights.items() if not name.startswith("electra/")}
    encoder = {name: value for name, value in generator.weights.items() if name.startswith("electra/")}
    tables = {name for name in encoder if name.startswith("electra/embeddings/")}
    if all(np.array_equal(encoder[name], kept.weights[name]) for name in tables):
        encoder = {name: value for name, value in encoder.items() if name not in tables}
        if generator.sizes == kept.sizes and all(np.array_equal(encoder[n], kept.weights[n]) for n in encoder):
            encoder = {}  # one network in both roles
    return {**{name.replace("electra/", "generator/", 1): value for name, value in encoder.items()}, **own}


def _require_one_vocabulary(folders: list[str]) -> None:
    """Raises: UserError: if two networks take different tokens, or different letters, for the same id."""
    found = {
        (Vocabulary.from_bytes(files.vocabulary_file, files.path).tokens, files.lower_case, files.strip_accents)
        for files in map(read_tokenizer_files, folders)
        if files.vocabulary_file is not None
    }
    if len(found) > 1:
        raise UserError(
            f"{folders[0]} and {folders[1]} have different vocabularies or casing; give the two networks of one model"
        )


def _objective(weights: dict[str, np.ndarray], ours: dict) -> str:
    if "discriminator_predictions/dense/kernel" in weights:
        return ours.get("objective") or "electra"
    return "bert_mlm" if "generator_predictions/dense/kernel" in weights else ""


def _tokenizer_of(folder: str, given: Given) -> TokenizerFiles:
    """What the folder says, changed by what the user says."""
    found = read_tokenizer_files(folder, given.vocabulary)
    if found.vocabulary_file is None:
        raise UserError(f"{folder} holds neither vocab.txt nor tokenizer.json; give its vocabulary as --vocab_file")
    if given.lower_case is not None:
        found = found._replace(lower_case=given.lower_case, strip_accents=given.lower_case)
    if given.strip_accents is not None:
        found = found._replace(strip_accents=given.strip_accents and found.lower_case)
    return found
