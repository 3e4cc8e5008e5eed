import os
from collections import Counter
from itertools import chain
from random import Random

import numpy as np
import pytest
import tensorflow as tf

from data_prep.build import build
from data_prep.packs import packed_rows, packs
from electra_tf.data.manifest import Manifest
from electra_tf.data.records import parse_examples


def test_a_pack_leaves_out_a_sequence_with_which_it_cannot_be_filled():
    # 5 + 5 leaves 2, which no length fills; 5 + 4 leaves 3.
    assert list(packs([5, 5, 4, 3], 12)) == [[0, 2, 3], [1]]
    assert list(packs([7], 12)) == [[0]] and list(packs([], 12)) == []


@pytest.mark.parametrize(("shortest", "longest", "capacity", "most_padding"), [(38, 70, 512, 0.01), (5, 60, 128, 0.01)])
def test_packs_hold_every_sequence_once_and_little_padding(shortest, longest, capacity, most_padding):
    draw = Random(1).randint
    lengths = [draw(shortest, longest) for _ in range(2000)]
    packed = list(packs(lengths, capacity))
    assert sorted(chain(*packed)) == list(range(2000))
    assert max(sum(lengths[index] for index in pack) for pack in packed) <= capacity
    assert sum(lengths) / (len(packed) * capacity) > 1 - most_padding


def test_a_packed_row_has_two_segment_lengths_for_each_sequence():
    rows = [(np.array([2, 7, 3, 8, 3]), [3, 2]), (np.array([2, 9, 3]), [3])]
    ((token_ids, segment_lengths),) = packed_rows(rows, 8)
    assert token_ids.tolist() == [2, 7, 3, 8, 3, 2, 9, 3]
    assert segment_lengths == [3, 2, 3, 0]


@pytest.fixture(scope="module")
def make_settings(tmp_path_factory, one_word_documents, build_settings):
    directory = tmp_path_factory.mktemp("built")
    (directory / "a.txt").write_text("\n\n".join(one_word_documents(40)))
    return lambda name, rule: build_settings([f"text:{directory}/a.txt"], directory / name, examples=rule)


@pytest.fixture(scope="module")
def packed(make_settings) -> Manifest:
    return build(make_settings("pack", "pack"))


def sequences(data_dir, split: str, is_packed: bool = False) -> Counter:
    """How often each sequence occurs in a split: its ids and segments."""
    files = [os.path.join(data_dir, shard.file) for shard in Manifest.load(data_dir).splits[split].shards]
    records = tf.constant(list(tf.data.TFRecordDataset(files).as_numpy_iterator()))
    batch = parse_examples(records, 16, is_packed)
    ids, mask, segments = (batch[name].numpy() for name in ("input_ids", "input_mask", "segment_ids"))
    positions = batch.get("position_ids", np.arange(16) * mask)
    begins = np.argwhere((np.asarray(positions) == 0) & (mask == 1)).tolist()
    found = Counter()
    for (row, begin), (next_row, end) in zip(begins, [*begins[1:], [-1, 0]], strict=True):
        real = slice(begin, end if next_row == row else mask[row].sum())
        found[(*ids[row, real].tolist(), *segments[row, real].tolist())] += 1
    return found


def test_packing_changes_neither_sequences_nor_splits_and_leaves_fewer_examples(packed, make_settings):
    carried = build(make_settings("carry", "carry"))
    assert packed.counts == carried.counts and packed.token_counts == carried.token_counts
    for split in ("train", "held_out"):
        expected = sequences(make_settings("carry", "carry").output_dir, split)
        assert sequences(make_settings("pack", "pack").output_dir, split, is_packed=True) == expected
        assert packed.splits[split].num_tokens == carried.splits[split].num_tokens
        assert packed.splits[split].num_examples < carried.splits[split].num_examples


def test_packs_do_not_depend_on_the_units_of_work(packed, make_settings, contents, monkeypatch):
    monkeypatch.setattr("data_prep.inputs._MIN_UNIT_BYTES", 64)
    build(make_settings("many", "pack"))
    assert contents(make_settings("many", "pack").output_dir) == contents(make_settings("pack", "pack").output_dir)
