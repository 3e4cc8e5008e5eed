"""The tensors of Hugging Face folders: both formats give the same, and each weight of ours has a tensor."""

import json
import random
import struct

import h5py
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.weights.hugging_face.layouts import ELECTRA, MODERN
from electra_tf.weights.hugging_face.tensors import read_tensors
from tests.weights import conftest

TENSORS = {
    "electra.embeddings.word_embeddings.weight": np.arange(6, dtype=np.float32).reshape(3, 2),
    "electra.encoder.layer.1.output.dense.weight": np.arange(8, dtype=np.float32).reshape(2, 4),
    "electra.encoder.layer.1.output.LayerNorm.weight": np.ones(2, np.float32),
    "generator_lm_head.bias": np.zeros(3, np.float32),
}
# The same as transformers 4 wrote them with TensorFlow: below a group for each layer.
BELOW = "electra/tf_electra_for_masked_lm/electra"
IN_H5 = {
    f"{BELOW}/embeddings/word_embeddings/weight:0": [[0, 1], [2, 3], [4, 5]],
    f"{BELOW}/encoder/layer_._1/output/dense/kernel:0": [[0, 4], [1, 5], [2, 6], [3, 7]],
    f"{BELOW}/encoder/layer_._1/output/LayerNorm/gamma:0": [1, 1],
    "generator_lm_head/tf_electra_for_masked_lm/generator_lm_head/bias:0": [0, 0, 0],
    # The head's layer lists the table that it is tied to.
    "generator_lm_head/tf_electra_for_masked_lm/electra/embeddings/word_embeddings/weight:0": [[0, 1], [2, 3], [4, 5]],
}


def assert_same(found: dict) -> None:
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        np.testing.assert_array_equal(found[name], tensor)
        assert found[name].dtype == np.float32


def refusal(folder) -> str:
    return conftest.refusal(read_tensors, str(folder))


def write_index(folder, parts: dict[str, str]) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": parts}))


def test_a_model_in_parts_is_read_and_a_missing_part_is_named(tmp_path):
    parts = dict(zip(TENSORS, [f"model-0000{part}-of-00002.safetensors" for part in (1, 1, 2, 2)], strict=True))
    for part in set(parts.values()):
        safetensors.numpy.save_file({name: TENSORS[name] for name in TENSORS if parts[name] == part}, tmp_path / part)
    write_index(tmp_path, parts)
    file, found = read_tensors(str(tmp_path))
    assert file == f"{tmp_path}/model.safetensors"
    assert_same(found)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    assert f"{tmp_path}/model-00002-of-00002.safetensors does not exist" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["../part.safetensors", "/etc/part.safetensors"])
def test_an_index_cannot_name_files_outside_of_its_folder(tmp_path, name):
    safetensors.numpy.save_file(TENSORS, tmp_path / "part.safetensors")
    (tmp_path / "inside").mkdir()
    write_index(tmp_path / "inside", {"a": name})
    assert f"{tmp_path}/inside" in refusal(tmp_path / "inside")


def test_tf_model_h5_is_read(tmp_path):
    with h5py.File(tmp_path / "tf_model.h5", "w") as file:
        for name, values in IN_H5.items():
            file[name] = np.array(values, np.float32)
    assert_same(read_tensors(str(tmp_path))[1])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bert/tf_bert_for_masked_lm/bert/pooler/dense/bias:0", "bert.pooler.dense.bias"),
        ("mlm___cls/tf_bert/mlm___cls/predictions/transform/dense/kernel:0", "cls.predictions.transform.dense.weight"),
        ("mlm___cls/tf_bert/bert/embeddings/word_embeddings/weight:0", "bert.embeddings.word_embeddings.weight"),
        ("nsp___cls/tf_bert_for_pre_training/nsp___cls/seq_relationship/bias:0", "cls.seq_relationship.bias"),
        ("classifier/tf_bert_for_sequence_classification/classifier/bias:0", "classifier.bias"),
        (f"{BELOW}/embeddings/token_type_embeddings/embeddings:0", "electra.embeddings.token_type_embeddings.weight"),
        (f"{BELOW}/embeddings/LayerNorm/beta:0", "electra.embeddings.LayerNorm.bias"),
        (f"{BELOW}/encoder/layer_._11/attention/query/bias:0", "electra.encoder.layer.11.attention.query.bias"),
    ],
)
def test_names_in_tf_model_h5_become_those_of_pytorch(tmp_path, name, expected):
    with h5py.File(tmp_path / "tf_model.h5", "w") as file:
        file[name] = np.ones([3], np.float32)
    assert list(read_tensors(str(tmp_path))[1]) == [expected]


