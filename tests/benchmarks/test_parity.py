"""Parity with the authors' code, on a fixture and on the golden sets of ELECTRA_TF_GOLDEN_DIR."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks.parity import __main__ as parity
from benchmarks.parity.finetuning import beam_differences
from benchmarks.parity.golden import Comparison, GoldenSet, relative
from benchmarks.parity.pretraining import batch_of, build, forward_tensors, gradients
from tests.markdown import cells

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "parity"
GOLDEN = os.environ.get("ELECTRA_TF_GOLDEN_DIR")
# Two starts, the second of which is masked. The ends of the first, 7 and 6, have clearly different probabilities.
BEAM = {
    "start_top_log_probs": np.float32([[-0.5, -1000.0]]),
    "start_top_index": np.int32([[4, 0]]),
    "end_top_log_probs": np.float32([[[-0.1, -2.0], [-0.3, -1.4]]]),
    "end_top_index": np.int32([[[7, 6], [1, 2]]]),
}
TIE = {"end_top_log_probs": [[[-0.70000, -0.70001], [-0.3, -1.4]]]}


@pytest.fixture(scope="module")
def whole_set(tmp_path_factory) -> Path:
    """The fixture, whose losses are the authors', with the forward pass and the gradients of our own model."""
    directory = tmp_path_factory.mktemp("golden") / "set"
    shutil.copytree(FIXTURE, directory)
    golden = GoldenSet(directory)
    objective, batches = build(golden), golden.arrays("batches.npz")
    np.savez(directory / "forward.npz", **forward_tensors(objective, batch_of(batches, 0)))
    ours = gradients(objective, batches)
    global_norm = np.sqrt(sum(np.square(each, dtype=np.float64).sum() for each in ours.values()))
    np.savez(directory / "gradients.npz", **ours, global_norm=global_norm)
    return directory


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factors", "failing"),
    [
        ({}, []),
        (
            {"forward.npz": 1.001, "gradients.npz": np.nan, "trajectory.npz": 1.00001},
            ["set: forward", "set: gradients", "set: training: losses"],
        ),
    ],
)
def test_the_authors_numbers_are_repeated_and_a_difference_fails(whole_set, tmp_path, capsys, factors, failing):
    directory = tmp_path / "set"
    shutil.copytree(whole_set, directory)
    for file, factor in factors.items():
        arrays = GoldenSet(directory).arrays(file)
        np.savez(directory / file, **{name: values * np.float32(factor) for name, values in arrays.items()})
    assert parity.main([str(directory)]) == int(bool(failing))
    rows = cells(capsys.readouterr().out)[1:]
    assert [row[0] for row in rows] == ["set: forward", "set: gradients", "set: training: losses"]
    assert [row[0] for row in rows if row[3] == "FAIL"] == failing


@pytest.mark.slow
@pytest.mark.skipif(not GOLDEN, reason="ELECTRA_TF_GOLDEN_DIR is not set")
def test_all_golden_sets_are_reproduced(capsys):
    """The command of figures (a) and (b) of the README."""
    assert parity.main([GOLDEN]) == 0
    assert "FAIL" not in capsys.readouterr().out


def test_nan_is_the_largest_difference_and_fails():
    assert Comparison("x", {"a": 1e-9, "b": float("nan"), "c": 5.0}, 1.0).largest() == ("b", float("inf"))


def test_a_difference_is_relative_to_its_array_or_to_the_largest_where_that_is_rounding_noise():
    expected = {"a": np.float32([3.0, 4.0]), "b": np.float32([0.0, 0.5]), "noise": np.float32([1e-9, 0.0])}
    ours = {"a": np.float32([3.0, 4.5]), "b": np.float32([0.0, 0.25]), "noise": np.float32([0.0, 0.0])}
    assert relative(ours, expected, np.linalg.norm) == pytest.approx({"a": 0.1, "b": 0.5, "noise": 2e-10})


@pytest.mark.parametrize(
    ("ours", "expected", "differing_ends"),
    [
        ({"end_top_index": [[[8, 6], [1, 2]]]}, {}, 1.0),
        ({"start_top_index": [[4, 3]], "end_top_index": [[[7, 6], [8, 9]]]}, {}, 0.0),  # masked on both sides
        ({**TIE, "end_top_index": [[[6, 7], [1, 2]]]}, TIE, 0.0),  # equally probable
    ],
)
def test_beam_entries_are_compared_if_they_are_not_masked_and_not_tied(ours, expected, differing_ends):
    ours, expected = (
        {**BEAM, **{name: np.asarray(values, BEAM[name].dtype) for name, values in changes.items()}}
        for changes in (ours, expected)
    )
    differences, masked, entries = beam_differences(ours, expected)
    assert entries == {"start_top_index": 0.0, "end_top_index": differing_ends}
    assert set(differences.values()) == {0.0} and masked == {}


def test_a_position_that_only_one_side_masks_is_a_difference():
    differences, *_ = beam_differences({**BEAM, "start_top_log_probs": np.float32([[-0.5, -3.0]])}, BEAM)
    assert differences["start_top_log_probs"] == np.inf
