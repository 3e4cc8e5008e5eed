"""The files for GLUE's site."""

import io
import zipfile

from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS
from electra_tf.tasks.finetune.predict import ZIP_FILE, submission_files

FILES = ["CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX"]


def predictions_of(value: str, *keys: tuple[str, str]) -> dict[tuple[str, str], list[tuple[str, str]]]:
    return {key: [("0", value), ("1", value)] for key in keys}


def test_a_submission_has_eleven_files_and_a_zip_of_them():
    keys = [(task.name, split) for task in GLUE_TASKS.values() for split in task.leaderboard]
    files = submission_files(predictions_of("1", *keys))
    with zipfile.ZipFile(io.BytesIO(files.pop(ZIP_FILE))) as archive:
        assert sorted(files) == sorted(archive.namelist()) == sorted(f"{name}.tsv" for name in FILES)
        assert all(archive.read(name) == content for name, content in files.items())


def test_labels_are_unchanged_and_numbers_have_three_decimals_within_the_range():
    numbers = {("stsb", "test"): [("0", "-0.5"), ("1", "2.34567"), ("2", "5.2")]}
    files = submission_files(numbers | predictions_of("not_entailment", ("qnli", "test")))
    assert files["STS-B.tsv"] == b"index\tprediction\n0\t0.000\n1\t2.346\n2\t5.000\n"
    assert files["QNLI.tsv"] == b"index\tprediction\n0\tnot_entailment\n1\tnot_entailment\n"


def test_wnli_has_its_majority_label_with_or_without_predictions():
    assert submission_files({})["WNLI.tsv"].decode().splitlines()[1:] == [f"{row}\t0" for row in range(146)]
    assert submission_files(predictions_of("1", ("wnli", "test")))["WNLI.tsv"] == b"index\tprediction\n0\t0\n1\t0\n"


def test_a_warning_names_the_files_that_the_site_would_refuse(caplog):
    submission_files(predictions_of("1", ("cola", "test")))
    assert "CoLA.tsv has 2 rows, the site's test set has 1063" in caplog.text
    assert "missing: SST-2.tsv, MRPC.tsv" in caplog.text and "WNLI" not in caplog.text
