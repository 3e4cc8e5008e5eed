"""A data set with a tokenizer.json: its ids, the same bytes for any number of processes, and what training reads."""

import hashlib

import numpy as np
import pytest
import tensorflow as tf

from data_prep.build import build
from electra_tf.data.corpus import open_data
from electra_tf.data.pretraining_input import training_batches
from electra_tf.text.manifest import Manifest
from tests.byte_level import byte_level

CLS, SEP, PAD, MASK = 269, 270, 271, 272
THE, CAT, FIRST_THE = 258, 261, 257


@pytest.fixture(scope="module")
def data_dirs(tmp_path_factory, build_settings):
    """The data set of one process, and that of two."""
    directory = tmp_path_factory.mktemp("byte_level")
    (directory / "a.txt").write_text("\n\n".join(f"the cat\nthe cat cat\n{'cat ' * number}" for number in range(30)))
    (directory / "tokenizer.json").write_bytes(byte_level())
    changes = {"vocab_file": str(directory / "tokenizer.json"), "drop_duplicates": False}
    for number in (1, 2):
        build(build_settings([f"text:{directory}/a.txt"], directory / f"{number}", num_processes=number, **changes))
    return directory / "1", directory / "2"


def test_records_have_the_ids_of_the_tokenizer(data_dirs):
    manifest = Manifest.load(data_dirs[0])
    assert (data_dirs[0] / "tokenizer.json").read_bytes() == byte_level()
    assert (manifest.vocab_size, manifest.vocab_sha256) == (273, hashlib.sha256(byte_level()).hexdigest())
    assert manifest.counts.num_unknown_tokens == 0
    files = [str(data_dirs[0] / shard.file) for split in manifest.splits.values() for shard in split.shards]
    rows = [tf.train.Example.FromString(each).features.feature["input_ids"].int64_list.value[:]
            for each in tf.data.TFRecordDataset(files).as_numpy_iterator()]  # fmt: skip
    words = [[token for token in row if token not in (CLS, SEP)] for row in rows]
    # A sentence that follows another one begins with its space.
    assert words.count([FIRST_THE, CAT, THE, CAT, CAT]) == 1
    assert {row[0] for row in rows} == {CLS} and {row[-1] for row in rows} == {SEP}


def test_the_data_set_does_not_depend_on_the_number_of_processes(data_dirs):
    of_one, of_two = ({file.name: file.read_bytes() for file in each.iterdir()} for each in data_dirs)
    assert of_one == of_two and len(of_one) == 6


def test_training_masks_whole_words_beside_padding_of_another_id(data_dirs, tiny_config):
    masking = {"scheme": "whole_word", "masked_fraction": 0.3}
    config = tiny_config(
        data={"max_seq_length": 16}, encoder={"vocab_size": 273, "max_position_embeddings": 16}, masking=masking
    )
    data = open_data(data_dirs[0], config)
    continues = data.masking_vocabulary.is_continuation
    assert continues[[FIRST_THE, THE, CAT, MASK]].tolist() == [True, False, False, False]
    (batch,) = training_batches(data, config.masking, seed=0, batch_size=8, first_step=0, num_steps=1).take(1)
    ids, positions = batch["input_ids"].numpy(), batch["masked_lm_positions"].numpy()
    chosen = np.take_along_axis(ids, positions, 1)[batch["masked_lm_weights"].numpy() > 0]
    assert len(chosen) and not np.isin(chosen, (CLS, SEP, PAD, MASK, 0)).any()
    assert (ids[batch["input_mask"].numpy() == 0] == 0).all()  # masked out, whatever token has id 0
