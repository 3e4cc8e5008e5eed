"""docs/tutorial_german.md and examples/german.ipynb: the same code, which runs as printed, with fewer steps."""

import json
import re
import shutil

import pytest

from tests.docs.commands import PROJECT, blocks_of, code_cells, run_blocks

PAGE = PROJECT / "docs" / "tutorial_german.md"
NOTEBOOK = PROJECT / "examples" / "german.ipynb"
FEW_STEPS = {
    '"train.num_steps": 400': '"train.num_steps": 4',
    '"optimizer.learning_rate": 1e-3': '"optimizer.learning_rate": 1e-3, "train.num_steps": 2',
}


def shortened(blocks: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The blocks with few steps; each replacement must occur."""
    for long, short in FEW_STEPS.items():
        assert any(long in text for _, text in blocks), f"{long} is not in the page"
        blocks = [(language, text.replace(long, short)) for language, text in blocks]
    return blocks


def test_the_cells_of_the_notebook_are_the_blocks_of_the_page():
    install, text, *cells = code_cells(NOTEBOOK)
    assert install == "!pip install git+https://github.com/electra-tf/electra_tf"
    assert "/main/sample/german/help.txt" in text
    assert cells == [text.strip() for _, text in blocks_of(PAGE)]


def test_the_notebook_is_of_format_4_5_and_holds_no_outputs():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in ids)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in code] == [([], None)] * len(code)


@pytest.mark.slow
def test_the_cells_of_the_notebook_which_are_those_of_the_page_run_without_a_clone(tmp_path):
    shutil.copytree(PROJECT / "sample/german", tmp_path / "sample/german")
    printed = run_blocks(shortened([("python", cell + "\n") for cell in code_cells(NOTEBOOK)[1:]]), tmp_path)
    assert len(re.findall(r"^[a-z].* \d+\.\d%$", printed, re.MULTILINE)) == 6  # the measured accuracies
    assert (tmp_path / "runs/german/sentence_transformers/modules.json").is_file()
