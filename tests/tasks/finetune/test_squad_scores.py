"""SQuAD's scores, of answers that are scored by hand."""

import json

import pytest

from electra_tf.config.errors import UserError
from electra_tf.tasks.finetune.squad import (
    Answer,
    Question,
    choose_null_threshold,
    score_files,
    squad_v1_scores,
    squad_v2_scores,
)


def question(question_id, *answers):
    return Question(question_id, "?", "", tuple(Answer(text, 0) for text in answers), not answers)


FOX, DOG, NOTHING = question("fox", "the red fox", "fox"), question("dog", "dog"), question("nothing")


def test_version_1_scores_the_best_answer_and_0_for_a_missing_prediction():
    scores = squad_v1_scores([FOX, DOG], {"fox": "Fox."})
    assert scores == {"exact_match": 50.0, "f1": 50.0}
    assert list(scores) == ["exact_match", "f1"]


def test_version_2_has_the_keys_of_the_official_script_in_its_order():
    scores = squad_v2_scores([FOX, DOG, NOTHING], {"fox": "red fox", "dog": "", "nothing": ""})
    assert list(scores.items()) == [
        ("exact", 200 / 3),
        ("f1", 200 / 3),
        ("total", 3),
        ("HasAns_exact", 50.0),
        ("HasAns_f1", 50.0),
        ("HasAns_total", 2),
        ("NoAns_exact", 100.0),
        ("NoAns_f1", 100.0),
        ("NoAns_total", 1),
    ]


def test_the_official_threshold_begins_at_0_and_the_chosen_one_below_all_odds():
    predictions = {"fox": "cat", "nothing": "cat"}  # all wrong, so no answer is best
    odds = {"fox": -3.0, "nothing": -5.0}
    assert squad_v2_scores([FOX, NOTHING], predictions, odds)["best_f1_thresh"] == 0.0
    assert choose_null_threshold([FOX, NOTHING], predictions, odds) == -6.0


def test_the_chosen_threshold_separates_answers_by_their_odds():
    predictions = {"fox": "fox", "dog": "dog", "nothing": "fox"}
    odds = {"fox": -4.0, "dog": -2.5, "nothing": -2.0}
    assert choose_null_threshold([FOX, DOG, NOTHING], predictions, odds) == -2.25


def test_the_chosen_threshold_is_above_all_odds_if_all_answers_are_right():
    odds = {"fox": -4.0, "dog": -2.5}
    assert choose_null_threshold([FOX, DOG], {"fox": "fox", "dog": "dog"}, odds) == -1.5


def test_equal_odds_are_not_separated():
    predictions = {"fox": "fox", "nothing": "fox"}
    odds = {"fox": -4.0, "nothing": -4.0}
    assert squad_v2_scores([FOX, NOTHING], predictions, odds)["best_f1"] == 100.0  # the official one
    assert choose_null_threshold([FOX, NOTHING], predictions, odds) == -5.0


def test_missing_predictions_and_odds_are_named():
    with pytest.raises(UserError, match="1 of 2 .*prediction.* dog"):
        squad_v2_scores([FOX, DOG], {"fox": "fox"})
    with pytest.raises(UserError, match="2 of 2 .*null odds.* fox"):
        squad_v2_scores([FOX, DOG], {"fox": "fox", "dog": "dog"}, {})


def test_version_1_refuses_a_question_without_an_answer():
    with pytest.raises(UserError, match="nothing.*squad_v2"):
        squad_v1_scores([FOX, NOTHING], {})


@pytest.fixture
def data_file(tmp_path):
    path = tmp_path / "dev.json"
    qas = [{"id": "fox", "question": "?", "answers": [{"text": "fox", "answer_start": 0}]}]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "fox", "qas": qas}]}]}))
    return path


def test_files_of_predictions_and_odds_are_scored(tmp_path, data_file):
    (tmp_path / "predictions.json").write_text('{"fox": "A fox"}')
    (tmp_path / "odds.json").write_text('{"fox": -1.5}')
    scores = score_files("squad_v2", data_file, tmp_path / "predictions.json", tmp_path / "odds.json")
    assert list(scores)[-4:] == ["best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"]
    assert (scores["f1"], scores["best_f1_thresh"]) == (100.0, -1.5)


@pytest.mark.parametrize("num_lines", [1, 2])
def test_the_output_of_predict_is_scored(tmp_path, data_file, num_lines):
    lines = [{"id": key, "text": "A fox", "null_odds": None, "best_text": "A fox"} for key in ("fox", "other")]
    (tmp_path / "answers").write_text("".join(json.dumps(line) + "\n" for line in lines[:num_lines]))
    assert score_files("squad_v1", data_file, tmp_path / "answers") == {"exact_match": 100.0, "f1": 100.0}


def test_a_line_of_predictions_that_was_cut_off_is_named(tmp_path, data_file):
    (tmp_path / "answers").write_text('{"id": "fox", "text": "A fox"}\n{"id": "dog", "te')
    with pytest.raises(UserError, match="answers:2"):
        score_files("squad_v1", data_file, tmp_path / "answers")


def test_a_prediction_that_is_not_a_text_is_refused(tmp_path, data_file):
    (tmp_path / "predictions.json").write_text('{"fox": null}')
    with pytest.raises(UserError, match="predictions.json: fox"):
        score_files("squad_v1", data_file, tmp_path / "predictions.json")
