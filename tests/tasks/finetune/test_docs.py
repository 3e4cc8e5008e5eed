"""The commands of docs/evaluation.md that fine-tune a run work, at toy size."""

import re
import shlex
from pathlib import Path

import pytest

import run_finetuning

PAGE = Path(__file__).resolve().parents[3] / "docs" / "evaluation.md"
_SETTINGS = ["data.max_seq_length=16", "train.num_steps=2", "train.batch_size=4", "train.fused_ops=false"]


@pytest.mark.slow
def test_the_commands_of_the_page_fine_tune(tmp_path, monkeypatch, tiny_pretrained):
    (tmp_path / "RUN").symlink_to(tiny_pretrained)
    (tmp_path / "PROBE").mkdir()
    for name in ("train.jsonl", "dev.jsonl"):
        row = '{"words": ["w5", "w6", "w7"], "tags": ["O", "B-CAPITAL", "O"]}\n'
        (tmp_path / "PROBE" / name).write_text(6 * row)
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^electra-tf finetune .*$", text, re.MULTILINE)
    (line,) = (line for line in lines if "--milestones" not in line)
    settings = [part for setting in _SETTINGS for part in ("--set", setting)]
    assert run_finetuning.main([*shlex.split(line, comments=True)[2:], *settings]) == 0
    assert len(list(tmp_path.rglob("seed_*/result.json"))) == 1
