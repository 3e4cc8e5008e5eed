"""The commands of pages and notebooks: how tests find them and run them."""

import contextlib
import glob
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from electra_tf.cli.commands import SUBCOMMANDS

PROJECT = Path(__file__).resolve().parents[2]


def blocks_of(page: Path, languages: str = "sh|python") -> list[tuple[str, str]]:
    """(language, text) of each fenced block of these languages, in order."""
    pattern = rf"^```({languages})\n(.*?)^```$"
    return re.findall(pattern, page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def code_cells(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run_blocks(blocks: list[tuple[str, str]], directory: Path) -> str:
    """Runs all blocks in one Python process, as a notebook does. Returns: the output."""
    parts = ["import subprocess"]
    for language, text in blocks:
        parts += [f"subprocess.run(['bash', '-euo', 'pipefail', '-c', {text!r}], check=True)"]
        if language == "python":
            parts[-1] = text
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(PROJECT), "PYTHONUNBUFFERED": "1"}
    settings = {"cwd": directory, "env": environment, "capture_output": True, "text": True}
    answer = subprocess.run([sys.executable, "-"], input="\n".join(parts), **settings)
    assert answer.returncode == 0, answer.stdout[-2000:] + answer.stderr[-4000:]
    return answer.stdout


def run_page(page: str, directory: Path, small: dict[str, str]) -> str:
    """Runs the blocks of docs/PAGE.md (or PAGE.md) that are marked `sh` or `python`, in order, in a directory.

    Commands of the project run in this process, where TensorFlow is imported already. Each key of `small` must occur in
    the page; its value replaces it. Returns: what the blocks print, without what bash writes to stderr.
    """
    path = PROJECT / ("" if page.isupper() else "docs") / f"{page}.md"
    blocks = blocks_of(path)
    assert [text for text in small if not any(text in block for _, block in blocks)] == []
    output, names = io.StringIO(), {"__name__": "page"}
    with contextlib.chdir(directory), contextlib.redirect_stdout(output), mock.patch.object(sys, "argv", [page]):
        for language, text in blocks:
            for long, short in small.items():
                text = text.replace(long, short)
            if language == "python":
                exec(compile(text, str(path), "exec"), names)
            elif all(line.startswith("electra-tf ") for line in commands_in(text)) and "--logical_cpu" not in text:
                for line in commands_in(text):
                    words = [match for word in shlex.split(line) for match in sorted(glob.glob(word)) or [word]]
                    assert command(words[1])(words[2:]) == 0, line
            else:
                print(run_blocks([(language, text)], directory))
    return output.getvalue()


def command(name: str) -> Callable[[list[str]], int]:
    """Returns the function of `electra-tf NAME`: arguments -> exit status."""
    return importlib.import_module(SUBCOMMANDS[name][0]).main


def commands_in(block: str) -> list[str]:
    """The commands of a block of bash, each on one line, without comments and prompts for input."""
    lines = block.replace("\\\n", " ").splitlines()
    return [line.strip() for line in (re.sub(r"(^|\s)#.*", "", line) for line in lines) if line.strip()]
