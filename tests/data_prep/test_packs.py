from collections import Counter
from itertools import chain
from random import Random

import numpy as np
import pytest

from data_prep.build import build
from data_prep.packs import packs
from electra_tf.data.manifest import Manifest
from tests.data_prep.reading import contents, records


def test_a_pack_leaves_out_a_sequence_with_which_it_cannot_be_filled():
    # 5 + 5 leaves 2, which no length fills; 5 + 4 leaves 3.
    assert list(packs([5, 5, 4, 3], 12)) == [[0, 2, 3], [1]]
    assert list(packs([7], 12)) == [[0]] and list(packs([], 12)) == []


@pytest.mark.parametrize(("shortest", "longest", "capacity"), [(38, 70, 512), (5, 60, 128)])
def test_packs_hold_every_sequence_once_and_little_padding(shortest, longest, capacity):
    draw = Random(1).randint
    lengths = [draw(shortest, longest) for _ in range(2000)]
    packed = list(packs(lengths, capacity))
    assert sorted(chain(*packed)) == list(range(2000))
    assert max(sum(lengths[index] for index in pack) for pack in packed) <= capacity
    assert sum(lengths) / (len(packed) * capacity) > 0.99


def sequences(data_dir, split: str) -> Counter:
    """How often each sequence, cut into its segments, occurs in the examples of a split."""
    found = Counter()
    for ids, lengths in records(data_dir, split):
        segments = iter(np.split(ids, np.cumsum([*lengths, *[0] * (len(lengths) % 2)])[:-1]))
        found.update((*a.tolist(), "|", *b.tolist()) for a, b in zip(segments, segments, strict=True))
    return found


def test_packing_changes_no_sequence_and_no_split_and_no_unit_matters(data_dir, source_settings, tmp_path, monkeypatch):
    carried, packed = Manifest.load(data_dir), build(source_settings(tmp_path / "pack", examples="pack", num_shards=3))
    assert packed.counts == carried.counts and packed.token_counts == carried.token_counts
    for split in ("train", "held_out"):
        assert sequences(tmp_path / "pack", split) == sequences(data_dir, split)
        assert packed.splits[split].num_tokens == carried.splits[split].num_tokens
        assert packed.splits[split].num_examples < carried.splits[split].num_examples
    monkeypatch.setattr("data_prep.inputs._MIN_UNIT_BYTES", 64)
    build(source_settings(tmp_path / "many", examples="pack", num_shards=3))
    assert contents(tmp_path / "many") == contents(tmp_path / "pack")
