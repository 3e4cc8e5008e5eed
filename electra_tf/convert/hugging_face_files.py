"""The files of one of Hugging Face's folders, read: tensors of three formats, config.json, vocabulary and its settings.

Pickled files (pytorch_model.bin) are refused: reading one runs what code it holds.
"""

import io
import os
import re

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError, first_line
from electra_tf.convert.stored_weights import list_briefly
from electra_tf.files import exists, read_bytes, read_json

_SAFETENSORS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_H5 = "tf_model.h5"
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
# By the names in a file; bfloat16 is no type of numpy's own.
_DTYPES = {"F64": tf.float64, "F32": tf.float32, "F16": tf.float16, "BF16": tf.bfloat16}
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

Tensors = dict[str, np.ndarray]


def read_tensors(folder: str) -> tuple[str, Tensors]:
    """The tensors of a model, by the names and in the layout of transformers' classes in PyTorch.

    `model.safetensors`, whole or in shards, else `tf_model.h5`. All become float32. Old names of a LayerNorm are made
    new, and what is no weight (`position_ids`) is left out.

    Returns: the file, and the tensors by name.
    Raises: UserError: if there is no such file, or it is damaged.
    """
    whole, index, h5 = (os.path.join(folder, name) for name in (_SAFETENSORS, _INDEX, _H5))
    if (content := read_bytes(whole)) is not None:
        return whole, _safetensors(whole, content)
    if exists(index):
        return index, _shards(folder, index, read_json(index))
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


def _shards(folder: str, index: str, listing: dict) -> Tensors:
    where = listing.get("weight_map")
    if not isinstance(where, dict) or not all(isinstance(file, str) for file in where.values()):
        raise UserError(f"{index} is damaged: expected a weight_map of tensors and files; copy the file again")
    tensors: Tensors = {}
    for file in sorted(set(where.values())):
        path = os.path.join(folder, os.path.basename(file))  # the listing may not lead out of the folder
        if (content := read_bytes(path)) is None:
            raise UserError(f"{index} names the shard {file}, and {folder} has none; copy the missing file there")
        tensors |= _safetensors(path, content)
    if lost := sorted({_plain_name(name) for name in where} - tensors.keys() - {None}):
        raise UserError(f"{index} names {list_briefly(lost)}, which no shard holds; copy the folder again")
    return tensors


def _safetensors(path: str, content: bytes) -> Tensors:
    from safetensors import SafetensorError, deserialize

    try:
        stored = deserialize(content)
    except SafetensorError as error:
        raise UserError(
            f"{path} is damaged or cut off ({len(content)} bytes): {first_line(error)}; copy the file again"
        ) from None
    tensors: Tensors = {}
    for stored_name, tensor in stored:
        if (name := _plain_name(stored_name)) is None:
            continue
        if tensor["dtype"] not in _DTYPES:
            raise UserError(
                f"{path}: {stored_name} is of type {tensor['dtype']}, expected one of {', '.join(_DTYPES)}; quantized "
                "models have lost their weights"
            )
        values = np.frombuffer(tensor["data"], _DTYPES[tensor["dtype"]].as_numpy_dtype)
        tensors[name] = values.reshape(tensor["shape"]).astype(np.float32)
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
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:  # h5py passes on what HDF5 meets
        raise UserError(f"{path} is damaged or cut off: {first_line(error)}; copy the file again") from None
    return tensors


def _name_in_h5(stored_name: str) -> str:
    """PyTorch's name for a tensor of a TensorFlow model.

    Source: transformers 4.57, models/electra/modeling_tf_electra.py. What stands before the last of the roots are
    groups of the file and the name of the model.
    """
    parts = stored_name.removesuffix(":0").split("/")
    roots = [index for index, part in enumerate(parts) if part in _ROOTS]
    parts = parts[roots[-1] if roots else 1 :]
    if parts[-2:-1] and parts[-2].endswith("_embeddings"):
        parts[-1] = "weight"  # `embeddings` of two of the tables
    name = ".".join(re.sub(r"^layer_\._(\d+)$", r"layer.\1", part) for part in parts)
    return _plain_name(re.sub(r"\.kernel$", ".weight", name))


def _plain_name(name: str) -> str | None:
    """A tensor's name as transformers writes it today; None for what is no weight."""
    if name.endswith("embeddings.position_ids"):
        return None
    return name.replace(".LayerNorm.gamma", ".LayerNorm.weight").replace(".LayerNorm.beta", ".LayerNorm.bias")
