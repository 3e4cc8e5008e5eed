"""Reads the tensors of a Hugging Face folder.

Each network has a folder of its own, with the embeddings that both share. Kernels are stored transposed, as `weight`
[out, in].
"""

import io
import os
import re
import struct
import zipfile

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError, wrong_contents
from electra_tf.data.tables import read_existing
from electra_tf.files import exists, read_json
from electra_tf.weights.hugging_face.heads import HEAD_ROOTS
from electra_tf.weights.hugging_face.layouts import Tensors
from electra_tf.weights.hugging_face.torch_file import read_torch_file

_SAFETENSORS = "model.safetensors"
_H5 = "tf_model.h5"
_TORCH = "pytorch_model.bin"
_DTYPES = {"F64": tf.float64, "F32": tf.float32, "F16": tf.float16, "BF16": tf.bfloat16}  # NumPy has no bfloat16
_POSITION_IDS = "embeddings.position_ids"  # no weight; older files have it
# The roots of the names in files of TensorFlow, which transformers 4 wrote for ELECTRA and BERT.
_ROOTS = {"electra", "bert", "cls", "discriminator_predictions", "generator_predictions", "generator_lm_head"}
_ROOTS |= HEAD_ROOTS["Electra"]


def read_tensors(folder: str) -> tuple[str, Tensors]:
    """The tensors of a model as float32, by the names and in the layout of transformers' classes in PyTorch.

    Reads `model.safetensors`, else `tf_model.h5`, else `pytorch_model.bin`, or the parts that an index names in their
    place.

    Returns: the file, and the tensors by name.
    Raises: UserError: there is no such file, or it is damaged.
    """
    from safetensors import SafetensorError

    for name, parse in ((_SAFETENSORS, _safetensors), (_H5, _h5), (_TORCH, _torch)):
        path = os.path.join(folder, name)
        parts = {} if exists(path) else read_json(f"{path}.index.json").get("weight_map", {})
        names = {os.path.basename(part) for part in parts.values()}
        files = [os.path.join(folder, part) for part in sorted(names)] or [path] * exists(path)
        tensors: Tensors = {}
        for file in files:
            content = read_existing(file)
            with wrong_contents(file, SafetensorError, struct.error, zipfile.BadZipFile):
                tensors |= parse(content)
        if files:
            return path, tensors
    raise UserError(f"{folder} holds no {_SAFETENSORS}, {_H5} or {_TORCH}; give a folder with one of them")


def _safetensors(content: bytes) -> Tensors:
    from safetensors import deserialize

    tensors: Tensors = {}
    for name, tensor in deserialize(content):
        if not name.endswith(_POSITION_IDS):
            values = np.frombuffer(tensor["data"], _DTYPES[tensor["dtype"]].as_numpy_dtype).reshape(tensor["shape"])
            tensors[_plain_name(name)] = values.astype(np.float32)
    return tensors


def _torch(content: bytes) -> Tensors:
    tensors = {name: each for name, each in read_torch_file(content).items() if not name.endswith(_POSITION_IDS)}
    for name, tensor in tensors.items():
        if tensor.dtype != np.float32:
            raise TypeError(f"{name} has numbers of type {tensor.dtype}")  # quantized
    return {_plain_name(name): tensor for name, tensor in tensors.items()}


def _h5(content: bytes) -> Tensors:
    import h5py

    tensors: Tensors = {}

    def collect(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            # HDF5 would read any other file, and allocate any size that is claimed. transformers compresses nothing.
            if item.external or item.is_virtual or item.nbytes > len(content):
                raise ValueError(f"the data of {name} is not in the file itself")
            values = np.asarray(item, np.float32)
            tensors[_name_in_h5(name)] = values.T if name.endswith(("kernel:0", "kernel")) else values

    with h5py.File(io.BytesIO(content), "r") as file:
        file.visititems(collect)  # which follows no links
    return tensors


def _name_in_h5(stored_name: str) -> str:
    """PyTorch's name for a tensor of a TensorFlow model.

    The name begins at the last of the roots. Groups of the file and the model's own name come before it. BERT's heads
    are called `mlm___cls` and `nsp___cls` there.
    Source: transformers 4.57, models/electra/modeling_tf_electra.py and models/bert/modeling_tf_bert.py.
    """
    parts = [part.split("___")[-1] for part in stored_name.removesuffix(":0").split("/")]
    roots = [index for index, part in enumerate(parts) if part in _ROOTS]
    parts = parts[roots[-1] if roots else 1 :]
    if parts[-2:-1] and parts[-2].endswith("_embeddings"):
        parts[-1] = "weight"  # `embeddings` for two of the tables
    name = ".".join(re.sub(r"^layer_\._(\d+)$", r"layer.\1", part) for part in parts)
    return _plain_name(re.sub(r"\.kernel$", ".weight", name))


def _plain_name(name: str) -> str:
    """A tensor's name as transformers writes it today."""
    return name.replace(".LayerNorm.gamma", ".LayerNorm.weight").replace(".LayerNorm.beta", ".LayerNorm.bias")
