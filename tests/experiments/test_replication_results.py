"""The results of the replication, compared with values computed by hand, and the page that shows them."""

import dataclasses
import itertools
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
from experiments.replication.ladder import search_markdown
from experiments.replication.outcome import MeanDifference, arm_scores, compare, gate_of, task_score
from experiments.replication.record import read_record, write_record
from experiments.replication.results import instrument_markdown, markers, picture_of, read_records, results_markdown

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
    """`write_records(("electra", 3, 0.5))`: records in `tmp_path`/page of runs with one score on all tasks."""

    def build(*runs: tuple[str, int, float]) -> Path:
        directory = tmp_path / "page"
        directory.mkdir(exist_ok=True)
        for arm, seed, score in runs:
            steps = (0, 2, 8) if arm == "electra" else (2, 8)
            rows = [{"step": step, "scores": {"0": score if step else 0.25}} for step in steps]
            tasks = [{"task": task, "metric": "f1", "results": rows} for task in ("qnli", "stsb", "mnli", "qqp")]
            write_record(directory / f"{arm}-seed{seed}.json", make_run(arm, seed), tasks)
        return directory

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
    directory = write_records(
        ("electra", 3, 0.75),
        ("electra", 5, 0.875),
        ("bert_mlm", 3, 0.5),
        ("bert_mlm", 5, 0.5625),
        ("electra_15", 3, 0.5),
    )
    failed = make_run("bert_mlm", 7, {"mask_token_loss": 6.25, "unigram_loss": 6.5})
    write_record(directory / "bert_mlm-seed7.json", failed, [])
    lines = results_markdown(read_records(directory), "page.png", COMPARISONS["paper"]).splitlines()
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
    monkeypatch.setitem(replication.PAGES, "paper", tmp_path / "page.md")
    return tmp_path / "page.md"


def test_every_record_of_the_project_can_be_read():
    runs = [file for file in replication.OWN_RECORDS.rglob("*.json") if file.parent.name != "peers"]
    assert runs
    for file in runs:
        read_record(file)


def test_the_page_is_remade_between_its_markers(write_records, page):
    directory = write_records(("electra", 3, 0.75), ("electra", 5, 0.875), ("bert_mlm", 3, 0.5))
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    assert replication.main(["--remake", f"--record_dir={directory}"]) == 0
    expected = results_markdown(read_records(directory), "page.png", COMPARISONS["paper"])
    assert page.read_text(encoding="utf-8") == f"before\n{BEGIN}\n{expected}{END}\nafter\n"
    assert page.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("flags", "directory"),
    [
        ([], replication.OWN_RECORDS / "paper"),
        (["--comparison=modern"], replication.OWN_RECORDS / "modern"),
        (["--output_dir=runs"], Path("runs/records")),
        (["--output_dir=runs", "--record_dir=kept"], Path("kept")),
    ],
)
def test_remake_reads_the_projects_records_unless_a_directory_is_given(monkeypatch, flags, directory):
    given = []
    monkeypatch.setattr(results, "remake", lambda *paths: given.append(paths))
    assert replication.main(["--remake", *flags]) == 0
    name = "modern" if "--comparison=modern" in flags else "paper"
    assert given == [(directory, replication.PAGES[name], COMPARISONS[name])]


def test_a_page_keeps_its_results_if_no_record_exists(page, tmp_path, capsys):
    page.write_text(f"{BEGIN}\nold\n{END}\n", encoding="utf-8")
    assert replication.main(["--remake", f"--record_dir={tmp_path / 'none'}"]) == 2
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
        write_record(tmp_path / f"{run.name}.json", run, [])
    with pytest.raises(UserError, match=r"electra-seed3\.json and electra-seed5\.json"):
        read_records(tmp_path)


