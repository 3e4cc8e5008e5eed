"""The input pipeline's benchmark on a data set of twelve examples."""

import json

import pytest

from benchmarks import input_pipeline

pytestmark = pytest.mark.slow


def run(data_dir, *flags: str) -> int:
    return input_pipeline.main([f"--data_dir={data_dir}", "--batch_size=5", "--rounds=3", "--seconds=0.05", *flags])


@pytest.mark.parametrize(("floor", "status"), [("0", 0), ("1e12", 1)])
def test_the_rates_are_reported_and_compared_with_the_floor(write_data, tmp_path, capsys, floor, status):
    assert run(write_data(tmp_path / "set"), f"--at_least={floor}") == status
    report = json.loads(capsys.readouterr().out)
    assert report["sequences_per_second"].keys() == {"ours", "plain_records"}
    for name, (lowest, highest) in report["lowest_and_highest"].items():
        assert 0 < lowest <= report["sequences_per_second"][name] <= highest
    assert report["ratio_to_plain_records"] > 0
    assert (report["num_examples"], report["max_seq_length"], report["batch_size"]) == (12, 10, 5)
