"""The tutorial: it runs from top to bottom, and what is stored in it is short and of a run without errors."""

from pathlib import Path

import nbformat
import pytest

PROJECT = Path(__file__).resolve().parents[2]
NOTEBOOK = PROJECT / "examples" / "quickstart.ipynb"


def printed_by(notebook) -> str:
    """All that its cells print and show."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(output.get("text") or output["data"]["text/plain"] for output in outputs)


def test_its_stored_outputs_are_those_of_a_whole_run_and_small():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert "error:" not in printed_by(notebook) and str(PROJECT) not in printed_by(notebook)
    assert NOTEBOOK.stat().st_size < 40_000


@pytest.mark.slow
def test_it_runs():
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(NOTEBOOK.parent)}}
    NotebookClient(notebook, timeout=900, kernel_name="python3", resources=resources).execute()
    printed = printed_by(notebook)
    assert "step 150/150" in printed and "replaced_token_loss" in printed  # pre-training
    assert "classification   accuracy *" in printed  # fine-tuning
    assert "ElectraForSequenceClassification" in printed  # Hugging Face
    assert printed.splitlines()[-1].startswith(("encyclopedia {", "novel {"))  # the server
