import math

from data_prep.identity import document_digest, is_held_out, random_source, sort_key


def digests(number: int) -> list[bytes]:
    return [document_digest(1, input_index=0, name="a.txt", offset=offset) for offset in range(number)]


def test_the_hash_is_the_same_on_every_machine_and_in_every_version():
    digest = document_digest(7, input_index=1, name="AA/wiki_00", offset=12)
    assert digest.hex() == "cdde0adbc61ccd4fc555fe6a5d22f8296e65e6394243bcf7ffecaeffb5e13585"
    assert sort_key(digest, 3) == 10840726283396720827
    assert random_source(digest).random() == 0.006938724390000983


def test_every_part_of_the_identity_counts():
    identities = [(1, 0, "a", 0), (2, 0, "a", 0), (1, 1, "a", 0), (1, 0, "b", 0), (1, 0, "a", 5), (1, 0, "a\0005", 0)]
    assert len({document_digest(*identity) for identity in identities}) == len(identities)


def test_the_held_out_part_has_the_size_asked_for():
    number, fraction = 20_000, 0.3
    held_out = sum(is_held_out(digest, fraction) for digest in digests(number))
    assert abs(held_out - number * fraction) < 4 * math.sqrt(number * fraction * (1 - fraction))


def test_a_fraction_of_zero_holds_out_nothing():
    assert not any(is_held_out(digest, 0.0) for digest in digests(1000))


def test_a_document_held_out_stays_so_when_the_fraction_grows():
    assert all(is_held_out(digest, 0.4) for digest in digests(1000) if is_held_out(digest, 0.1))


def test_sort_keys_are_uniform():
    number = 20_000
    keys = [sort_key(digest, example) / 2**64 for digest in digests(100) for example in range(number // 100)]
    deciles = [0] * 10
    for key in keys:
        deciles[int(10 * key)] += 1
    assert max(abs(count - number / 10) for count in deciles) < 4 * math.sqrt(number * 0.1 * 0.9)
