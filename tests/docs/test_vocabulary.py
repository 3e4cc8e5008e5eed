"""docs/vocabulary.md: its commands run as printed, on a part of the sample and at toy size."""

import json
import shutil

import pytest

from tests.byte_level import trained
from tests.docs.commands import PROJECT, run_page

SMALL = {"30522": "700", "32000": "160", "--num_processes=2": "--num_processes=1"}


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path):
    for folder in ("novels/train", "novels/held_out", "ja", "corpus", "ModernBERT-base"):
        (tmp_path / folder).mkdir(parents=True)
    chapters = PROJECT / "sample/novel"
    shutil.copy(chapters / "chapter_01.txt", tmp_path / "novels/train")
    shutil.copy(chapters / "chapter_02.txt", tmp_path / "novels/held_out")
    shutil.copy(chapters / "chapter_02.txt", tmp_path / "corpus")
    lines = (PROJECT / "tests/fixtures/languages.txt").read_text(encoding="utf-8").splitlines()
    (tmp_path / "ja/1.txt").write_text("\n".join(lines[:6]), encoding="utf-8")
    (tmp_path / "ModernBERT-base/tokenizer.json").write_bytes(trained(lines, vocab_size=400))
    run_page("vocabulary", tmp_path, SMALL)
    assert len((tmp_path / "vocab.txt").read_text(encoding="utf-8").splitlines()) == 700
    fit = json.loads((tmp_path / "vocab.txt.json").read_text(encoding="utf-8"))
    assert fit["coverage_text"]["num_files"] == 1 and fit["coverage"]["unknown_fraction"] < 0.1
    assert json.loads((tmp_path / "spm.model.json").read_text(encoding="utf-8"))["vocab_size"] == 160
    assert (tmp_path / "data/tokenizer.json").read_bytes() == (tmp_path / "ModernBERT-base/tokenizer.json").read_bytes()
