"""The input pipeline's benchmark on a data set of twelve examples."""

import pytest

from benchmarks import input_pipeline
from tests.markdown import cells

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("floor", "status"), [("0", 0), ("1e12", 1)])
def test_the_rates_are_reported_and_compared_with_the_floor(write_data, tmp_path, capsys, floor, status):
    flags = [f"--data_dir={write_data(tmp_path / 'set')}", "--batch_size=5", "--rounds=3", "--seconds=0.05"]
    assert input_pipeline.main([*flags, f"--at_least={floor}"]) == status
    printed = capsys.readouterr().out
    assert "12 examples of length 10\n" in printed and "plain_records" in [row[0] for row in cells(printed)]
    assert ("FAIL  ours" in printed) == bool(status)
