import math
import random
from itertools import islice
from types import SimpleNamespace

import numpy as np

from data_prep.examples import cut_documents, document_hash, is_held_out, place_of, random_source, sort_keys


def test_the_hash_and_its_random_numbers_are_the_same_on_every_machine():
    digest = document_hash(7, ["Call me Ishmael.", "Some years ago"])
    assert digest.hex() == "8ff7fca984a10f7d9b73f2c2d60e0726b99c392963af2abd2cc6ec3e1170b7a7"
    assert next(islice(sort_keys(digest), 3, None)) == 11582495026702889541
    assert random_source(digest).random() == 0.20811144386162106


def test_the_held_out_part_has_the_requested_size_and_a_greater_one_has_the_same_documents_and_more():
    number, fraction = 5_000, 0.3
    digests = [document_hash(1, [f"line {i}"]) for i in range(number)]
    held_out = sum(is_held_out(digest, fraction) for digest in digests)
    assert abs(held_out - number * fraction) < 4 * math.sqrt(number * fraction * (1 - fraction))
    assert not any(is_held_out(digest, 0.0) for digest in digests)
    assert all(is_held_out(digest, 0.4) for digest in digests if is_held_out(digest, 0.1))


def test_documents_are_cut_where_the_rule_says():
    def cut_document(row_splits, max_seq_length, random_source):
        assert max_seq_length == 11 and isinstance(random_source, random.Random)
        begin, *_, end = row_splits
        # A of two ranges, which need not be adjacent; then an example without B.
        return [([(begin, begin + 1), (begin + 2, begin + 3)], [(begin + 1, begin + 2)]), ([(begin + 3, end)], [])]

    digests = [bytes(range(32)), bytes(range(1, 33))]
    documents = [(digests[0], [0, 2, 5], True), (digests[1], [5, 9], False)]
    vocabulary = SimpleNamespace(size=300, cls_id=290, sep_id=291)
    token_ids = np.array([10, 11, 12, 13, 14, 20, 21, 22, 23], np.int32)
    examples = cut_documents(documents, token_ids, cut_document, 11, vocabulary)
    keys = [key for digest in digests for key in islice(sort_keys(digest), 2)]
    assert examples.entries["key"].tolist() == keys
    assert [(row.tolist(), lengths) for row, lengths in examples.rows()] == [
        ([290, 10, 12, 291, 11, 291], [4, 2]),
        ([290, 13, 14, 291], [4]),
        ([290, 20, 22, 291, 21, 291], [4, 2]),
        ([290, 23, 291], [3]),
    ]
    assert examples.entries["is_first"].tolist() == [True, False, True, False]
    split, whole = (place_of(digest) // 2 * 2 for digest in digests)
    assert examples.entries["document"].tolist() == [split + 1, split + 1, whole, whole]
