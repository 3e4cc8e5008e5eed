import tensorflow as tf

from benchmarks import masked_language_models
from electra_tf.runs.loop import Run, pretrain
from electra_tf.runs.directory import RunDirectory


def test_an_accuracy_stands_beside_its_standard_error():
    found = {"step": 7, "masked_tokens": 400.0, "masked_lm_accuracy": 0.2, "candidates_accuracy": 0.9}
    assert masked_language_models.row_of("run", "electra", found) == (
        "run",
        "electra",
        "7",
        "400",
        "20.0 +- 2.0 %",
        "",
        "90.0 +- 1.5 %",
    )


def test_both_runs_stand_in_the_table_above_the_papers(tiny_config, write_data, tmp_path, capsys):
    data_dir = write_data(tmp_path / "set")
    for name in ("electra", "bert_mlm"):
        config = tiny_config(objective={"name": name}, train={"num_steps": 1})
        run = Run(config, RunDirectory(tmp_path / name), tf.distribute.OneDeviceStrategy("CPU:0"))
        pretrain(run, [data_dir])
    capsys.readouterr()
    flags = [f"--data_dir={data_dir}", "--set", "evaluation.as_masked_lm.num_candidates=3"]
    assert masked_language_models.main([str(tmp_path / "electra"), str(tmp_path / "bert_mlm"), *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["run", "electra", "bert_mlm", "paper,", "paper,"]
    assert lines[1].split()[1:4] == ["electra", "1", "7"] and lines[1].count("%") == 3
    assert lines[2].split()[1:4] == ["bert_mlm", "1", "7"] and lines[2].count("%") == 1


def test_what_is_no_run_is_refused_in_one_line(tmp_path, capsys):
    assert masked_language_models.main([str(tmp_path), f"--data_dir={tmp_path}"]) == 2
    assert capsys.readouterr().err.startswith("error: config ")
