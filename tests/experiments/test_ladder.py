"""The ladder's numbers: its page has what its records give."""

import pytest

from experiments.processes import PROJECT
from experiments.replication.ladder import Rung, read_rungs, report, slope
from tests.markdown import cells


def test_the_page_has_the_rows_of_the_records(capsys):
    report(None)
    rows = cells(capsys.readouterr().out.split("stsb")[0])[1:]
    assert len(rows) == len(read_rungs("truecasing")) >= 3
    page = [row[:6] for row in cells((PROJECT / "docs/notes/replication.md").read_text())]
    assert all(row in page for row in rows)


def test_the_slope_is_the_change_of_the_gap_per_tenfold_flops():
    # Gaps of 1 and 4 points a hundredfold apart; the runs of an arm differ by 2 in each rung.
    rungs = [Rung(10, 1e3, ([5.0, 7.0], [4.0, 6.0])), Rung(90, 1e5, ([9.0, 11.0], [5.0, 7.0]))]
    value, low, high = slope(rungs)
    assert value == pytest.approx(1.5)
    # Residuals of 1 in 8 runs and 4 coefficients: s = sqrt(2), its error sqrt(2) / sqrt(2), t of 4 at 95 % 2.776.
    assert (high - low) / 2 == pytest.approx(2.776, abs=1e-3)
