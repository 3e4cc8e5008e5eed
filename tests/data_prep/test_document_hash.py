import math
from itertools import islice

from data_prep.examples import document_hash, is_held_out, random_source, sort_keys


def digests(number: int) -> list[bytes]:
    return [document_hash(1, [f"line {i}"]) for i in range(number)]


def test_the_hash_and_its_random_numbers_are_the_same_on_every_machine():
    digest = document_hash(7, ["Call me Ishmael.", "Some years ago"])
    assert digest.hex() == "8ff7fca984a10f7d9b73f2c2d60e0726b99c392963af2abd2cc6ec3e1170b7a7"
    assert next(islice(sort_keys(digest), 3, None)) == 11582495026702889541
    assert random_source(digest).random() == 0.20811144386162106


def test_the_hash_depends_on_the_seed_and_on_every_line():
    hashed = [(1, ["a", "b"]), (2, ["a", "b"]), (1, ["a"]), (1, ["b", "a"]), (1, ["ab"]), (1, ["a b"]), (11, [])]
    assert len({document_hash(seed, lines) for seed, lines in hashed}) == len(hashed)


def test_the_held_out_part_has_the_requested_size():
    number, fraction = 5_000, 0.3
    held_out = sum(is_held_out(digest, fraction) for digest in digests(number))
    assert abs(held_out - number * fraction) < 4 * math.sqrt(number * fraction * (1 - fraction))


def test_a_greater_held_out_fraction_holds_out_the_same_documents_and_more():
    assert not any(is_held_out(digest, 0.0) for digest in digests(1000))
    assert all(is_held_out(digest, 0.4) for digest in digests(1000) if is_held_out(digest, 0.1))


def test_sort_keys_are_uniform():
    number = 5_000
    keys = [key / 2**64 for digest in digests(100) for key in islice(sort_keys(digest), number // 100)]
    deciles = [0] * 10
    for key in keys:
        deciles[int(10 * key)] += 1
    assert max(abs(count - number / 10) for count in deciles) < 4 * math.sqrt(number * 0.1 * 0.9)
