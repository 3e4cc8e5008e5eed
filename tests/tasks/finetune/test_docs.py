"""The commands of docs/finetuning.md and docs/evaluation.md work, at toy size."""

import re
import shlex
from pathlib import Path

import pytest

import run_finetuning

DOCS = Path(__file__).resolve().parents[3] / "docs"
_SETTINGS = ["data.max_seq_length=16", "train.num_steps=2", "train.batch_size=4", "train.fused_ops=false"]
_MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
pytestmark = pytest.mark.slow


@pytest.fixture
def workplace(tmp_path, monkeypatch, tiny_pretrained) -> Path:
    """A working directory with RUN, GLUE, PROBE and the files that the pages name."""
    (tmp_path / "RUN").symlink_to(tiny_pretrained)
    (tmp_path / "GLUE" / "MRPC").mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv"):
        rows = "".join(f"{n % 2}\t{n}\t{n + 50}\tw5 w{6 + n}\tw7 w{8 + n}\n" for n in range(6))
        (tmp_path / "GLUE" / "MRPC" / name).write_text(_MRPC + rows)
    for name in ("train.csv", "dev.csv", "test.csv"):
        rows = "".join(f"w{5 + n},w6 w{7 + n},{'sport' if n % 3 else 'art'}\n" for n in range(9))
        (tmp_path / name).write_text(f"title,body,topic\n{rows}")
    (tmp_path / "GLUE" / "STS-B").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        rows = "".join(f"{n}\tw5 w{6 + n}\tw7 w{8 + n}\t{n / 2}\n" for n in range(6))
        (tmp_path / "GLUE" / "STS-B" / name).write_text(f"index\tsentence1\tsentence2\tscore\n{rows}")
    for name in ("pairs.csv", "pairs_dev.csv"):
        rows = "".join(f"w{5 + n},w{6 + n}\n" for n in range(6))
        (tmp_path / name).write_text(f"question,answer\n{rows}")
    (tmp_path / "PROBE").mkdir()
    for name in ("train.jsonl", "dev.jsonl"):
        row = '{"words": ["w5", "w6", "w7"], "tags": ["O", "B-CAPITAL", "O"]}\n'
        (tmp_path / "PROBE" / name).write_text(6 * row)
    (tmp_path / "new.jsonl").write_text('{"title": "w5", "body": "w6 w7"}\n{"title": "w8", "body": "w9"}\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def documented_commands() -> list[list[str]]:
    """The arguments of each `electra-tf finetune` on the pages, except with --milestones."""
    text = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("finetuning.md", "evaluation.md"))
    blocks = re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("electra-tf finetune ")]
    return [arguments[2:] for arguments in commands if "--milestones" not in arguments]


def test_the_commands_of_the_pages_fine_tune_and_predict(workplace):
    commands = documented_commands()
    assert len(commands) == 6
    for arguments in commands:
        settings = [] if "--predict" in arguments else [part for text in _SETTINGS for part in ("--set", text)]
        if "encoder.num_layers=8" in arguments:  # the tiny encoder has one layer, the tiny batch four pairs
            arguments[-1:] = ["encoder.num_layers=1", "--set", "task.num_candidates=4"]
        assert run_finetuning.main([*arguments, *settings]) == 0, arguments
    assert len(list(workplace.glob("ft/mrpc/seed_*/result.json"))) == 5
    header, *rows = (workplace / "topics.tsv").read_text().splitlines()
    assert header.split("\t") == ["id", "prediction", "probability_art", "probability_sport"] and len(rows) == 2
