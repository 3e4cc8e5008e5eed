"""The results of the replication, compared with values computed by hand, and the page that shows them."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from electra_tf.config.errors import UserError
from electra_tf.reports.runs import RunResults
from electra_tf.tasks.finetune.summary import milestone_scores
from experiments.replication import __main__ as replication
from experiments.replication import results
from experiments.replication.arms import COMPARISONS
from experiments.replication.outcome import MeanDifference, arm_scores, compare, gate_of, task_score
from experiments.replication.record import read_records, write_record
from experiments.replication.results import markers, picture_of, read_arms, results_markdown

LEARNT = {
    "electra": {"replaced_token_loss": 0.4, "constant_predictor_loss": 0.5, "replaced_token_auc": 0.875},
    "bert_mlm": {"mask_token_loss": 5.5, "unigram_loss": 6.5},
}


@pytest.fixture
def make_run(tiny_config):
    """`make_run("electra", 3, qnli={8: [0.5]})`: results of a run with scores by task and step."""

    def build(arm: str, seed: int, metrics: dict | None = None, **scores: dict) -> RunResults:
        config = tiny_config(
            objective={"name": arm.removesuffix("_paper_flops").removeprefix("ladder_")}, train={"seed": seed}
        )
        end = LEARNT.get(config.objective.name, {}) if metrics is None else metrics
        by_metric = {
            f"finetuned_{task}": {step: tuple(of) for step, of in each.items()} for task, each in scores.items()
        }
        return RunResults(f"{arm}-seed{seed}", config, {8: dict(end)}, scores=by_metric)

    return build


@pytest.fixture
def write_records(make_run, tmp_path):
    """`write_records(("electra", 3, 0.5))`: a file of records of runs with one score on all tasks."""

    def build(*runs: tuple[str, int, float]) -> Path:
        for arm, seed, score in runs:
            steps = (0, 2, 8) if arm == "electra" else (2, 8)
            rows = [{"step": step, "scores": {"0": score if step else 0.25}} for step in steps]
            tasks = [{"task": task, "metric": "f1", "results": rows} for task in ("qnli", "stsb", "mnli", "qqp")]
            write_record(tmp_path / "records.jsonl", make_run(arm, seed), tasks)
        return tmp_path / "records.jsonl"

    return build


def test_the_score_is_the_mean_over_tasks_of_the_medians_over_seeds_of_fine_tuning(make_run):
    run = make_run("electra", 0, qnli={8: [0.5, 0.9, 0.6]}, stsb={8: [0.2]}, mnli={8: [0.3, 0.5]}, qqp={8: [0.8]})
    assert task_score(run, "qnli", 8) == 0.6
    assert task_score(run, "score", 8) == pytest.approx((0.6 + 0.2 + 0.4 + 0.8) / 4)
    assert task_score(run, "score", 2) is None
    assert arm_scores([run, make_run("electra", 1, qnli={8: [math.nan, 0.5]})], "qnli") == [0.6]


def test_intervals_are_by_welchs_t():
    """Variances 4 and 1 of three values each: standard error sqrt(5 / 3), 50 / 17 degrees of freedom, t = 3.21876."""
    difference = compare([61.0, 63.0, 65.0], [60.0, 61.0, 59.0])
    assert difference[:3] == pytest.approx((3.0, 3.0 - 4.1554, 3.0 + 4.1554), abs=1e-4)
    assert difference.half_width == pytest.approx(4.1554, abs=1e-4)


@pytest.mark.parametrize(
    ("comparison", "word"),
    [
        (MeanDifference(0.02, 0.001, 0.039), "shown"),
        (MeanDifference(-0.02, -0.039, -0.001), "reversed"),
        (MeanDifference(0.02, -0.001, 0.041), "not shown"),
        (MeanDifference(-0.02, -0.039, -0.001, gain=0.0185), "no signal"),
        (compare([0.5, 0.51], [0.4, 0.41], untrained=[0.3, 0.32]), "shown"),
        (compare([0.5, 0.51], [0.4, 0.41], untrained=[0.5, 0.49]), "no signal"),
        (compare([0.5], [0.5, 0.75, 0.25]), "not run"),
        (compare([0.5, 0.75], []), "not run"),
    ],
)
def test_the_outcome_of_a_comparison(comparison, word):
    assert comparison.word == word


@pytest.mark.parametrize(
    ("arm", "metrics", "passed"),
    [
        ("electra", {"replaced_token_loss": 0.44, "constant_predictor_loss": 0.5, "replaced_token_auc": 0.76}, True),
        ("electra", {"replaced_token_loss": 0.46, "constant_predictor_loss": 0.5, "replaced_token_auc": 0.76}, False),
        ("electra", {"replaced_token_loss": 0.44, "constant_predictor_loss": 0.5, "replaced_token_auc": 0.74}, False),
        ("bert_mlm", {"mask_token_loss": 5.79, "unigram_loss": 6.5}, True),
        ("bert_mlm_paper_flops", {"mask_token_loss": 5.81, "unigram_loss": 6.5}, False),
        # Every sample was right, so the constant answer has no loss.
        ("electra", {"replaced_token_loss": 0.1, "constant_predictor_loss": 0.0, "replaced_token_auc": 0.76}, False),
        ("electra_15", {"mask_token_loss": 6.5, "unigram_loss": 6.5}, None),
        ("electra_15", LEARNT["electra"], None),
        ("all_tokens_mlm", {}, None),
    ],
)
def test_the_gate_needs_more_than_a_constant_answer_or_token_frequencies(make_run, arm, metrics, passed):
    assert gate_of(make_run(arm, 0, metrics)).passed is passed


def test_the_gate_ignores_a_discriminator_of_masked_tokens_only(make_run):
    metrics = {**LEARNT["electra"], **LEARNT["bert_mlm"]}
    assert gate_of(make_run("electra_15", 0, metrics)) == (None, None, 1.0, None)


def test_the_gate_shows_margin_auc_and_nats(make_run):
    gate = gate_of(make_run("electra", 0, LEARNT["electra"] | LEARNT["bert_mlm"]))
    assert (gate.margin, gate.auc, gate.nats) == (pytest.approx(0.2), 0.875, 1.0)


def test_the_tables_show_runs_that_passed_the_gate_and_name_the_others(write_records, make_run):
    records = write_records(
        ("electra", 3, 0.75),
        ("electra", 5, 0.875),
        ("bert_mlm", 3, 0.5),
        ("bert_mlm", 5, 0.5625),
        ("electra_15", 3, 0.5),
    )
    failed = make_run("bert_mlm", 7, {"mask_token_loss": 6.25, "unigram_loss": 6.5})
    write_record(records, failed, [])
    lines = results_markdown(read_arms(records), "page.png", COMPARISONS["paper"]).splitlines()
    rows = {line.split(" | ")[0].strip("| "): line for line in lines if line.startswith("| ")}
    gate = [line for line in lines if line.endswith(" of 2 |  |") or line.endswith(" of 3 |  |")]
    assert " | 20.0 (20.0, 20.0) | 87.5 (87.5, 87.5) |  | 2 of 2 |" in gate[0]
    assert " |  |  | 0.75 (1.00, 1.00, 0.25) | 2 of 3 |" in gate[1]
    assert "Not compared, as they have not learnt enough: bert_mlm-seed7." in lines
    assert rows["electra"].startswith("| electra | 81.2 (75.0, 87.5) | 81.2 (75.0, 87.5) |")
    assert rows["bert_mlm"].startswith("| bert_mlm | 53.1 (50.0, 56.2) |")
    assert rows["electra_15"].startswith("| electra_15 | 50.0 | ")
    assert rows["untrained"].startswith("| untrained | 25.0 (25.0, 25.0) |")
    # Standard errors of 1/16 and 1/32, so 1.4706 degrees of freedom.
    pairs = [line for line in lines if line.startswith("| electra - ")]
    assert pairs[0] == "| electra - bert_mlm | score | 2 and 2 | +28.12 | -15.12 to +71.37 | 43.24 | not shown |"
    assert "| electra - bert_mlm | truecasing | 0 and 0 |  |  |  | not run |" in pairs
    assert "| electra - electra_15 | score | 2 and 1 |  |  |  | not run |" in pairs


def test_the_accuracy_of_appendix_g_is_shown_if_it_was_measured(make_run):
    run = make_run("electra", 0)
    run.notes["as_masked_lm"] = {"masked_lm_accuracy": 0.25, "generator_accuracy": 0.125}
    text = results_markdown([run, make_run("bert_mlm", 0)], "page.png", COMPARISONS["paper"])
    assert "| electra | 25.0 | 12.5 |  |\n" in text
    assert "appendix G" not in results_markdown([make_run("electra", 0)], "page.png", COMPARISONS["paper"])


def test_a_curve_of_scores_uses_the_runs_with_the_most_milestones(make_run, monkeypatch):
    drawn = []
    monkeypatch.setattr(results, "png_picture", lambda groups, *_: drawn.extend(groups))
    scores = {3: {0: [0.1], 8: [0.75]}, 4: {2: [0.25], 8: [0.5]}, 5: {2: [0.375], 8: [0.625]}}
    picture_of([make_run("electra", seed, truecasing=by_step) for seed, by_step in scores.items()])
    points = drawn[0].points("finetuned_truecasing")
    assert [(point.step, point.median, point.lowest) for point in points] == [(2, 0.3125, 0.25), (8, 0.5625, 0.5)]


BEGIN, END = markers(COMPARISONS["paper"])


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The page that --remake writes."""
    monkeypatch.setattr(replication, "PAGE", tmp_path / "page.md")
    return tmp_path / "page.md"


