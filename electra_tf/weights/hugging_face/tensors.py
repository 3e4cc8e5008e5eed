"""The tensors of a Hugging Face folder, and their names.

ElectraForPreTraining is the authors' discriminator, ElectraForMaskedLM the generator, each with an `electra.` of its
own. Products are stored transposed, as `weight` [out, in].
Source: transformers 5, models/electra/modeling_electra.py.
"""

import io
import os
import re
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError, first_line
from electra_tf.files import exists, read_bytes, read_json

Tensors = dict[str, np.ndarray]

_SAFETENSORS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_H5 = "tf_model.h5"
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_DTYPES = {"F64": tf.float64, "F32": tf.float32, "F16": tf.float16, "BF16": tf.bfloat16}  # NumPy has no bfloat16
# Parts of transformers' classes.
_ROOTS = (
    "electra",
    "discriminator_predictions",
    "generator_predictions",
    "generator_lm_head",
    "classifier",
    "qa_outputs",
    "sequence_summary",
)
# What our names begin with, or are, and what stands there in transformers.
_SCOPES = (
    (r"(electra|generator)/", "electra."),
    (r"discriminator_predictions/dense_1/", "discriminator_predictions.dense_prediction."),
    (r"generator_predictions/output_bias$", "generator_lm_head.bias"),
)
_ENDINGS = {"gamma": "weight", "beta": "bias", "kernel": "weight"}


class TensorName(NamedTuple):
    """The tensor of one of our weights.

    Attributes:
        transposed: whether the tensor is the weight's transpose.
    """

    name: str
    transposed: bool


def tensor_name(name: str) -> TensorName:
    """Where transformers has the weight of this name, which is not of a fine-tuned head.

    Word embeddings that both networks share have one name here and one there, and stand in both folders.
    """
    for pattern, replacement in _SCOPES:
        name = re.sub(f"^{pattern}", replacement, name)
    *parents, ending = re.split(r"[/.]", re.sub(r"/layer_(\d+)/", r"/layer/\1/", name))
    if ending.endswith("_embeddings"):  # a table
        return TensorName(".".join([*parents, ending, "weight"]), False)
    return TensorName(".".join([*parents, _ENDINGS.get(ending, ending)]), ending == "kernel")


def read_tensors(folder: str) -> tuple[str, Tensors]:
    """The tensors of a model as float32, by the names and in the layout of transformers' classes in PyTorch.

    `model.safetensors`, whole or in shards, else `tf_model.h5`. A pickled file is refused: reading it runs its code.

    Returns: the file, and the tensors by name.
    Raises: UserError: if there is no such file.
    """
    whole, index, h5 = (os.path.join(folder, name) for name in (_SAFETENSORS, _INDEX, _H5))
    if (content := read_bytes(whole)) is not None:
        return whole, _safetensors(whole, content)
    if exists(index):
        return index, _shards(folder, index)
    if (content := read_bytes(h5)) is not None:
        return h5, _h5(h5, content)
    for name in _PICKLED:
        if exists(os.path.join(folder, name)):
            raise UserError(
                f"{folder} holds {name}, a pickle, which may run code when it is read; convert it with transformers: "
                f"python -c \"import transformers as t; t.AutoModelForPreTraining.from_pretrained('{folder}')"
                ".save_pretrained('NEW')\" (AutoModelForMaskedLM for a generator)"
            )
    raise UserError(f"{folder} holds no {_SAFETENSORS}, {_INDEX} or {_H5}; give a folder that transformers has saved")


def _shards(folder: str, index: str) -> Tensors:
    tensors: Tensors = {}
    for file in sorted(set(read_json(index)["weight_map"].values())):
        path = os.path.join(folder, os.path.basename(file))  # the listing may not lead out of the folder
        if (content := read_bytes(path)) is None:
            raise UserError(f"{index} names {file}, which is missing; copy it there")
        tensors |= _safetensors(path, content)
    return tensors


def _safetensors(path: str, content: bytes) -> Tensors:
    from safetensors import SafetensorError, deserialize

    try:
        stored = deserialize(content)
    except SafetensorError as error:
        raise UserError(f"{path} ({len(content)} bytes) cannot be read: {first_line(error)}; copy it again") from None
    tensors: Tensors = {}
    for name, tensor in stored:
        if tensor["dtype"] not in _DTYPES and not name.endswith("position_ids"):
            raise UserError(f"{path}: {name} is of type {tensor['dtype']}, expected one of {', '.join(_DTYPES)}")
        if plain := _plain_name(name):
            values = np.frombuffer(tensor["data"], _DTYPES[tensor["dtype"]].as_numpy_dtype)
            tensors[plain] = values.reshape(tensor["shape"]).astype(np.float32)
    return tensors


def _h5(path: str, content: bytes) -> Tensors:
    import h5py

    tensors: Tensors = {}

    def collect(stored_name: str, item) -> None:
        if isinstance(item, h5py.Dataset):
            name, values = _name_in_h5(stored_name), np.asarray(item, np.float32)
            tensors[name] = values.T if stored_name.endswith(("kernel:0", "kernel")) else values

    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            file.visititems(collect)
    except OSError as error:
        raise UserError(f"{path} ({len(content)} bytes) cannot be read: {first_line(error)}; copy it again") from None
    return tensors


def _name_in_h5(stored_name: str) -> str:
    """PyTorch's name for a tensor of a TensorFlow model.

    What stands before the last of the roots are groups of the file and the name of the model.
    Source: transformers 4.57, models/electra/modeling_tf_electra.py.
    """
    parts = stored_name.removesuffix(":0").split("/")
    roots = [index for index, part in enumerate(parts) if part in _ROOTS]
    parts = parts[roots[-1] if roots else 1 :]
    if parts[-2:-1] and parts[-2].endswith("_embeddings"):
        parts[-1] = "weight"  # `embeddings` of two of the tables
    name = ".".join(re.sub(r"^layer_\._(\d+)$", r"layer.\1", part) for part in parts)
    return _plain_name(re.sub(r"\.kernel$", ".weight", name))


def _plain_name(name: str) -> str | None:
    """A tensor's name as transformers writes it today; None for a tensor that is no weight."""
    if name.endswith("embeddings.position_ids"):
        return None
    return name.replace(".LayerNorm.gamma", ".LayerNorm.weight").replace(".LayerNorm.beta", ".LayerNorm.bias")