def test_old_names_are_renamed_and_position_ids_are_left_out(tmp_path):
    stored = {"LayerNorm.gamma": np.ones(2, np.float32), "LayerNorm.beta": np.zeros(2, np.float32)}
    stored = {f"electra.embeddings.{name}": value for name, value in stored.items()}
    stored["electra.embeddings.position_ids"] = np.arange(3)[None]
    safetensors.numpy.save_file(stored, tmp_path / "model.safetensors")
    found = {name: value.tolist() for name, value in read_tensors(str(tmp_path))[1].items()}
    norm = "electra.embeddings.LayerNorm"
    assert found == {f"{norm}.weight": [1, 1], f"{norm}.bias": [0, 0]}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_becomes_float32(tmp_path, dtype):
    values = np.array([1.5, -2.0], tf.as_dtype(dtype).as_numpy_dtype)
    tensor = safetensors.TensorSpec(dtype=dtype, shape=[2], data_ptr=values.ctypes.data, data_len=values.nbytes)
    (tmp_path / "model.safetensors").write_bytes(safetensors.serialize({"generator_lm_head.bias": tensor}))
    found = read_tensors(str(tmp_path))[1]["generator_lm_head.bias"]
    assert (found.tolist(), found.dtype) == ([1.5, -2.0], np.float32)


def hostile_h5(folder, write) -> None:
    """Writes a tf_model.h5 with a sound dataset and what `write(file)` adds."""
    with h5py.File(folder / "tf_model.h5", "w") as file:
        file["electra/embeddings/sound:0"] = np.ones(3, np.float32)
        write(file)


def add_virtual_dataset(file: h5py.File, source: str) -> None:
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource(source, "x", shape=(4,))
    file.create_virtual_dataset("x", layout)


@pytest.mark.parametrize(
    "write",
    [
        lambda file, secret: file.create_dataset("x", (4,), "f4", external=[(secret, 0, 16)]),
        lambda file, secret: add_virtual_dataset(file, secret),
        lambda file, secret: file.create_dataset("x", (2**50,), "f4"),
        lambda file, secret: file.create_dataset("x", data=np.zeros(99999, np.float32), compression="gzip"),
    ],
    ids=["external", "virtual", "large", "compressed"],
)
def test_tf_model_h5_cannot_refer_to_another_file_or_claim_more_than_it_stores(tmp_path, write):
    secret = tmp_path / "secret"
    secret.write_bytes(b"a key of 16 byte")
    hostile_h5(tmp_path, lambda file: write(file, str(secret)))
    assert "tf_model.h5 cannot be read: ValueError: the data of x is not in the file itself" in refusal(tmp_path)


def test_a_damaged_tf_model_h5_is_an_error_of_one_line(tmp_path):
    file, generator, num_refused = tmp_path / "tf_model.h5", random.Random(5), 0
    hostile_h5(tmp_path, lambda file: None)
    content = file.read_bytes()
    for _ in range(100):
        flipped = bytearray(content)
        flipped[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        file.write_bytes(flipped)
        try:
            read_tensors(str(tmp_path))
        except UserError as error:
            num_refused += str(error).startswith(str(file))
    assert num_refused > 9


def safetensors_of(shape: list[int], num_bytes: int) -> bytes:
    header = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, num_bytes]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(num_bytes)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("model.safetensors", safetensors.numpy.save(TENSORS)[:60], ""),  # cut off
        ("tf_model.h5", safetensors.numpy.save(TENSORS)[:60], ""),
        ("model.safetensors", safetensors_of([2**50], 4), ""),  # claims more than it holds
        ("model.safetensors", safetensors_of([0, 2**62, 2**62], 0), ""),
        ("model.safetensors", safetensors.numpy.save({"x": np.ones(2, np.int8)}), "KeyError: 'I8'"),  # quantized
    ],
)
def test_a_file_that_is_damaged_or_quantized_is_named(tmp_path, name, content, problem):
    (tmp_path / name).write_bytes(content)
    message = refusal(tmp_path)
    assert message.startswith(f"{tmp_path / name} cannot be read: ") and message.endswith(problem)


def test_a_folder_without_weights_is_named(tmp_path):
    assert f"{tmp_path} holds no model.safetensors, tf_model.h5 or pytorch_model.bin" in refusal(tmp_path)


def test_of_several_files_of_weights_the_first_is_read(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"no weights")
    with h5py.File(tmp_path / "tf_model.h5", "w") as file:
        file["electra/embeddings/LayerNorm/gamma:0"] = np.ones(2, np.float32)
    assert list(read_tensors(str(tmp_path))[1]) == ["electra.embeddings.LayerNorm.weight"]
    safetensors.numpy.save_file(TENSORS, tmp_path / "model.safetensors")
    assert_same(read_tensors(str(tmp_path))[1])


def test_numbers_of_layers_may_have_two_digits():
    names = [layout.tensor_name("electra/encoder/layer_11/output/dense/bias") for layout in (ELECTRA, MODERN)]
    assert names == ["electra.encoder.layer.11.output.dense.bias", "model.layers.11.output.dense.bias"]
