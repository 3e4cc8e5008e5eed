"""examples/detect_replaced_tokens.py, and the zip for GLUE's site of examples/glue_submission.py."""

import importlib.util
import zipfile
from pathlib import Path

import pytest
import tensorflow as tf


def program(name: str):
    path = Path(__file__).resolve().parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


detection, submission = program("detect_replaced_tokens"), program("glue_submission")


class _SplitsAtSpaces(tf.Module):
    """Replaces an exported model. A word's probability is its length divided by 8; two pads follow the words."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def detect(self, text):
        words = tf.strings.split(text)
        probability = tf.cast(tf.strings.length(words.to_tensor()), tf.float32) / 8.0
        padding = [[0, 0], [0, 2]]
        return {
            "tokens": tf.pad(words.to_tensor(), padding, constant_values=""),
            "replaced_probability": tf.pad(probability, padding),
        }


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory) -> str:
    path = str(tmp_path_factory.mktemp("exported") / "1")
    module = _SplitsAtSpaces()
    tf.saved_model.save(module, path, signatures={"detect": module.detect})
    return path


def test_each_token_comes_with_its_probability_and_pads_are_left_out(saved_model):
    assert detection.detect(saved_model, "an odd word") == [("an", 0.25), ("odd", 0.375), ("word", 0.5)]


def test_the_likeliest_word_is_marked_and_special_tokens_are_not_shown():
    lines = detection.as_bars([("[CLS]", 0.9), ("tea", 0.1), ("window", 0.5), ("[SEP]", 0.8)]).splitlines()
    assert lines == ["  tea     0.100  ###", "  window  0.500  ###############  <- most likely replaced"]


def test_no_token_is_marked_if_none_stands_out():
    lines = detection.as_bars([("tea", 0.1), ("for", 0.12), ("two", 0.13)]).splitlines()
    assert lines[:3] == ["  tea  0.100  ###", "  for  0.120  ####", "  two  0.130  ####"]
    assert lines[3].startswith("  No token stands out")


def test_the_program_prints_the_text_and_one_line_for_each_token(saved_model, capsys):
    assert detection.main([saved_model, "--text", "tea window"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Text: tea window\n") and "window  0.750" in printed and "swapped" not in printed


@pytest.fixture
def zipped(tmp_path):
    """`zipped(predictions)`: the text of each file in the zip."""

    def write(predictions: dict) -> dict[str, str]:
        submission.write_zip(tmp_path / "submission.zip", predictions)
        with zipfile.ZipFile(tmp_path / "submission.zip") as archive:
            return {name: archive.read(name).decode() for name in archive.namelist()}

    return write


def test_the_zip_has_eleven_files_with_the_sites_labels_and_numbers(zipped, caplog):
    names = dict.fromkeys(submission.FILES, [("0", "neutral")])
    labels = {"CoLA": [("4", "acceptable"), ("5", "unacceptable")], "QNLI": [("0", "not_entailment")]}
    numbers = {"STS-B": [("0", "-0.5"), ("1", "2.34567"), ("2", "5.2")]}
    files = zipped(names | labels | numbers)
    names = "CoLA SST-2 MRPC STS-B QQP MNLI-m MNLI-mm QNLI RTE WNLI AX"
    assert sorted(files) == sorted(f"{name}.tsv" for name in names.split())
    assert files["CoLA.tsv"] == "index\tprediction\n4\t1\n5\t0\n"
    assert files["QNLI.tsv"] == "index\tprediction\n0\tnot_entailment\n"
    assert files["STS-B.tsv"] == "index\tprediction\n0\t0.000\n1\t2.346\n2\t5.000\n"
    assert files["WNLI.tsv"].splitlines()[1:] == [f"{row}\t0" for row in range(146)]
    assert "CoLA.tsv has 2 rows, the site's test set has 1063" in caplog.text and "missing" not in caplog.text


def test_a_warning_names_the_missing_files(zipped, caplog):
    assert sorted(zipped({"RTE": []})) == ["RTE.tsv", "WNLI.tsv"]
    assert "missing: CoLA.tsv, SST-2.tsv, MRPC.tsv" in caplog.text and "WNLI" not in caplog.text
