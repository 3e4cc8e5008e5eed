"""electra-tf report for fine-tunings, finished or not: tables of scores."""

import json

import pytest

from electra_tf.cli import report
from tests.markdown import cells


@pytest.fixture
def write_finetuning(tmp_path):
    """`write_finetuning("topics", {3: [0.5, 0.75]})`: a directory with the dev accuracy of seeds at steps 4, 8, ...

    A finished fine-tuning has results of its last step but one, with these test scores, and a summary.
    """

    def build(name: str, seeds: dict[int, list[float]], tested: float | None = None) -> str:
        directory = tmp_path / "ft" / name
        for seed, values in seeds.items():
            place = directory / f"seed_{seed}"
            place.mkdir(parents=True)
            (place / "config.yaml").write_text("name: classification\ntask: {kind: classification}\n")
            lines = [{"step": 2, "split": "train", "loss": 96.0, "classification": 3.0 + seed}]
            for step, value in enumerate(values, 1):
                lines.append({"step": 4 * step, "split": "held_out", "f1": None, "accuracy": value, "loss": 2.0 + seed})
            (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            if tested is not None:
                metrics = {"accuracy": values[-2], "f1": None}
                result = {"step": 4 * len(values) - 4, "metrics": metrics, "test": {"metrics": {"accuracy": tested}}}
                (place / "result.json").write_text(json.dumps(result))
        if tested is not None:
            (directory / "summary.json").write_text(json.dumps({"primary_metric": "accuracy"}))
        return str(directory)

    return build


def test_the_table_has_the_median_and_range_of_each_score_over_the_finished_seeds(write_finetuning, capsys):
    topics = write_finetuning("topics", {3: [0.25, 0.5], 5: [0.75, 0.5], 6: [0.5, 0.5]}, tested=0.125)
    running = write_finetuning("running", {2: [0.5]})
    assert report.main([topics, running]) == 0
    heading, *rows = cells(capsys.readouterr().out)
    assert heading == ["fine-tuning", "finished seeds", "accuracy", "test accuracy"]
    assert rows == [["ft/topics", "3, 5, 6", "0.500 (0.250 to 0.750)", "0.125"], ["ft/running", "", "", ""]]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("{topics} {run}", "topics is a fine-tuning, but {run} is not"),
        ("{topics} --picture=curves.png", "--picture has no effect with fine-tunings"),
        ("{topics} --metric=accuracy", "--metric has no effect with fine-tunings"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(write_finetuning, write_run, capsys, flags, message):
    paths = {
        "topics": write_finetuning("topics", {3: [0.25]}),
        "run": write_run("electra-0", {8: {"masked_lm_accuracy": 0.25}}),
    }
    assert report.main(flags.format(**paths).split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message.format(**paths) in line
