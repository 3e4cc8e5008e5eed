import importlib.util
from pathlib import Path

import pytest
import tensorflow as tf

_PATH = Path(__file__).resolve().parents[2] / "examples" / "detect_replaced_tokens.py"
_SPEC = importlib.util.spec_from_file_location("detect_replaced_tokens", _PATH)
example = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(example)


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
    assert example.detect(saved_model, "an odd word") == [("an", 0.25), ("odd", 0.375), ("word", 0.5)]


def test_the_likeliest_word_is_marked_and_special_tokens_are_not_shown():
    lines = example.as_bars([("[CLS]", 0.9), ("tea", 0.1), ("window", 0.5), ("[SEP]", 0.8)]).splitlines()
    assert lines == ["  tea     0.100  ###", "  window  0.500  ###############  <- most likely replaced"]


def test_no_token_is_marked_if_none_stands_out():
    lines = example.as_bars([("tea", 0.1), ("for", 0.12), ("two", 0.13)]).splitlines()
    assert lines[:3] == ["  tea  0.100  ###", "  for  0.120  ####", "  two  0.130  ####"]
    assert lines[3].startswith("  No token stands out")


def test_the_program_prints_the_text_and_one_line_for_each_token(saved_model, capsys):
    assert example.main([saved_model, "--text", "tea window"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Text: tea window\n") and "window  0.750" in printed and "swapped" not in printed
