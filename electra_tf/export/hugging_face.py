"""Writes a model as folders that Hugging Face's `from_pretrained` reads, one for each of its networks."""

import json
import os

import safetensors.numpy
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.convert.hugging_face import Network, hugging_face_networks
from electra_tf.convert.model_card import model_card
from electra_tf.convert.stored_model import StoredModel
from electra_tf.convert.tokenizer_files import tokenizer_files
from electra_tf.files import names_in, store_errors, write_atomically
from electra_tf.text.vocabulary import Vocabulary


def write_hugging_face(model: StoredModel, output_dir: str) -> list[str]:
    """Writes each network of a model with its tokenizer and its model card.

    The networks of ELECTRA go to `discriminator/` and `generator/`, a single network into `output_dir` itself; see
    `electra_tf.convert.hugging_face`.

    Returns: lines for the log: what was written and what its users have to know.
    Raises: UserError: if a folder is not empty or cannot be written, or the model does not fit its vocabulary.
    """
    networks = hugging_face_networks(model)
    model.require_fitting_vocabulary()
    folders = {os.path.join(output_dir, each.name) if len(networks) > 1 else output_dir: each for each in networks}
    for folder in folders:
        if names_in(folder):
            raise UserError(f"{folder} is not empty; give a new directory")
    lines = []
    for folder, network in folders.items():
        _write_folder(folder, model, network)
        lines.append(
            f"{folder}: {network.architecture}, {len(network.tensors)} tensors, {network.num_parameters:,} parameters"
        )
        lines += [f"{folder}: {note}" for note in network.notes]
    return lines


def _write_folder(folder: str, model: StoredModel, network: Network) -> None:
    vocabulary = Vocabulary.from_bytes(model.vocabulary_file, model.source)
    max_length = network.config["max_position_embeddings"]
    files = {
        **tokenizer_files(vocabulary, model.vocabulary_file, model.lower_case, model.strip_accents, max_length),
        "config.json": (json.dumps(network.config, indent=2, ensure_ascii=False) + "\n").encode(),
        "README.md": model_card(model, network).encode(),
        # Older transformers refuse a file that does not name its format.
        "model.safetensors": safetensors.numpy.save(dict(network.tensors), {"format": "pt"}),
    }
    with store_errors(folder, "cannot be written"):
        tf.io.gfile.makedirs(folder)
    for name, content in files.items():
        write_atomically(os.path.join(folder, name), content)
