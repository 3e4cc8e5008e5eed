"""The commands of pages and notebooks: how tests find them and run them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

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
    answer = subprocess.run(
        [sys.executable, "-"],
        input="\n".join(parts),
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stdout[-2000:] + answer.stderr[-4000:]
    return answer.stdout