@pytest.mark.parametrize("name", sorted(path.name for path in replication.OWN_RECORDS.iterdir()))
def test_the_projects_page_shows_the_results_of_its_records(name, monkeypatch):
    written = {}
    monkeypatch.setattr(results, "write_atomically", lambda path, content: written.update({path: content}))
    page = replication.PAGES[name]
    results.remake(replication.OWN_RECORDS / name, page, COMPARISONS[name])
    assert written[str(page)] == page.read_bytes()


def test_the_instrument_keeps_the_tasks_in_which_training_gains_two_standard_errors(make_run):
    """Variances 4e-4 / 3 and 1e-4 / 3: a standard error of 1.29 points."""
    scores = {"qnli": (0.60, 0.62, 0.64), "cola": (0.57, 0.58, 0.59), "sst2": (0.8, 0.8, 0.8)}
    untrained = {"qnli": (0.58, 0.59, 0.60), "cola": (0.565, 0.58, 0.585)}
    runs = [
        make_run(
            "bert_mlm",
            seed,
            **{
                task: {8: [values[seed]], 0: [untrained[task][seed]]} if task in untrained else {8: [values[seed]]}
                for task, values in scores.items()
            },
        )
        for seed in range(3)
    ]
    rows = instrument_markdown(runs, COMPARISONS["instrument"]).splitlines()
    assert "| qnli | 62.0 (60.0, 62.0, 64.0) | 59.0 (58.0, 59.0, 60.0) | +3.0 | 2.6 | **yes** |" in rows
    assert "| cola | 58.0 (57.0, 58.0, 59.0) | 57.7 (56.5, 58.0, 58.5) | +0.3 | 1.7 | no |" in rows
    assert "| sst2 | 80.0 (80.0, 80.0, 80.0) |  |  |  | not run |" in rows


def test_scores_of_squad_which_are_in_percent_already_are_shown_as_they_are(make_run):
    scores, untrained = (11.0, 12.0, 13.0), (8.0, 9.0, 10.0)
    runs = [make_run("bert_mlm", seed, squad_v1={8: [scores[seed]], 0: [untrained[seed]]}) for seed in range(3)]
    rows = instrument_markdown(runs, COMPARISONS["instrument"]).splitlines()
    assert "| squad_v1 | 12.0 (11.0, 12.0, 13.0) | 9.0 (8.0, 9.0, 10.0) | +3.0 | 1.6 | **yes** |" in rows


def test_a_search_chooses_the_run_of_each_configuration_with_the_highest_median_in_truecasing(make_run):
    scores = {"electra,lambda=20": [0.7, 0.5, 0.6], "electra,lambda=50": [0.1, 0.95, 0.8], "bert_mlm,rate=1e-3": [0.4]}
    comparison = dataclasses.replace(COMPARISONS["ladder_search"], order=((*scores, "bert_mlm,rate=4e-3"),))
    runs = []
    for arm, seeds in scores.items():
        run = make_run(arm.partition(",")[0], 3, truecasing={8: seeds})
        runs.append(dataclasses.replace(run, name=f"{arm}-seed3"))
    assert search_markdown(runs, comparison).splitlines()[2:] == [
        "| electra,lambda=20 | 8 | 60.0 (70.0, 50.0, 60.0) | 20.0 |  | no |",
        "| electra,lambda=50 | 8 | 80.0 (10.0, 95.0, 80.0) | 20.0 |  | **yes** |",
        "| bert_mlm,rate=1e-3 | 8 | 40.0 |  | 1.00 | not decided |",
    ]
    with pytest.raises(UserError, match="one seed of an arm"):
        search_markdown([*runs, dataclasses.replace(runs[0], name="electra,lambda=20-seed5")], comparison)


def test_of_equal_scores_a_search_chooses_the_first(make_run):
    arms = ("electra,lambda=50", "electra,lambda=20")
    comparison = dataclasses.replace(COMPARISONS["ladder_search"], order=(arms,))
    runs = [dataclasses.replace(make_run("electra", 3, truecasing={8: [0.6]}), name=f"{arm}-seed3") for arm in arms]
    assert [row.rsplit(" | ", 1)[1] for row in search_markdown(runs, comparison).splitlines()[2:]] == [
        "**yes** |",
        "no |",
    ]