def test_every_record_of_the_project_can_be_read():
    files = [file for file in replication.OWN_RECORDS.iterdir() if not file.stem.endswith("_peers")]
    assert sum(len(read_arms(file)) for file in files) == 83


def test_a_page_without_markers_is_not_remade(capsys):
    assert replication.main(["--remake", "--comparison=ladder"]) == 2
    assert "commit" in capsys.readouterr().err


def test_a_page_keeps_its_results_if_no_record_exists(page, tmp_path, capsys):
    page.write_text(f"{BEGIN}\nold\n{END}\n", encoding="utf-8")
    assert replication.main(["--remake", f"--records={tmp_path / 'none'}"]) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err
    assert page.read_text() == f"{BEGIN}\nold\n{END}\n"


@pytest.mark.parametrize(
    ("last_step", "changes"),
    [(6, {}), (8, {"train": {"num_steps": 9}}), (8, {"optimizer": {"learning_rate": 0.25}})],
)
def test_records_of_one_arm_that_differ_in_more_than_the_seed_are_refused(tiny_config, tmp_path, last_step, changes):
    for seed, step, settings in ((3, 8, {}), (5, last_step, changes)):
        config = tiny_config(**settings | {"train": {"seed": seed} | settings.get("train", {})})
        run = RunResults(f"electra-seed{seed}", config, {step: LEARNT["electra"]})
        write_record(tmp_path / "records.jsonl", run, [])
    with pytest.raises(UserError, match="electra-seed3 and electra-seed5"):
        read_arms(tmp_path / "records.jsonl")


