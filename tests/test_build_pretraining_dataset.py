"""electra-tf build-data: its flags, and mistakes in them."""

import pytest

from data_prep.cli.build_pretraining_dataset import main, parse_flags, run
from data_prep.settings import BuildSettings, settings_of
from electra_tf.config.errors import UserError

REQUIRED = ["--input=text:a*", "--vocab_file=v", "--output_dir=d"]


def test_inputs_add_up_and_accents_can_be_kept():
    flags = parse_flags([*REQUIRED, "--input=book:b", "--no-strip_accents", "--unicode=18"])
    assert flags.inputs == ["text:a*", "book:b"]
    assert (flags.strip_accents, flags.unicode) == (False, 18)


@pytest.mark.parametrize(
    "flag",
    [
        "--max_seq_length=4",
        "--held_out_fraction=1.0",
        "--language=xx --drop_other_languages",
        "--near_duplicates=0.4",
        "--wikipedia_names=/no/names.yaml",
    ],
)
def test_a_flag_with_a_value_out_of_range_is_named(flag):
    with pytest.raises(UserError, match=f"^{flag.split()[0].removeprefix('--')}"):
        settings_of(parse_flags([*REQUIRED, *flag.split()]), BuildSettings)


@pytest.mark.parametrize("flag", ["--fix_mojibake", "--drop_other_languages", "--near_duplicates=0.8"])
def test_a_flag_names_the_extra_that_it_needs(monkeypatch, flag):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=rf"^{flag.split('=')[0].removeprefix('--')} needs .*electra-tf\[clean\]"):
        settings_of(parse_flags([*REQUIRED, flag]), BuildSettings)


def test_near_duplicates_are_refused_on_beam():
    with pytest.raises(UserError, match="^--near_duplicates=.*runner"):
        run(parse_flags([*REQUIRED, "--near_duplicates=0.8", "--runner=DirectRunner"]))


def test_a_mistake_ends_the_command_with_one_line_and_status_2(tmp_path, capsys):
    assert main([f"--input=text:{tmp_path}/none*", "--vocab_file=v", f"--output_dir={tmp_path}/data"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: input=text:{tmp_path}/none*: no file matches")
    assert not (tmp_path / "data").exists()
