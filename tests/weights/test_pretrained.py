"""The encoder that fine-tuning starts from: where it may stand, and that all of it is loaded or nothing."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import EncoderConfig
from electra_tf.models.embeddings import Embeddings
from electra_tf.models.encoder import Encoder
from electra_tf.tasks.finetune.seeds import PretrainedEncoder
from electra_tf.weights.source import load_pretrained, read_stored_model

_INPUT = {"input_ids": [[2, 5, 3]], "input_mask": [[1, 1, 1]], "segment_ids": [[0, 0, 0]]}


def encoder_of(config: EncoderConfig) -> Encoder:
    encoder = Encoder(config, Embeddings(config, name="embeddings"), name="electra")
    encoder(**{name: tf.constant(values) for name, values in _INPUT.items()})
    return encoder


def assert_same_values(found: PretrainedEncoder, expected: PretrainedEncoder) -> None:
    one, other = encoder_of(found.config), encoder_of(expected.config)
    found.assign_to(one)
    expected.assign_to(other)
    assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(one.variables, other.variables, strict=True))


@pytest.fixture(scope="module")
def tiny_encoder(tiny_pretrained) -> PretrainedEncoder:
    return load_pretrained(tiny_pretrained)


@pytest.fixture
def authors_checkpoint(tiny_pretrained, tiny_encoder, tmp_path) -> str:
    """The tiny encoder under the authors' names, with another head and optimizer slots beside it."""
    others = {"another_head/bias": np.ones(6), "global_step": np.array(3)}
    others["electra/embeddings/word_embeddings/adam_m"] = np.ones([47, 12])
    tables = {
        name: tf.Variable(values)
        for name, values in {**read_stored_model(tiny_pretrained).part("electra/"), **others}.items()
    }
    prefix = str(tmp_path / "model.ckpt-3")
    tf.compat.v1.train.Saver(tables).save(None, prefix, write_meta_graph=False)
    return prefix


@pytest.mark.parametrize("path", ["", "/", "/checkpoints", "/checkpoints/step-3", "/checkpoints/step-3.index"])
def test_a_run_its_checkpoints_and_one_of_them_are_the_same_encoder(tiny_pretrained, tiny_encoder, path):
    found = load_pretrained(tiny_pretrained + path)
    assert (found.config, found.source) == (tiny_encoder.config, f"step 3 of {tiny_pretrained}")
    assert found.vocabulary_file == tiny_encoder.vocabulary_file
    assert_same_values(found, tiny_encoder)


def test_a_milestone_of_an_earlier_step(tiny_pretrained, tmp_path):
    shutil.copytree(tiny_pretrained, tmp_path / "run")
    (tmp_path / "run/milestones").mkdir()
    for file in (tmp_path / "run/checkpoints").glob("step-3.*"):
        file.rename(tmp_path / "run/milestones" / file.name.replace("step-3", "step-2"))
    assert load_pretrained(tmp_path / "run/milestones/step-2").source == f"step 2 of {tmp_path}/run"


@pytest.mark.parametrize("directory", [False, True])
def test_an_authors_checkpoint_gives_sizes_and_weights(
    authors_checkpoint, tiny_encoder, tiny_pretrained, tmp_path, directory
):
    path = tmp_path if directory else authors_checkpoint
    found = load_pretrained(path, f"{tiny_pretrained}/vocab.txt", lower_case=False, num_heads=2)
    assert found.source == authors_checkpoint
    assert found.config == tiny_encoder.config
    assert not found.tokenizer.lower_case
    encoder = encoder_of(found.config)
    assert found.assign_to(encoder) == f"loaded 23 of 23 encoder variables from {authors_checkpoint}"
    assert_same_values(found, tiny_encoder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_layers": 2}, "holds no variable electra/encoder/layer_1/"),
        ({"num_layers": 0}, "holds electra/encoder/layer_0/.*, which the encoder lacks"),
        (
            {"intermediate_size": 24},
            r"layer_0/intermediate/dense/kernel has shape \[16, 20\], the model's is \[16, 24\]",
        ),
    ],
)
def test_all_of_an_encoder_is_loaded_or_nothing(tiny_encoder: PretrainedEncoder, change, message):
    config = tiny_encoder.config.model_copy(update=change)
    encoder = encoder_of(config)
    before = [variable.numpy() for variable in encoder.variables]
    with pytest.raises(UserError, match=message):
        tiny_encoder.assign_to(encoder)
    assert all(np.array_equal(old, new.numpy()) for old, new in zip(before, encoder.variables, strict=True))