def test_a_ladder_without_rungs_keeps_the_results_of_its_page(tmp_path):
    (tmp_path / "30000-old").mkdir()
    with pytest.raises(UserError, match="no directory of a rung"):
        results.remake(tmp_path, tmp_path / "page.md", COMPARISONS["ladder"])


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
    file = tmp_path / "electra-0.json"
    write_record(file, run, [{"task": "rte", "metric": "accuracy", "results": rows}])
    loaded, text = read_record(file), file.read_text()
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"
    assert (loaded.name, loaded.config, loaded.data, loaded.init_from) == (run.name, config, run.data, None)
    assert loaded.metrics == {4: {"masked_lm_accuracy": 0.125}, 12: {"masked_lm_accuracy": 0.123457}}
    assert list(loaded.metrics) == [4, 12]
    assert loaded.scores["finetuned_rte"][4] == (0.5, pytest.approx(math.nan, nan_ok=True))
    assert loaded.scores["finetuned_rte"][12] == (0.75,)
    assert loaded.notes == {"seconds": 1234.57, "machine": "x"}


def test_another_json_file_is_refused(tmp_path):
    (tmp_path / "a.json").write_text('{"held_out": {}}')
    with pytest.raises(UserError, match=r"a\.json"):
        read_record(tmp_path / "a.json")


@pytest.fixture
def ladder_page(make_run, tmp_path):
    """The page of three rungs, the highest of which has no scores."""
    for steps, gap in ((8, -0.1), (80, 0.1), (800, None)):
        (tmp_path / "ladder" / str(steps)).mkdir(parents=True)
        for arm, seed in itertools.product(("ladder_electra", "ladder_bert_mlm"), (3, 5)):
            score = 0.5 + 0.01 * (seed - 4) + (gap if arm == "ladder_electra" and gap else 0.0)
            run = make_run(arm, seed)
            config = run.config.model_copy(update={"train": run.config.train.model_copy(update={"num_steps": steps})})
            run = dataclasses.replace(run, config=config, metrics={steps: run.metrics[8]})
            rows = [{"step": steps, "scores": {"0": score}}]
            tasks = [{"task": "truecasing", "metric": "f1", "results": rows}] * (gap is not None)
            write_record(tmp_path / "ladder" / str(steps) / f"{run.name}.json", run, tasks)
    page = tmp_path / "page.md"
    page.write_text("{}\nold\n{}\n".format(*markers(COMPARISONS["ladder"])))
    results.remake(tmp_path / "ladder", page, COMPARISONS["ladder"])
    return page.read_text()


def test_each_rung_of_the_ladder_says_what_its_arms_have_learnt(ladder_page):
    rows = [line.split(" | ") for line in ladder_page.splitlines() if line.startswith("| ladder_")]
    assert [(row[0], row[1], row[5], row[-1]) for row in rows] == [
        (f"| {arm}", steps, below_constant, below_frequencies)
        for steps in ("8", "80", "800")
        for arm, below_constant, below_frequencies in (
            ("ladder_electra", "20.0 (20.0, 20.0)", " |"),
            ("ladder_bert_mlm", "", "1.00 (1.00, 1.00) |"),
        )
    ]


def test_each_scored_rung_of_the_ladder_has_a_row_and_all_of_them_a_slope(ladder_page):
    rows = [line.split(" | ") for line in ladder_page.splitlines() if line.startswith("| 8")]
    assert [[row[0], *row[2:5]] for row in rows] == [
        ["| 8", "40.0 (39.0, 41.0)", "50.0 (49.0, 51.0)", "-10.00"],
        ["| 80", "60.0 (59.0, 61.0)", "50.0 (49.0, 51.0)", "+10.00"],
    ]
    assert "With ten times the FLOPs the gap changes by +20.00 points" in ladder_page
