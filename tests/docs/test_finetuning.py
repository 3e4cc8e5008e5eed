"""docs/finetuning.md: its commands run, with two steps on the tiny network."""

import pytest

from tests.docs.commands import run_page
from tests.docs.conftest import STEPS

SMALL = {
    "--init_from=RUN": f"--init_from=RUN {STEPS}",
    "--seeds 0 1 2 3 4": "--seeds 4",
    "encoder.num_layers=8": "encoder.num_layers=1 --set task.num_candidates=4",
}


@pytest.mark.slow
def test_the_commands_fine_tune_predict_and_convert(inputs):
    run_page("finetuning", inputs, SMALL)
    assert (inputs / "ft/mrpc/seed_4/result.json").is_file()
    header, *rows = (inputs / "topics.tsv").read_text(encoding="utf-8").splitlines()
    assert header.split("\t") == ["id", "prediction", "probability_art", "probability_sport"] and len(rows) == 2
    assert (inputs / "sentence_vectors/modules.json").is_file()
