"""The files that GLUE's site takes."""

import zipfile

import pytest

from electra_tf.config.errors import UserError
from electra_tf.tasks.finetune.glue import GLUE_TASKS
from electra_tf.tasks.finetune.submission import RowPredictions, write_submission

FILES = ["CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX"]


def predictions_of(value: str | float, *keys: tuple[str, str]) -> dict[tuple[str, str], RowPredictions]:
    return {key: RowPredictions(["0", "1"], [value, value]) for key in keys}


def test_all_eleven_files_are_written_and_zipped(tmp_path):
    keys = [(task.name, split) for task in GLUE_TASKS.values() for split in task.leaderboard]
    write_submission(tmp_path / "new", predictions_of("1", *keys))
    with zipfile.ZipFile(tmp_path / "new" / "submission.zip") as archive:
        assert sorted(archive.namelist()) == sorted(f"{name}.tsv" for name in FILES)
        for name in archive.namelist():
            assert archive.read(name) == (tmp_path / "new" / name).read_bytes()


def test_labels_are_written_as_they_are_and_numbers_with_three_decimals_in_the_range(tmp_path):
    numbers = {("stsb", "test"): RowPredictions(["0", "1", "2"], [-0.5, "2.34567", 5.2])}
    write_submission(tmp_path, numbers | predictions_of("not_entailment", ("qnli", "test")))
    assert (tmp_path / "STS-B.tsv").read_text() == "index\tprediction\n0\t0.000\n1\t2.346\n2\t5.000\n"
    assert (tmp_path / "QNLI.tsv").read_text() == "index\tprediction\n0\tnot_entailment\n1\tnot_entailment\n"


def test_wnli_is_its_majority_unless_predictions_are_wanted(tmp_path):
    write_submission(tmp_path, {})
    assert (tmp_path / "WNLI.tsv").read_text().splitlines()[1:] == [f"{row}\t0" for row in range(146)]
    write_submission(tmp_path, predictions_of("1", ("wnli", "test")))
    assert (tmp_path / "WNLI.tsv").read_text() == "index\tprediction\n0\t0\n1\t0\n"
    write_submission(tmp_path, predictions_of("1", ("wnli", "test")), wnli="predictions")
    assert (tmp_path / "WNLI.tsv").read_text() == "index\tprediction\n0\t1\n1\t1\n"


def test_what_the_site_would_refuse_is_said(tmp_path):
    remarks = write_submission(tmp_path, predictions_of("1", ("cola", "test")))
    assert remarks[0] == "CoLA.tsv has 2 rows, the site's test set 1063"
    assert "missing: SST-2.tsv, MRPC.tsv" in remarks[1] and "WNLI" not in remarks[1]


def test_equal_predictions_give_equal_bytes(tmp_path):
    for name in ("a", "b"):
        write_submission(tmp_path / name, predictions_of("1", ("cola", "test")))
    assert (tmp_path / "a" / "submission.zip").read_bytes() == (tmp_path / "b" / "submission.zip").read_bytes()


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the submission"):
        write_submission(tmp_path / "file" / "new", {})
