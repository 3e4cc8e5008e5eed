"""A data set with a tokenizer.json: its ids, the same bytes for any number of processes, and what training reads."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from tokenizers import Tokenizer

from data_prep.build import build
from electra_tf.config.errors import UserError
from electra_tf.data.corpus import open_data
from electra_tf.data.manifest import Manifest
from electra_tf.data.pretraining_input import training_batches
from tests.byte_level import byte_level

CLS, SEP, PAD, MASK = 269, 270, 271, 272
THE, CAT, FIRST_THE = 258, 261, 257


@pytest.fixture(scope="module")
def data_dirs(tmp_path_factory, build_settings):
    """The data set of one process, and that of two."""
    directory = tmp_path_factory.mktemp("byte_level")
    (directory / "a.txt").write_text("\n\n".join(f"the cat\nthe cat cat\n{'cat ' * number}" for number in range(30)))
    (directory / "tokenizer.json").write_bytes(byte_level())
    changes = {"vocab_file": str(directory / "tokenizer.json"), "drop_duplicates": False, "layout": "join"}
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


CODE = 'def f(x):\n\tif x:\n\n        return  "é"  # the cat\n\nclass A:\n    pass'
VERSE = "the cat\n   the cat\n\tcat"


def texts_of(data_dir):
    """The texts of the documents of a data set, whose examples have one each, and its manifest."""
    manifest = Manifest.load(data_dir)
    files = [str(data_dir / shard.file) for split in manifest.splits.values() for shard in split.shards]
    rows = [tf.train.Example.FromString(each).features.feature["input_ids"].int64_list.value[:]
            for each in tf.data.TFRecordDataset(files).as_numpy_iterator()]  # fmt: skip
    tokenizer = Tokenizer.from_buffer(byte_level())
    for row in rows:  # the tokens are those of the whole text
        text = tokenizer.decode(row)
        tokenizer.no_truncation()
        assert tokenizer.encode(text, add_special_tokens=False).ids == [each for each in row if each not in (CLS, SEP)]
    return {tokenizer.decode(row) for row in rows}, manifest


@pytest.fixture
def build_texts(tmp_path, build_settings):
    """`build_texts("jsonl", **changes)`: `texts_of` a data set of `CODE` and `VERSE`."""
    (tmp_path / "tokenizer.json").write_bytes(byte_level())
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text + " \n"}) + "\n" for text in (CODE, VERSE)))
    (tmp_path / "a.text").write_text(f"{VERSE}\n\n\n  cat\r\n the\n")
    pq.write_table(pa.table({"text": [CODE.replace("\n", "\r\n"), VERSE]}), tmp_path / "a.parquet")

    def run(format_name: str, **changes):
        changes = {"vocab_file": str(tmp_path / "tokenizer.json"), "max_seq_length": 128, "sentences": "auto"} | changes
        settings = build_settings([f"{format_name}:{tmp_path}/a.{format_name}"], tmp_path / "data", **changes)
        build(settings)
        return texts_of(tmp_path / "data")

    return run


@pytest.mark.parametrize(
    ("format_name", "texts"),
    [("jsonl", {CODE, VERSE}), ("parquet", {CODE, VERSE}), ("text", {VERSE, "  cat\n the"})],
)
def test_indentation_tabs_and_line_ends_of_a_document_are_kept(build_texts, format_name, texts):
    found, manifest = build_texts(format_name)
    assert found == texts
    assert manifest.layout == "keep"


def test_a_finished_set_of_another_layout_is_not_continued(build_texts):
    assert build_texts("text", layout="join")[0] == {"the cat the cat cat", "cat the"}
    with pytest.raises(UserError, match="another layout"):
        build_texts("text")


@pytest.mark.parametrize("changes", [{"sentences": "split"}, {"vocab_file": "w"}])
def test_a_layout_that_has_no_tokens_is_refused(build_texts, vocab_file, changes):
    changes = {name: vocab_file if value == "w" else value for name, value in changes.items()}
    with pytest.raises(UserError, match="layout=keep"):
        build_texts("text", layout="keep", **changes)
