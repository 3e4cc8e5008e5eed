import shutil
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import MaskingConfig
from electra_tf.data.corpus import open_data
from electra_tf.data.manifest import MANIFEST_FILE, Manifest
from electra_tf.data.mixture import PERIOD, open_mixture, rounded_shares, source_names, source_order, weights_of
from electra_tf.data.pretraining_input import (
    evaluation_batches,
    mixed_records,
    num_evaluation_batches,
    shuffled_records,
)
from electra_tf.data.records import ExampleSerializer

MASKING = MaskingConfig(masked_fraction=0.3)


def change_manifest(directory, **changes) -> None:
    changed = Manifest.load(directory).model_copy(update=changes)
    (directory / MANIFEST_FILE).write_text(changed.to_json(), encoding="utf-8")


@pytest.fixture(scope="module")
def directories(tmp_path_factory, write_data) -> list:
    """Two data sets of 12 and 7 training examples, 7 and 5 held-out ones."""
    root = tmp_path_factory.mktemp("data")
    wiki, books = write_data(root / "wiki"), write_data(root / "books", train=(4, 3), held_out=(5,))
    return [wiki, books]


@pytest.fixture(scope="module")
def data(directories, tiny_config):
    wiki, books = directories
    return open_mixture(f"{wiki}:0.7,{books}:0.3", tiny_config())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("wiki:0.7,books:0.3", [("wiki", 0.7), ("books", 0.3)]),
        ("gs://a/x:2,gs://b/y:.5,C:/z:1.", [("gs://a/x", 2.0), ("gs://b/y", 0.5), ("C:/z", 1.0)]),
        ("one,two:1,b:3", [("one,two", 1.0), ("b", 3.0)]),
        ("run:3", [("run:3", 1.0)]),
        ("wiki:0.7,books", [("wiki:0.7,books", 1.0)]),
    ],
)
def test_a_mixture_is_written_as_directories_with_weights_and_any_other_text_is_a_directory(text, expected):
    assert weights_of(text) == expected


def test_weights_are_normalised_and_rounded_to_a_sum_of_1():
    assert rounded_shares([("a", 70), ("b", 30)]) == [0.7, 0.3]
    assert rounded_shares([("a", 1), ("b", 1), ("c", 1)]) == [0.3333, 0.3334, 0.3333]


@pytest.mark.parametrize("weight", [0.0, -0.5, 0.00001])
def test_a_weight_that_gives_no_example_is_refused(weight):
    with pytest.raises(UserError, match="b has weight"):
        rounded_shares([("a", 1.0), ("b", weight), ("c", 1.0)])


def test_names_are_the_last_parts_of_the_paths_that_differ():
    assert source_names(["data/wiki/", "gs://bucket/books"]) == ["wiki", "books"]
    assert source_names(["/data/en/wiki", "/data/de/wiki"]) == ["en/wiki", "de/wiki"]
    with pytest.raises(UserError, match="twice"):
        source_names(["wiki", "wiki/"])


def test_sources_are_evenly_spread():
    # Due after (i + 0.5) / 0.7 = 0.7, 2.1, 3.6, 5, 6.4, 7.9, 9.3 and (i + 0.5) / 0.3 = 1.7, 5, 8.3.
    assert source_order([0.7, 0.3])[:10].tolist() == [0, 1, 0, 0, 0, 1, 0, 0, 1, 0]
    shares = [0.61, 0.05, 0.34]
    order = source_order(shares)
    for source, share in enumerate(shares):
        first = np.cumsum(order == source) - share * np.arange(1, PERIOD + 1)
        assert np.abs(first).max() <= 2 and first[-1] == pytest.approx(0, abs=1e-8)


def test_from_any_example_on_each_source_has_its_share_in_its_own_order(data):
    first, order = 3 * PERIOD - 4, source_order([0.7, 0.3])
    before = Counter(order[np.arange(first) % PERIOD].tolist())
    alone = [
        iter(shuffled_records(each.train, 3, before[i]).as_numpy_iterator()) for i, each in enumerate(data.sources)
    ]
    expected = [next(alone[order[n % PERIOD]]) for n in range(first, first + 40)]
    assert list(mixed_records(data.sources, 3, first).take(40).as_numpy_iterator()) == expected


def test_held_out_splits_are_read_one_after_the_other_with_the_masks_of_each_alone(data, directories, tiny_config):
    def read(opened) -> list[dict[str, np.ndarray]]:
        settings = {"seed": 3, "batch_size": 4, "max_batches": 2}
        return list(evaluation_batches(opened, MASKING, **settings).as_numpy_iterator())

    mixed, alone = read(data), read(open_data(directories[1], tiny_config()))
    assert [num_evaluation_batches(source, 4, 2) for source in data.sources] == [2, 2] and len(mixed) == 4
    for one, other in zip(mixed[2:], alone, strict=True):
        for name in one.keys() - {"unigram_losses"}:
            np.testing.assert_array_equal(one[name], other[name])


def test_token_counts_are_those_of_the_shares(data):
    wiki, books = (source.token_counts for source in data.sources)
    # 19 examples in all, of which wiki has 12 and books 7.
    expected = 19 * (0.7 * wiki / 12 + 0.3 * books / 7)
    np.testing.assert_array_equal(data.token_counts, np.rint(expected))
    assert data.token_counts[2] == 19  # each example has one [CLS]


def test_one_directory_is_a_mixture_of_one(directories, tiny_config):
    wiki, config = directories[0], tiny_config()
    for value in (wiki, {wiki: 5}):
        opened = open_mixture(value, config)
        assert opened.data_hash == open_data(wiki, config).data_hash and opened.sources == (opened,)


def test_the_hash_is_that_of_the_data_and_the_shares(data, directories, tiny_config, tmp_path):
    wiki, books = directories

    def data_hash(*weights: float, first=wiki) -> str:
        return open_mixture(dict(zip((first, books), weights, strict=True)), tiny_config()).data_hash

    copy = shutil.copytree(wiki, tmp_path / "copy")
    assert data_hash(70, 30) == data_hash(0.7, 0.3, first=copy) == data.data_hash != data_hash(0.69, 0.31)


def test_a_mixture_has_the_hold_out_settings_that_its_sources_share(directories, tiny_config, tmp_path):
    wiki, other = directories[0], shutil.copytree(directories[1], tmp_path / "other")
    change_manifest(other, held_out_fraction=0.1)
    opened = open_mixture({wiki: 1, other: 1}, tiny_config())
    assert opened.hold_out.items() < open_data(wiki, tiny_config()).hold_out.items()
    assert "seed" in opened.hold_out and "held_out_fraction" not in opened.hold_out


def test_sources_with_different_text_settings_are_refused(directories, tiny_config, tmp_path):
    other = shutil.copytree(directories[1], tmp_path / "other")
    change_manifest(other, lower_case=False)
    with pytest.raises(UserError, match=f"{directories[0]}, {other} have different vocabularies or text settings"):
        open_mixture({directories[0]: 1, other: 1}, tiny_config())


def test_an_entry_without_a_weight_is_not_a_directory(tiny_config):
    with pytest.raises(UserError, match="data_dir=wiki:0.7,books holds no .*; a mixture is DIR:WEIGHT,DIR:WEIGHT"):
        open_mixture("wiki:0.7,books", tiny_config())


def test_an_unknown_id_names_the_data_sets(directories, tiny_config, tmp_path):
    data = open_mixture(dict.fromkeys(directories, 1), tiny_config())
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{directories[0]}, {directories[1]}: a token id"):
        data.train.parse(tf.constant([ExampleSerializer()((2, 47, 3), [3])]))
