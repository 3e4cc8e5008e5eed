import json
import math
import struct

import pytest

from electra_tf.cli import report
from electra_tf.files import read_bytes, write_atomically
from electra_tf.flops.budget import RunCost
from tests.markdown import cells


@pytest.fixture
def runs(write_run) -> list[str]:
    """Two seeds of an ELECTRA, and a BERT."""

    first, second = {"masked_lm_accuracy": 0.2, "replaced_token_auc": 0.6}, {"replaced_token_auc": 0.9}
    return [
        str(write_run("electra-0", {4: first, 8: first}, train={"seed": 0})),
        str(write_run("electra-1", {4: first, 8: {"masked_lm_accuracy": 0.3} | second}, train={"seed": 1})),
        str(write_run("bert-0", {8: {"masked_lm_accuracy": 0.25}}, objective={"name": "bert_mlm"})),
    ]


@pytest.fixture
def rows(capsys):
    """`rows(*flags)`: the cells of the table that is printed, by line."""

    def printed(*flags: str) -> list[list[str]]:
        assert report.main(list(flags)) == 0
        return cells(capsys.readouterr().out)

    return printed


def test_the_table_has_median_and_range_of_every_group_at_its_last_step(runs, rows, tiny_config):
    heading, electra, bert = rows(*runs)
    spent = RunCost(tiny_config()).spent(8)
    costs = [f"{float(spent.paper):.3g}", f"{float(spent.hardware.total):.3g}", "0.00032 M"]  # 8 steps of 4 x 10 tokens
    assert heading[:6] == ["run", "seeds", "steps", "FLOPs", "hardware", "tokens"]
    assert heading[6:] == ["masked-LM accuracy", "replaced-token AUC"]
    assert electra == ["electra", "0, 1", "8", *costs, "0.250 (0.200 to 0.300)", "0.750 (0.600 to 0.900)"]
    assert (bert[0], bert[1], bert[6:]) == ("bert", "0", ["0.250", ""])


def test_a_picture_is_a_png_without_a_version_and_a_date(runs, tmp_path):
    assert report.main([*runs, f"--picture={tmp_path / 'a.png'}"]) == 0
    picture = (tmp_path / "a.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n") and b"tEXt" not in picture
    # Two panels in a row, 9.2 by 4.2 inches: matplotlib 3.10.9 makes 919 pixels of it, 3.11.2 makes 920.
    assert struct.unpack(">II", picture[16:24]) in [(919, 420), (920, 420)]


def test_a_baseline_is_a_dashed_line_in_the_panel_that_it_judges(write_run, panels):
    def metrics(loss):
        return {"replaced_token_loss": loss, "constant_predictor_loss": 0.5, "mask_token_loss": loss + 6}

    run = str(write_run("a-0", {4: metrics(0.4), 8: metrics(0.3)}))
    drawn = panels(run)
    assert list(drawn) == ["loss on [MASK]", "replaced-token loss"]
    lines = {line.get_linestyle(): list(line.get_ydata()) for line in drawn["replaced-token loss"].lines[:2]}
    assert lines == {"-": [0.4, 0.3], "--": [0.5, 0.5]}
    assert [line.get_linestyle() for line in drawn["loss on [MASK]"].lines] == ["-"]
    # A baseline that is asked for alone has its own panel.
    assert list(panels(run, "--metric=constant_predictor_loss")) == ["constant predictor's loss"]


def test_the_switch_of_a_stage_is_a_vertical_line_with_the_length(write_run, panels, tiny_config):
    stages = [
        {"num_steps": 6, "max_seq_length": 9, "batch_size": 4},
        {"num_steps": 2, "max_seq_length": 10, "batch_size": 4},
    ]
    finished, unfinished = (
        str(write_run(name, {step: {"masked_lm_accuracy": 0.2} for step in steps}, stages=stages))
        for name, steps in (("a-0", (4, 8)), ("b-0", (4, 6)))
    )
    (axes,) = panels(finished).values()
    _, switch = axes.lines
    spent = RunCost(tiny_config(stages=stages)).spent(6)
    assert (switch.get_linestyle(), list(switch.get_xdata())) == (":", 2 * [float(spent.paper)])
    assert [text.get_text() for text in axes.texts] == ["length 10"]
    (axes,) = panels(unfinished).values()
    assert len(axes.lines) == 1


