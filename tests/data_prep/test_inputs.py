"""The refusal of default settings that damage a text's script."""

import pytest

from data_prep.inputs import BuildInputs
from data_prep.settings import VocabularySettings
from data_prep.vocabulary import build_vocabulary
from electra_tf.config.errors import UserError

JAPANESE = "がんばって、東京の大学へ行く。\n"
ENGLISH = "The sun and the moon.\n"


@pytest.fixture
def find(tmp_path, build_settings):
    """Finds the inputs and the text settings of a build from files with these texts."""

    def find(*texts: str, **changes):
        for index, text in enumerate(texts):
            (tmp_path / f"{index:02}.txt").write_text(text, "utf-8")
        settings = build_settings((f"text:{tmp_path}/*.txt",), tmp_path / "data", **changes)
        return BuildInputs.find(settings).with_text_settings(settings)

    return find


@pytest.mark.parametrize(
    ("flags", "named", "unnamed"),
    [({}, "--no-isolate_cjk", "?"), ({"lower_case": False}, "--no-isolate_cjk", "strip")],
)
def test_a_default_that_damages_the_text_is_refused(find, flags, named, unnamed):
    with pytest.raises(UserError, match=named) as error:
        find(JAPANESE, **flags)
    assert unnamed not in str(error.value)


@pytest.mark.parametrize("strip_accents", [True, False])
def test_what_the_user_gives_is_accepted(find, strip_accents):
    settings = find(JAPANESE, strip_accents=strip_accents, isolate_cjk=False)
    assert (settings.strip_accents, settings.isolate_cjk) == (strip_accents, False)


def test_a_vocabulary_that_states_its_settings_is_accepted(tmp_path, find):
    (tmp_path / "ja.txt").write_text(JAPANESE * 9, "utf-8")
    flags = {"strip_accents": False, "isolate_cjk": True, "vocab_size": 28}
    build_vocabulary(VocabularySettings(inputs=(f"{tmp_path}/ja.txt",), output=f"{tmp_path}/vocab", **flags))
    assert find(JAPANESE, vocab_file=f"{tmp_path}/vocab").text_settings == (True, False, True, 18)


def test_files_throughout_the_input_are_sampled(find):
    with pytest.raises(UserError, match="strip_accents"):
        find(*[ENGLISH] * 16, *[JAPANESE] * 16)
