"""The zip for GLUE's site: its files, labels and numbers."""

import importlib.util
import zipfile
from pathlib import Path

import pytest

_PATH = Path(__file__).resolve().parents[2] / "examples" / "glue_submission.py"
_SPEC = importlib.util.spec_from_file_location("glue_submission", _PATH)
example = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(example)

FILES = ["CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX"]


@pytest.fixture
def zipped(tmp_path):
    """`zipped(predictions)`: the text of each file in the zip."""

    def write(predictions: dict) -> dict[str, str]:
        example.write_zip(tmp_path / "submission.zip", predictions)
        with zipfile.ZipFile(tmp_path / "submission.zip") as archive:
            return {name: archive.read(name).decode() for name in archive.namelist()}

    return write


def test_the_zip_has_eleven_files_with_the_sites_labels_and_numbers(zipped, caplog):
    names = dict.fromkeys(example.FILES, [("0", "neutral")])
    labels = {"CoLA": [("4", "acceptable"), ("5", "unacceptable")], "QNLI": [("0", "not_entailment")]}
    numbers = {"STS-B": [("0", "-0.5"), ("1", "2.34567"), ("2", "5.2")]}
    files = zipped(names | labels | numbers)
    assert sorted(files) == sorted(f"{name}.tsv" for name in FILES)
    assert files["CoLA.tsv"] == "index\tprediction\n4\t1\n5\t0\n"
    assert files["QNLI.tsv"] == "index\tprediction\n0\tnot_entailment\n"
    assert files["STS-B.tsv"] == "index\tprediction\n0\t0.000\n1\t2.346\n2\t5.000\n"
    assert files["WNLI.tsv"].splitlines()[1:] == [f"{row}\t0" for row in range(146)]
    assert "CoLA.tsv has 2 rows, the site's test set has 1063" in caplog.text and "missing" not in caplog.text


def test_a_warning_names_the_missing_files(zipped, caplog):
    assert sorted(zipped({"RTE": []})) == ["RTE.tsv", "WNLI.tsv"]
    assert "missing: CoLA.tsv, SST-2.tsv, MRPC.tsv" in caplog.text and "WNLI" not in caplog.text
