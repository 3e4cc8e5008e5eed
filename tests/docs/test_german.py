"""examples/german.ipynb: its cells run, with fewer steps."""

import json
import re
import shutil

import pytest

from tests.docs.commands import PROJECT, code_cells, run_blocks

NOTEBOOK = PROJECT / "examples" / "german.ipynb"
FEW_STEPS = {
    '"train.num_steps": 400': '"train.num_steps": 4',
    '"optimizer.learning_rate": 1e-3': '"optimizer.learning_rate": 1e-3, "train.num_steps": 2',
}


def test_the_notebook_is_of_format_4_5_without_outputs_and_links_to_pages():
    text = NOTEBOOK.read_text(encoding="utf-8")
    notebook = json.loads(text)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in ids)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in code] == [([], None)] * len(code)
    links = re.findall(r"electra_tf/(?:blob/)?main/([\w./]+)", text)
    assert links and [link for link in links if not (PROJECT / link).is_file()] == []


@pytest.mark.slow
def test_the_cells_run_without_a_clone(tmp_path):
    shutil.copytree(PROJECT / "sample/german", tmp_path / "sample/german")
    install, *cells = code_cells(NOTEBOOK)
    assert install == "!pip install git+https://github.com/electra-tf/electra_tf"
    code = "\n".join(cells)
    for long, short in FEW_STEPS.items():
        assert long in code
        code = code.replace(long, short)
    printed = run_blocks([("python", code)], tmp_path)
    assert len(re.findall(r"^[a-z].* \d+\.\d%$", printed, re.MULTILINE)) == 6  # the measured accuracies
    assert (tmp_path / "runs/german/sentence_transformers/modules.json").is_file()
