"""docs/data.md: its commands run as printed, on a part of the sample and at toy size."""

import bz2
import json
import shutil
from pathlib import Path

import pytest

from tests.docs.commands import PROJECT, run_page

SMALL = {
    "--num_processes=8": "--num_processes=1",
    "--max_seq_length=512": "--max_seq_length=64",
    "--config=small": "--config=tiny --set train.num_steps=2 --set optimizer.warmup_steps=1 --set train.batch_size=3",
    "data.max_seq_length=512": "data.max_seq_length=64",
}
NUM_POSTS = 90


def write_inputs(directory: Path) -> None:
    for folder in ("dumps", "novels", "posts"):
        (directory / folder).mkdir()
    dump = (PROJECT / "tests/fixtures/wikipedia_excerpt.xml").read_bytes()
    (directory / "dumps/excerpt.xml.bz2").write_bytes(bz2.compress(dump))
    posts = [json.dumps({"text": f"Post {i}: the expedition has not come back, we hear."}) for i in range(NUM_POSTS)]
    (directory / "posts/1.jsonl").write_text("\n".join(posts), encoding="utf-8")
    shutil.copy(PROJECT / "sample/novel/chapter_01.txt", directory / "novels")
    shutil.copy(PROJECT / "sample/vocab.txt", directory)


def manifest(directory: Path) -> dict:
    return json.loads((directory / "manifest.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path):
    write_inputs(tmp_path)
    run_page("data", tmp_path, SMALL)
    assert {file["format"] for file in manifest(tmp_path / "data")["inputs"]} == {"book", "wikipedia"}
    packed = manifest(tmp_path / "packed")
    assert packed["counts"]["num_documents"] == NUM_POSTS > 2 * packed["splits"]["train"]["num_examples"]
    assert list((tmp_path / "RUN/checkpoints").glob("*"))
    assert [file["name"] for file in manifest(tmp_path / "shared/data")["inputs"]] == ["chapter_01.txt"]
