import contextlib
import subprocess
import sys

import pytest

from data_prep.inputs import BuildInputs, require_readable
from data_prep.settings import VocabularySettings
from data_prep.sources import find_files
from data_prep.vocabulary import build_vocabulary
from electra_tf.config.errors import UserError
from electra_tf.text.vocabulary import SPECIAL_TOKENS

JAPANESE = "がんばって、東京の大学へ行く。\n"
ENGLISH = "The sun and the moon.\n"


@pytest.fixture
def check(tmp_path, build_settings):
    """Finds the inputs of a build from files with these texts, and checks them."""

    def check(*texts: str, **changes):
        for index, text in enumerate(texts):
            (tmp_path / f"{index:02}.txt").write_text(text, "utf-8")
        characters = sorted(set("".join(texts) + "".join(texts).lower()) - {" ", "\n"})
        tokens = [*SPECIAL_TOKENS, *characters, *(f"##{each}" for each in characters), *(f"w{i}" for i in range(999))]
        (tmp_path / "characters").write_text("\n".join(tokens), "utf-8")
        changes = {"vocab_file": str(tmp_path / "characters")} | changes
        settings = build_settings((f"text:{tmp_path}/*.txt",), tmp_path / "data", **changes)
        return BuildInputs.find(settings).with_text_settings(settings)

    return check


@pytest.mark.parametrize(
    ("texts", "flags", "named"),
    [
        ([JAPANESE], {}, "--no-strip_accents"),
        ([JAPANESE], {"lower_case": False}, "--no-isolate_cjk"),
        ([ENGLISH] * 16 + [JAPANESE] * 16, {}, "strip_accents"),  # files throughout the input are sampled
        # What the user gives is accepted, and text without a character.
        ([JAPANESE], {"strip_accents": True, "isolate_cjk": False}, None),
        ([JAPANESE], {"strip_accents": False, "isolate_cjk": False}, None),
        ([" \n"], {}, None),
    ],
)
def test_a_default_that_damages_the_text_is_refused(check, texts, flags, named):
    with pytest.raises(UserError, match=named) if named else contextlib.nullcontext():
        check(*texts, **flags)


def test_a_vocabulary_that_states_its_settings_is_accepted(tmp_path, check):
    (tmp_path / "ja.txt").write_text(JAPANESE * 9, "utf-8")
    flags = {"strip_accents": False, "isolate_cjk": True, "vocab_size": 28}
    build_vocabulary(VocabularySettings(inputs=(f"{tmp_path}/ja.txt",), output=f"{tmp_path}/vocab", **flags))
    assert check(JAPANESE, vocab_file=f"{tmp_path}/vocab").text_settings == (True, False, True, 18, True, "")


@pytest.mark.parametrize(
    ("flags", "is_named"), [({}, True), ({"lower_case": True}, False), ({"lower_case": False}, False)]
)
def test_a_build_warns_of_words_that_lower_case_merges_unless_it_is_given(check, caplog, flags, is_named):
    with caplog.at_level("INFO"):
        check("CO Co CCOc1ccc2nc\n", **flags)
    assert ("--no-lower_case" in caplog.text) == is_named
    assert ("3 distinct words are 2 after" in caplog.text) == (flags.get("lower_case") is not False)


def test_the_checks_and_the_builds_first_process_do_not_import_tensorflow():
    program = "import sys, data_prep.build, electra_tf.text.hugging_face; print('tensorflow' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"


def test_a_faulty_file_counts_once(tmp_path, build_settings):
    (tmp_path / "a.txt").write_bytes(b'{"a": 1}' * 9 + b"\0\1\2" * 9)
    (tmp_path / "b.txt").write_text(ENGLISH * 9, "utf-8")
    settings = build_settings((f"text:{tmp_path}/*.txt",), tmp_path / "data")
    with pytest.raises(UserError, match=f"1 files with {100 * 99 / (99 + 9 * len(ENGLISH)):.3g} % of the bytes"):
        require_readable(find_files(settings.inputs), settings)


def test_near_copies_are_not_compared_if_copies_stay(build_settings):
    with pytest.raises(UserError, match="near_duplicates needs drop_duplicates"):
        build_settings(["text:*"], "data", near_duplicates=0.8, drop_duplicates=False)
