import hashlib
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from data_prep.build import build
from electra_tf.config.errors import UserError
from electra_tf.data.corpus import open_data
from electra_tf.data.manifest import Manifest
from electra_tf.data.pretraining_input import training_batches
from tests.byte_level import byte_level
from tests.data_prep.reading import contents, records
from tests.data_prep.texts import content_of

CLS, SEP, PAD, MASK = 269, 270, 271, 272
THE, CAT, FIRST_THE = 258, 261, 257


@pytest.fixture(scope="module")
def settings(tmp_path_factory, build_settings):
    """`settings(num_processes)`: of a data set of the same text."""
    directory = tmp_path_factory.mktemp("byte_level")
    (directory / "a.txt").write_text("\n\n".join(f"the cat\nthe cat cat\n{'cat ' * number}" for number in range(30)))
    (directory / "tokenizer.json").write_bytes(byte_level())
    changes = {"vocab_file": str(directory / "tokenizer.json"), "drop_duplicates": False, "layout": "join"}
    inputs = [f"text:{directory}/a.txt"]
    return lambda number: build_settings(inputs, directory / f"{number}", num_processes=number, **changes)


@pytest.fixture(scope="module")
def data_dir(settings):
    build(settings(1))
    return Path(settings(1).output_dir)


def token_ids(data_dir) -> list[list[int]]:
    return [ids for split in Manifest.load(data_dir).splits for ids, _ in records(data_dir, split)]


def test_records_have_the_ids_of_the_tokenizer(data_dir):
    manifest = Manifest.load(data_dir)
    assert (data_dir / "tokenizer.json").read_bytes() == byte_level()
    assert (manifest.vocab_size, manifest.vocab_sha256) == (273, hashlib.sha256(byte_level()).hexdigest())
    assert manifest.counts.num_unknown_tokens == 0
    rows = token_ids(data_dir)
    words = [[token for token in row if token not in (CLS, SEP)] for row in rows]
    # A sentence that follows another one begins with its space.
    assert words.count([FIRST_THE, CAT, THE, CAT, CAT]) == 1
    assert {row[0] for row in rows} == {CLS} and {row[-1] for row in rows} == {SEP}


@pytest.mark.slow
def test_the_data_set_does_not_depend_on_the_number_of_processes(settings, data_dir):
    build(settings(2))
    assert contents(settings(2).output_dir) == contents(data_dir) and len(contents(data_dir)) == 6


def test_training_masks_whole_words_beside_padding_of_another_id(data_dir, tiny_config):
    masking = {"scheme": "whole_word", "masked_fraction": 0.3}
    config = tiny_config(
        data={"max_seq_length": 16}, encoder={"vocab_size": 273, "max_position_embeddings": 16}, masking=masking
    )
    data = open_data(data_dir, config)
    continues = data.masking_vocabulary.is_continuation
    assert continues[[FIRST_THE, THE, CAT, MASK]].tolist() == [True, False, False, False]
    (batch,) = training_batches(data, config.masking, seed=0, batch_size=8, first_step=0, num_steps=1).take(1)
    ids, positions = batch["input_ids"].numpy(), batch["masked_lm_positions"].numpy()
    chosen = np.take_along_axis(ids, positions, 1)[batch["masked_lm_weights"].numpy() > 0]
    assert len(chosen) and not np.isin(chosen, (CLS, SEP, PAD, MASK, 0)).any()
    assert (ids[batch["input_mask"].numpy() == 0] == 0).all()  # masked out, whatever token has id 0


CODE = 'def f(x):\n\tif x:\n\n        return  "é"  # the cat\n\nclass A:\n    pass'
VERSE = "the cat\n   the cat\n\tcat"


@pytest.fixture
def build_texts(tmp_path, build_settings):
    """`build_texts(**changes)`: the texts and the manifest of a data set of `CODE` and `VERSE`, in five formats."""
    (tmp_path / "tokenizer.json").write_bytes(byte_level())
    (tmp_path / "a.jsonl").write_bytes(content_of("jsonl", [[CODE + " \n"], [VERSE + " \n"]]))
    (tmp_path / "a.txt").write_text(f"{VERSE}\n\n\n  cat\r\n the\n")
    (tmp_path / "a.parquet").write_bytes(content_of("parquet", [[CODE.replace("\n", "\r\n")], [VERSE]]))
    (tmp_path / "a.arrow").write_bytes(content_of("arrow", [[CODE], [VERSE]]))
    (tmp_path / "a.csv").write_bytes(content_of("csv", [[CODE.replace('"', '""')], [VERSE]]))
    names = ("jsonl:a.jsonl", "text:a.txt", "parquet:a.parquet", "arrow:a.arrow", "csv:a.csv")
    inputs = [each.replace(":", f":{tmp_path}/") for each in names]

    def run(**changes) -> tuple[set[str], Manifest]:
        changes = {"vocab_file": str(tmp_path / "tokenizer.json"), "max_seq_length": 128, "sentences": "auto"} | changes
        manifest = build(build_settings(inputs, tmp_path / "data", **changes))
        tokenizer = Tokenizer.from_buffer(byte_level())
        tokenizer.no_truncation()
        rows = token_ids(tmp_path / "data")  # an example has a whole document
        for row in rows:  # the tokens are those of the whole text
            ids = tokenizer.encode(tokenizer.decode(row), add_special_tokens=False).ids
            assert ids == [each for each in row if each not in (CLS, SEP)]
        return {tokenizer.decode(row) for row in rows}, manifest

    return run


def test_indentation_tabs_and_line_ends_of_a_document_are_kept(build_texts):
    found, manifest = build_texts()
    assert found == {CODE, VERSE, "  cat\n the"}
    assert (manifest.layout, manifest.counts.num_documents_duplicate) == ("keep", 7)  # equal in all formats


def test_a_finished_set_of_another_layout_is_not_continued(build_texts):
    assert build_texts(layout="join")[0] > {"the cat the cat cat", "cat the"}
    with pytest.raises(UserError, match="another layout"):
        build_texts()


def test_a_layout_that_has_no_tokens_is_refused(build_texts, vocab_file):
    for changes in ({"sentences": "split"}, {"vocab_file": vocab_file}):
        with pytest.raises(UserError, match="layout=keep"):
            build_texts(layout="keep", **changes)
