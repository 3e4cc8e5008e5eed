"""How the authors' code reads tags, which the comparison with it needs."""

import pytest

from benchmarks.finetuning_parity.text import _as_they_read, _has_one_reading


@pytest.mark.parametrize(
    ("tags", "read"),
    [
        ("B-A I-A O S-B", "B-A I-A O B-B"),
        ("I-A I-B", "B-B I-B"),  # the last type names the span
        ("B-A E-A I-A", "B-A I-A I-A"),  # E does not end it
        ("I-A B-A", "B-A B-A"),
        ("E-A S-A E-B", "B-A B-B I-B"),
    ],
)
def test_tags_as_the_authors_read_them(tags, read):
    assert _as_they_read(tags.split()) == read.split()


@pytest.mark.parametrize(
    ("tags", "has_one_reading"),
    [("B-A I-A E-A O I-B", True), ("I-A I-B", False), ("E-A I-A", False), ("S-A E-A", False)],
)
def test_tags_that_have_one_reading(tags, has_one_reading):
    assert _has_one_reading(tags.split()) == has_one_reading
