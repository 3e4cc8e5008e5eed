import random
from itertools import accumulate, islice, permutations
from types import SimpleNamespace

import numpy as np
import pytest

from data_prep.example_batch import ENTRY, ExampleBatch, positions, token_dtype
from data_prep.examples import cut_documents, sort_keys

# (key, token ids of A, of B) of examples; 2 is [CLS], 3 [SEP].
NINE = (9, [2, 5, 6, 3], [7, 3])
FOUR = (4, [2, 8, 3], [])
OTHER_FOUR = (4, [2, 4, 9, 3], [9, 9, 3])
MOVED_BORDER = (4, [2, 4, 9, 3, 9, 9, 3], [])


def batch(*examples) -> ExampleBatch:
    ends = accumulate((len(a + b) for _, a, b in examples), initial=0)
    entries = [(key, begin, len(a + b), len(a), False) for (key, a, b), begin in zip(examples, ends, strict=False)]
    token_ids = [token_id for _, a, b in examples for token_id in a + b]
    return ExampleBatch(np.array(entries, ENTRY), np.array(token_ids, np.uint8))


def contents(examples: ExampleBatch) -> list:
    """Key, token ids of A and token ids of B of each example."""
    rows = [(row.tolist(), lengths) for row, lengths in examples.rows()]
    segments = [(row[: lengths[0]], row[lengths[0] : sum(lengths)]) for row, lengths in rows]
    return [(key, *of_example) for key, of_example in zip(examples.entries["key"].tolist(), segments, strict=True)]


def test_a_batch_keeps_the_segments_of_its_examples():
    assert contents(batch(NINE, FOUR)) == [NINE, FOUR]
    assert [lengths for _, lengths in batch(NINE, FOUR).rows()] == [[4, 2], [3]]


def test_joined_batches_have_the_examples_of_all():
    joined = ExampleBatch.joined([batch(NINE), batch(FOUR, OTHER_FOUR)])
    assert contents(joined) == [NINE, FOUR, OTHER_FOUR]
    assert contents(ExampleBatch.joined([joined, batch(NINE)])) == [NINE, FOUR, OTHER_FOUR, NINE]
    assert contents(ExampleBatch.joined([]).sorted().without_copies().compact()) == []


def test_a_compact_batch_has_the_tokens_of_its_examples_alone():
    examples = batch(NINE, FOUR, OTHER_FOUR).taken(np.array([2, 0])).compact()
    assert contents(examples) == [OTHER_FOUR, NINE]
    assert examples.token_ids.tolist() == [2, 4, 9, 3, 9, 9, 3, 2, 5, 6, 3, 7, 3]


@pytest.mark.parametrize("order", permutations([NINE, FOUR, OTHER_FOUR, MOVED_BORDER]))
def test_examples_are_sorted_by_key_and_those_of_equal_keys_do_not_depend_on_their_order(order):
    examples = batch(*order).sorted()
    assert contents(examples) == [FOUR, MOVED_BORDER, OTHER_FOUR, NINE]
    assert contents(examples.without_copies()) == contents(examples)


def test_keys_beyond_the_signed_range_are_the_last():
    high = (2**63 + 1, [2, 3], [])
    assert contents(batch(high, NINE, FOUR).sorted()) == [FOUR, NINE, high]


def test_one_of_equal_examples_is_kept():
    examples = batch(OTHER_FOUR, NINE, MOVED_BORDER, OTHER_FOUR, NINE, NINE).sorted()
    assert contents(examples.without_copies()) == [MOVED_BORDER, OTHER_FOUR, NINE]


def test_text_tokens_are_those_without_cls_and_sep():
    examples = batch(NINE, FOUR, OTHER_FOUR)
    assert (examples.num_tokens, examples.num_text_tokens) == (16, 3 + 1 + 4)
    assert (examples.taken(np.array([1])).num_tokens, examples.taken(np.array([1])).num_text_tokens) == (3, 1)


def test_the_tokens_of_the_examples_are_counted(monkeypatch):
    monkeypatch.setattr("data_prep.example_batch._EXAMPLES_PER_COUNT", 2)
    examples = batch(NINE, OTHER_FOUR, FOUR, FOUR).taken(np.array([2, 3, 0]))
    assert examples.token_counts(10).tolist() == [0, 0, 3, 4, 0, 1, 1, 1, 2, 0]


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(256, np.uint8), (257, np.uint16), (2**16, np.uint16), (2**16 + 1, np.uint32)]
)
def test_token_ids_have_the_smallest_type(vocab_size, dtype):
    assert token_dtype(vocab_size) == dtype


def test_positions_are_those_of_the_ranges_in_their_order():
    assert positions(np.array([7, 0, 3]), np.array([2, 0, 3])).tolist() == [7, 8, 3, 4, 5]
    assert positions(np.zeros(0, int), np.zeros(0, int)).tolist() == []


def test_documents_are_cut_where_the_rule_says():
    def split_document(row_splits, max_seq_length, random_source):
        assert max_seq_length == 11 and isinstance(random_source, random.Random)
        begin, *_, end = row_splits
        # A of two ranges, which need not be adjacent; then an example without B.
        return [([(begin, begin + 1), (begin + 2, begin + 3)], [(begin + 1, begin + 2)]), ([(begin + 3, end)], [])]

    digests = [bytes(range(32)), bytes(range(1, 33))]
    documents = [(digests[0], [0, 2, 5]), (digests[1], [5, 9])]
    vocabulary = SimpleNamespace(size=300, cls_id=290, sep_id=291)
    token_ids = np.array([10, 11, 12, 13, 14, 20, 21, 22, 23], np.int32)
    examples = cut_documents(documents, token_ids, split_document, 11, vocabulary)
    keys = [key for digest in digests for key in islice(sort_keys(digest), 2)]
    assert contents(examples) == [
        (keys[0], [290, 10, 12, 291], [11, 291]),
        (keys[1], [290, 13, 14, 291], []),
        (keys[2], [290, 20, 22, 291], [21, 291]),
        (keys[3], [290, 23, 291], []),
    ]
    assert examples.entries["is_first"].tolist() == [True, False, True, False]
