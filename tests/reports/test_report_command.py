"""The output of report.py for three runs, two of which differ in their seed only."""

import struct

import pytest

import report
from electra_tf.flops.budget import RunCost
from electra_tf.tasks.pretrain.config import ObjectiveSettings


@pytest.fixture
def runs(write_run) -> list[str]:
    """Two seeds of an ELECTRA with a probe, and a BERT without."""

    def metrics(accuracy, auc):
        return {"masked_lm_accuracy": accuracy, "replaced_token_auc": auc}

    first = {4: metrics(0.1, 0.5), 8: metrics(0.2, 0.6)}
    second = {4: metrics(0.1, 0.7), 8: metrics(0.3, 0.9)}
    bert = {"objective": {"name": "bert_mlm"}, "train": {"num_steps": 8}}
    return [
        str(write_run("electra-0", first, probe={0: (0.0, 0.5), 8: (0.1, 0.7)}, train={"seed": 0})),
        str(write_run("electra-1", second, probe={0: (0.0, 0.5), 8: (0.3, 0.7)}, train={"seed": 1})),
        str(write_run("bert-0", {8: {"masked_lm_accuracy": 0.25}}, **bert)),
    ]


@pytest.fixture
def rows(capsys):
    """`rows(*flags)`: the cells of the table that is printed, by line."""

    def printed(*flags: str) -> list[list[str]]:
        assert report.main(list(flags)) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]

    return printed


def test_the_table_has_the_end_of_every_group_with_its_median_and_range(runs, rows, tiny_config):
    heading, _, electra, bert = rows(*runs)
    spent = RunCost(tiny_config()).spent(8)
    costs = [f"{float(spent.paper):.3g}", f"{float(spent.hardware.total):.3g}", "0.00032 M"]  # 8 steps of 4 x 10 tokens
    assert (heading[:6], electra[:6]) == (
        ["run", "seeds", "steps", "FLOPs", "hardware", "tokens"],
        ["electra", "0, 1", "8", *costs],
    )
    assert dict(zip(heading[6:], electra[6:], strict=True)) == {
        "probe, mean": "0.450 (0.400 to 0.500)",
        "CoLA, Matthews": "0.200 (0.100 to 0.300)",
        "SST-2, accuracy": "0.700",
        "masked-LM accuracy": "0.250 (0.200 to 0.300)",
        "replaced-token AUC": "0.750 (0.600 to 0.900)",
    }
    assert (bert[0], bert[1], bert[6:]) == ("bert", "0", ["", "", "", "0.250", ""])


def test_chosen_metrics_are_the_only_columns_and_a_bar_in_a_name_ends_no_cell(write_run, capsys):
    run = write_run("a|b", {8: {"masked_lm_accuracy": 0.25, "replaced_token_auc": 0.5}})
    assert report.main([str(run), "--metric=masked_lm_accuracy"]) == 0
    heading, _, row = capsys.readouterr().out.splitlines()
    assert heading.endswith("| tokens | masked-LM accuracy |") and row.startswith(r"| a\|b | 0 | 8 |")


def test_equal_runs_give_a_picture_of_equal_bytes(runs, tmp_path):
    files = [tmp_path / name for name in ("a.png", "b.png")]
    for file in files:
        assert report.main([*runs, f"--picture={file}"]) == 0
    picture = files[0].read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n" and picture == files[1].read_bytes()
    assert struct.unpack(">II", picture[16:24]) == (1380, 780)  # five panels, three in a row


def test_the_page_names_the_picture_relative_to_its_own_directory(runs, tmp_path, monkeypatch):
    monkeypatch.setattr("electra_tf.reports.pictures.png_picture", lambda groups, metrics, convention: b"png")
    (tmp_path / "pages").mkdir()
    page, picture = tmp_path / "pages" / "a.md", tmp_path / "a.png"
    assert report.main([*runs, f"--output={page}", f"--picture={picture}"]) == 0
    assert page.read_text().endswith("\n![The metrics over FLOPs](../a.png)\n")


def test_a_file_is_replaced_only_when_asked(runs, tmp_path, capsys):
    file = tmp_path / "notes"
    file.write_text("mine")
    for flag in ("output", "picture"):
        assert report.main([*runs, f"--{flag}={file}"]) == 2
        assert capsys.readouterr().err.startswith(f"error: --{flag}={file} exists; give another name, or --overwrite")
    assert file.read_text() == "mine"
    assert report.main([*runs, f"--output={file}", "--overwrite"]) == 0
    assert file.read_text().startswith("| run |")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--output={0}/a", "--picture={0}/b/../a"], "--output and --picture both name"),
        (["--output={0}/nowhere/a.md"], "nowhere/a.md cannot be written"),
        (
            ["--metric=masked_lm_acuracy"],
            "no run has a metric 'masked_lm_acuracy'; there are: cola, masked_lm_accuracy",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(runs, tmp_path, capsys, flags, message):
    assert report.main([*runs, *(flag.format(tmp_path) for flag in flags)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_picture_without_a_usual_metric_is_refused(write_run, tmp_path, capsys):
    run = str(write_run("run", {8: {"accuracy_of_another_kind": 0.2}}))
    assert report.main([run, f"--picture={tmp_path / 'a.png'}"]) == 2
    assert "nothing to draw; name one with --metric" in capsys.readouterr().err


def test_an_objective_that_does_not_describe_its_steps_has_no_flops(
    runs, rows, tiny_config, monkeypatch, tmp_path, capsys
):
    config = tiny_config(objective={"name": "bert_mlm"})
    monkeypatch.setattr(type(config.objective), "phases", ObjectiveSettings.phases)
    electra, bert = rows(*runs)[2:]
    assert bert[:6] == ["bert", "0", "8", "", "", ""]
    assert all(electra[3:6])
    assert report.main([runs[2], f"--picture={tmp_path / 'a.png'}"]) == 2
    assert "the objectives of bert do not say what a step computes" in capsys.readouterr().err
