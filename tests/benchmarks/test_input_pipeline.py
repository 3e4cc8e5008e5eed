import json

import pytest

from benchmarks import input_pipeline


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory, write_data):
    return write_data(tmp_path_factory.mktemp("data") / "set")


def run(data_dir, *flags: str) -> int:
    return input_pipeline.main([f"--data_dir={data_dir}", "--batch_size=5", "--rounds=3", "--seconds=0.05", *flags])


def test_the_rates_of_ours_and_of_bare_reading_are_reported(data_dir, capsys):
    assert run(data_dir) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["sequences_per_second"].keys() == {"ours", "bare_records"}
    for name, (lowest, highest) in report["lowest_and_highest"].items():
        assert 0 < lowest <= report["sequences_per_second"][name] <= highest
    assert report["ratio_to_bare_records"] > 0
    assert (report["num_examples"], report["max_seq_length"], report["batch_size"]) == (12, 10, 5)


def test_a_rate_below_the_floor_fails(data_dir, capsys):
    assert run(data_dir, "--at_least=1e12") == 1
    assert json.loads(capsys.readouterr().out)["at_least"] == 1e12


def test_a_directory_without_data_is_refused_in_one_line(tmp_path, capsys):
    assert run(tmp_path) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1 and errors[0].startswith("error:") and str(tmp_path) in errors[0]
