"""Parity of fine-tuning with the authors' code: which differences count. The sets are compared in test_parity.py."""

import numpy as np
import pytest

from benchmarks.parity.outputs import beam_differences
from benchmarks.parity.text import _as_they_read, _has_one_reading

# Two starts, the second of which is masked. The ends of the first, 7 and 6, have clearly different probabilities.
BEAM = {
    "start_top_log_probs": np.float32([[-0.5, -1000.0]]),
    "start_top_index": np.int32([[4, 0]]),
    "end_top_log_probs": np.float32([[[-0.1, -2.0], [-0.3, -1.4]]]),
    "end_top_index": np.int32([[[7, 6], [1, 2]]]),
}


def beam(**changes) -> dict[str, np.ndarray]:
    return {**BEAM, **{name: np.asarray(values, BEAM[name].dtype) for name, values in changes.items()}}


TIE = {"end_top_log_probs": [[[-0.70000, -0.70001], [-0.3, -1.4]]]}


@pytest.mark.parametrize(
    ("ours", "expected", "differing_ends"),
    [
        ({"end_top_index": [[[8, 6], [1, 2]]]}, {}, 1.0),
        ({"start_top_index": [[4, 3]], "end_top_index": [[[7, 6], [8, 9]]]}, {}, 0.0),  # masked on both sides
        ({**TIE, "end_top_index": [[[6, 7], [1, 2]]]}, TIE, 0.0),  # equally probable
    ],
)
def test_beam_entries_are_compared_if_they_are_not_masked_and_not_tied(ours, expected, differing_ends):
    differences, masked, entries = beam_differences(beam(**ours), beam(**expected))
    assert entries == {"start_top_index": 0.0, "end_top_index": differing_ends}
    assert set(differences.values()) == {0.0} and masked == {}


def test_a_position_that_only_one_side_masks_is_a_difference():
    differences, *_ = beam_differences(beam(start_top_log_probs=[[-0.5, -3.0]]), BEAM)
    assert differences["start_top_log_probs"] == np.inf


@pytest.mark.parametrize(
    ("tags", "read"),
    [
        ("B-A I-A O S-B", "B-A I-A O B-B"),
        ("I-A I-B", "B-B I-B"),  # a span has the type of its last tag
        ("B-A E-A I-A", "B-A I-A I-A"),  # E does not end a span
        ("I-A B-A", "B-A B-A"),
        ("E-A S-A E-B", "B-A B-B I-B"),
    ],
)
def test_tags_are_read_by_the_authors_rule(tags, read):
    assert _as_they_read(tags.split()) == read.split()


@pytest.mark.parametrize(
    ("tags", "has_one_reading"),
    [("B-A I-A E-A O I-B", True), ("I-A I-B", False), ("E-A I-A", False), ("S-A E-A", False)],
)
def test_ambiguous_tags_are_recognized(tags, has_one_reading):
    assert _has_one_reading(tags.split()) == has_one_reading
