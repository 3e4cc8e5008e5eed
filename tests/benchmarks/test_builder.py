import bz2
import re
from pathlib import Path

import pytest

from benchmarks import builder
from benchmarks.builder import Verdict

SAMPLE = Path(__file__).resolve().parents[2] / "sample"


def test_a_floor_holds_from_its_value_on():
    assert str(Verdict("speed", 1.8, 1.8)) == "PASS  speed: 1.8, at least 1.8"
    assert str(Verdict("speed", 1.79, 1.8)) == "FAIL  speed: 1.79, at least 1.8"


def test_a_ceiling_holds_up_to_its_value():
    assert str(Verdict("memory", 1.5, 1.5, is_ceiling=True)) == "PASS  memory: 1.5, at most 1.5"
    assert str(Verdict("memory", 1.51, 1.5, is_ceiling=True)) == "FAIL  memory: 1.51, at most 1.5"


def test_dumps_are_copied_and_measured_decompressed(tmp_path):
    (tmp_path / "a.xml").write_bytes(b"x" * 7)
    (tmp_path / "b.xml.bz2").write_bytes(bz2.compress(b"y" * 1000))
    pattern, num_bytes = builder.copies_of_dumps(str(tmp_path / "*.xml*"), 3, tmp_path / "copies")
    assert num_bytes == 3 * 1007
    assert pattern == str(tmp_path / "copies" / "*")
    assert len(list((tmp_path / "copies").iterdir())) == 6


@pytest.mark.parametrize("name", ["book:novel.txt", "novel.txt", "text:nowhere.txt"])
def test_anything_but_a_file_of_plain_text_is_refused(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "novel.txt").write_text("A line.\n")
    assert builder.main([f"--input={name}", "--vocab_file=vocab.txt", "--work_dir=work"]) == 2
    assert f"--input={name}; expected text: and a file" in capsys.readouterr().err


@pytest.mark.slow
def test_all_figures_are_printed_for_the_sample(tmp_path, capsys):
    text = tmp_path / "text.txt"
    chapters = [path.read_text(encoding="utf-8").strip() for path in sorted((SAMPLE / "novel").glob("*.txt"))]
    text.write_text("\n\n".join(chapters) + "\n", encoding="utf-8")
    status = builder.main(
        [
            f"--input=text:{text}",
            f"--vocab_file={SAMPLE / 'vocab.txt'}",
            f"--work_dir={tmp_path / 'work'}",
            "--rounds=1",
            "--pure_python_megabytes=0.05",
            "--memory_megabytes=0.2",
        ]
    )
    printed = capsys.readouterr().out
    for name in ("ours, 1 process", "ours, 2 processes", "hugging_face, threads", "hugging_face, 2 processes"):
        assert re.search(rf"^{name} +[\d,.]+ +[\d,.]+ +[\d,.]+$", printed, re.MULTILINE), name
    verdicts = re.findall(r"^(PASS|FAIL)  (.+): .+, at (?:least|most) ", printed, re.MULTILINE)
    assert [name.partition(" over hugging_face")[0] for _, name in verdicts] == [
        "tokens/s of 1 process",
        "2 processes over 1",
        "2 processes",
        "peak memory, GiB",
        "peak memory, largest text over smallest",
    ]
    # So small a text is all start-up, so which floors hold is left to the benchmark; the status follows from them.
    assert status == int(any(word == "FAIL" for word, _ in verdicts))
    assert list((tmp_path / "work").iterdir()) == []
