"""What report.py writes of three runs, two of which differ in their seed alone."""

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


def rows(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_has_the_end_of_every_group_with_its_median_and_range(runs, capsys, tiny_config):
    assert report.main(runs) == 0
    heading, _, electra, bert = rows(capsys.readouterr().out)
    assert heading == ["run", "seeds", "steps", "FLOPs", "hardware", "tokens"] + [
        "probe, mean",
        "CoLA, Matthews",
        "SST-2, accuracy",
        "masked-LM accuracy",
        "replaced-token AUC",
    ]
    spent = RunCost(tiny_config()).spent(8)
    # 8 steps of 4 sequences of 10.
    assert electra[:6] == [
        "electra",
        "0, 1",
        "8",
        f"{float(spent.paper):.3g}",
        f"{float(spent.hardware.total):.3g}",
        "0.00032 M",
    ]
    assert electra[6:] == [
        "0.450 (0.400 to 0.500)",
        "0.200 (0.100 to 0.300)",
        "0.700",
        "0.250 (0.200 to 0.300)",
        "0.750 (0.600 to 0.900)",
    ]
    assert (bert[0], bert[1], bert[6:]) == ("bert", "0", ["", "", "", "0.250", ""])


def test_chosen_metrics_are_the_only_columns(runs, capsys):
    assert report.main([*runs, "--metric=masked_lm_accuracy"]) == 0
    assert rows(capsys.readouterr().out)[0][6:] == ["masked-LM accuracy"]


def test_the_table_and_the_picture_are_written_and_equal_runs_give_equal_bytes(runs, tmp_path):
    files = [tmp_path / name for name in ("a.md", "a.png", "b.png")]
    assert report.main([*runs, f"--output={files[0]}", f"--picture={files[1]}"]) == 0
    assert report.main([*runs, f"--output={files[0]}", f"--picture={files[2]}", "--overwrite"]) == 0
    assert files[0].read_text().endswith("\n![The metrics over FLOPs](b.png)\n")
    picture = files[1].read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n" and picture == files[2].read_bytes()
    width, height = struct.unpack(">II", picture[16:24])
    # Five panels, three in a row.
    assert (width, height) == (1380, 780)


@pytest.mark.parametrize("flag", ["output", "picture"])
def test_a_file_that_exists_is_replaced_only_when_asked(runs, tmp_path, capsys, flag):
    file = tmp_path / "notes"
    file.write_text("mine")
    assert report.main([*runs, f"--{flag}={file}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: --{flag}={file} exists") and "--overwrite" in line
    assert file.read_text() == "mine"


def test_page_and_picture_in_one_file_are_refused(runs, tmp_path, capsys):
    assert report.main([*runs, f"--output={tmp_path / 'a'}", f"--picture={tmp_path / 'b' / '..' / 'a'}"]) == 2
    assert "--output and --picture both name" in capsys.readouterr().err


def test_a_bar_in_a_name_ends_no_cell(write_run, capsys):
    assert report.main([str(write_run("a|b", {8: {"masked_lm_accuracy": 0.25}}))]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith(r"| a\|b | 0 | 8 |")


def test_a_place_that_cannot_be_written_is_one_line(runs, tmp_path, capsys):
    assert report.main([*runs, f"--output={tmp_path / 'nowhere' / 'a.md'}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "a.md cannot be written: No such file or directory" in line
    assert line.endswith("nowhere is no directory: make it or give another place")


def test_the_page_names_the_picture_as_seen_from_its_own_directory(runs, tmp_path):
    (tmp_path / "pages").mkdir()
    (tmp_path / "pictures").mkdir()
    page, picture = tmp_path / "pages" / "a.md", tmp_path / "pictures" / "a.png"
    assert report.main([*runs, f"--output={page}", f"--picture={picture}"]) == 0
    assert page.read_text().endswith("\n![The metrics over FLOPs](../pictures/a.png)\n")


def test_a_metric_that_no_run_has_is_refused_with_those_that_there_are(runs, capsys):
    assert report.main([*runs, "--metric=masked_lm_acuracy"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no run has a metric 'masked_lm_acuracy'; there are: cola, masked_lm_accuracy, probe_score" in line


def test_a_picture_of_runs_without_a_known_metric_is_refused(write_run, tmp_path, capsys):
    run = str(write_run("run", {8: {"accuracy_of_another_kind": 0.2}}))
    assert report.main([run, f"--picture={tmp_path / 'a.png'}"]) == 2
    assert "nothing to draw; name one with --metric" in capsys.readouterr().err


@pytest.fixture
def without_phases(monkeypatch, tiny_config):
    """BERT's objective does not describe its steps, as one from outside may not."""
    config = tiny_config(objective={"name": "bert_mlm"})
    monkeypatch.setattr(type(config.objective), "phases", ObjectiveSettings.phases)


def test_an_objective_that_does_not_describe_its_steps_has_empty_flops(runs, without_phases, capsys):
    assert report.main(runs) == 0
    electra, bert = rows(capsys.readouterr().out)[2:]
    assert bert[:6] == ["bert", "0", "8", "", "", ""]
    assert all(electra[3:6])


def test_a_picture_of_such_objectives_alone_is_refused(runs, without_phases, tmp_path, capsys):
    assert report.main([runs[2], f"--picture={tmp_path / 'a.png'}"]) == 2
    assert "the objectives of bert do not say what a step computes" in capsys.readouterr().err
    assert report.main([*runs, f"--picture={tmp_path / 'a.png'}"]) == 0