@pytest.mark.parametrize("name", [name for name, each in COMPARISONS.items() if each.marker])
def test_the_projects_page_shows_the_results_of_its_records(name, monkeypatch):
    written = {}
    monkeypatch.setattr(results, "write_atomically", lambda path, content: written.update({path: content}))
    results.remake(replication.OWN_RECORDS / f"{name}.jsonl", replication.PAGE, COMPARISONS[name])
    assert written[str(replication.PAGE)] == replication.PAGE.read_bytes()


def test_scores_of_squad_which_are_in_percent_already_are_shown_as_they_are(make_run):
    run = make_run("bert_mlm", 0, squad_v1={8: [11.0]})
    assert "| bert_mlm | 11.0 |" in results_markdown([run], "page.png", COMPARISONS["switch"])


def test_a_comparison_without_milestones_leaves_the_picture_of_its_page_alone(write_records, tmp_path):
    page = tmp_path / "notes.md"
    page.write_text("{}\nold\n{}\n".format(*markers(COMPARISONS["switch"])))
    results.remake(write_records(("electra", 3, 0.5), ("electra", 5, 0.5)), page, COMPARISONS["switch"])
    assert "50.0 (50.0, 50.0)" in page.read_text()
    assert "png" not in page.read_text() and not list(tmp_path.glob("*.png"))


def test_a_record_is_read_back_with_measured_numbers_rounded(tiny_config, tmp_path):
    held_out = {4: {"masked_lm_accuracy": 0.125}, 12: {"masked_lm_accuracy": 0.1234567891}}
    config = tiny_config(optimizer={"learning_rate": 0.00123456789})
    run = RunResults("electra-0", config, held_out, data=["wikipedia"], notes={"seconds": 1234.5678, "machine": "x"})
    rows = milestone_scores({4: {0: 0.5, 3: math.nan}, 12: {0: 0.75}}, run.cost)
    file = tmp_path / "records.jsonl"
    for name in ("electra-1", "electra-0"):
        named = dataclasses.replace(run, name=name)
        write_record(file, named, [])
        write_record(file, named, [{"task": "rte", "metric": "accuracy", "results": rows}])  # replaces the first
    (loaded, other), text = read_records(file), file.read_text()
    assert text == "".join(json.dumps(json.loads(line), sort_keys=True) + "\n" for line in text.splitlines())
    assert (loaded.name, other.name) == ("electra-0", "electra-1")
    assert (loaded.config, loaded.data, loaded.init_from) == (config, run.data, None)
    assert loaded.metrics == {4: {"masked_lm_accuracy": 0.125}, 12: {"masked_lm_accuracy": 0.123457}}
    assert list(loaded.metrics) == [4, 12]
    assert loaded.scores["finetuned_rte"][4] == (0.5, pytest.approx(math.nan, nan_ok=True))
    assert loaded.scores["finetuned_rte"][12] == (0.75,)
    assert loaded.notes == {"seconds": 1234.57, "machine": "x"}


def test_another_json_file_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"held_out": {}}\n')
    with pytest.raises(UserError, match=r"a\.jsonl:1"):
        read_records(tmp_path / "a.jsonl")