def test_a_group_alone_has_its_steps_at_the_top(write_run, panels):
    run = str(write_run("a-0", {step: {"masked_lm_accuracy": 0.2} for step in (2, 3, 5, 6, 8)}))
    (axes,) = panels(run).values()
    (top,) = axes.child_axes  # of several groups there are none
    assert [label.get_text() for label in top.get_xticklabels()] == ["8", "3"]


@pytest.fixture
def scored_runs(write_run) -> list[str]:
    """Two seeds of an ELECTRA and a BERT, fine-tuned on RTE; and a run that was not fine-tuned."""
    bert = {"objective": {"name": "bert_mlm"}}
    return [
        str(write_run("electra-0", {}, rte={2: [0.25, 0.375], 8: [0.5, 0.75]}, train={"seed": 0})),
        str(write_run("electra-1", {}, rte={2: [0.5, 0.25], 4: [0.5, 0.5], 8: [0.625, 1.0]}, train={"seed": 1})),
        str(write_run("bert-0", {8: {"masked_lm_accuracy": 0.25}}, rte={4: [0.25], 8: [math.nan]}, **bert)),
        str(write_run("other-0", {8: {"masked_lm_accuracy": 0.25}}, train={"num_steps": 9})),
    ]


def test_scores_have_a_row_for_each_step_with_median_and_range_over_all_seeds(scored_runs, rows, tiny_config, caplog):
    heading, *table = rows(*scored_runs, "--score=rte")
    assert heading == ["run", "seeds", "steps", "FLOPs", "hardware", "tokens", "rte, fine-tuned", "values"]
    assert [row[:3] + row[6:] for row in table] == [
        ["electra", "0, 1", "2", "0.312 (0.250 to 0.500)", "4"],  # only one of the runs has a step 4
        ["electra", "0, 1", "8", "0.688 (0.500 to 1.000)", "4"],
        ["bert", "0", "4", "0.250", "1"],  # at step 8 a seed has no score
    ]
    spent = RunCost(tiny_config()).spent(2)
    assert table[0][3:5] == [f"{float(spent.paper):.3g}", f"{spent.hardware.total:.3g}"]
    assert caplog.messages == [f"{scored_runs[3]} is skipped: it lacks scores of rte"]


@pytest.mark.parametrize("flag", ["--output=ram://reports/notes", "--picture=ram://reports/notes"])
def test_a_file_is_replaced_only_with_overwrite(runs, capsys, flag):
    write_atomically("ram://reports/notes", b"mine")
    assert report.main([*runs, flag]) == 2
    assert capsys.readouterr().err.startswith(f"error: {flag} exists")
    assert read_bytes("ram://reports/notes") == b"mine"
    assert report.main([*runs, flag, "--overwrite"]) == 0
    assert read_bytes("ram://reports/notes") != b"mine"


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


def test_fine_tunings_have_the_median_and_range_of_each_score_over_the_finished_seeds(write_finetuning, rows):
    topics = write_finetuning("topics", {3: [0.25, 0.5], 5: [0.75, 0.5], 6: [0.5, 0.5]}, tested=0.125)
    assert rows(topics, write_finetuning("running", {2: [0.5]})) == [
        ["fine-tuning", "finished seeds", "accuracy", "test accuracy"],
        ["ft/topics", "3, 5, 6", "0.500 (0.250 to 0.750)", "0.125"],
        ["ft/running", "", "", ""],
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("{run} --score=rte", "rte"),
        ("{run} --metric=masked_lm_acuracy", "'masked_lm_acuracy'; there are: masked_lm_accuracy, replaced_token_auc"),
        ("{topics} {run}", "topics is a fine-tuning, but {run} is not"),
        ("{topics} --picture=curves.png", "--picture has no effect with fine-tunings"),
        ("{topics} --metric=accuracy", "--metric has no effect with fine-tunings"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(write_finetuning, runs, capsys, flags, message):
    paths = {"topics": write_finetuning("topics", {3: [0.25]}), "run": runs[0]}
    assert report.main(flags.format(**paths).split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message.format(**paths) in line
