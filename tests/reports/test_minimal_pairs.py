import json

import numpy as np
import pytest

from electra_tf.config.errors import UserError
from electra_tf.reports.minimal_pairs import Accuracy, pair_lines, read_pairs, results_of, score_pairs
from electra_tf.reports.sentence_scores import scorer_of
from tests.markdown import cells


def pair(good: str = "w5 w6", bad: str = "w6 w5", **groups: str) -> dict:
    return {"sentence_good": good, "sentence_bad": bad, **groups}


@pytest.fixture
def write(tmp_path):
    """`write("a.jsonl", pair(), ...)`: the path of a file with these pairs."""

    def file(name: str, *pairs: dict) -> str:
        (tmp_path / name).write_text("".join(json.dumps(each) + "\n" for each in pairs))
        return str(tmp_path / name)

    return file


def test_the_pairs_of_several_files_have_their_places_and_groups(write):
    first = write("a.jsonl", pair(UID="u", field="syntax"), pair("x", "y", UID="v", pair_id="1"))
    second = write("b.jsonl", pair("z", "zz"))
    pairs = read_pairs([first, second])
    assert pairs.sentences == [("w5 w6", "w6 w5"), ("x", "y"), ("z", "zz")]
    assert pairs.places == [f"{first}:1", f"{first}:2", f"{second}:1"]
    assert pairs.groups == {
        "field": ["syntax", None, None],
        "linguistics_term": [None] * 3,
        "UID": ["u", "v", second],
    }


def test_all_json_lines_files_of_a_directory_are_read_in_the_order_of_their_names(write, tmp_path):
    files = [write(name, pair()) for name in ("b.jsonl", "a.jsonl", "c.txt")]
    assert read_pairs([str(tmp_path)]).groups["UID"] == [files[1], files[0]]


def test_pairs_may_be_the_columns_of_a_table(tmp_path):
    for name, comma in (("a.csv", ","), ("a.tsv", "\t")):
        rows = ("UID,sentence_good,sentence_bad", "u,w5 w6,w6 w5", ",x,y")
        (tmp_path / name).write_text("".join(row.replace(",", comma) + "\n" for row in rows))
        pairs = read_pairs([str(tmp_path / name)])
        assert pairs.sentences == [("w5 w6", "w6 w5"), ("x", "y")]
        assert pairs.groups["UID"] == ["u", str(tmp_path / name)]


def test_a_tie_counts_half_and_the_interval_is_wilsons():
    scores = np.array([[-1.0, -2.0], [-3.0, -3.0], [-5.0, -4.0], [0.5, 0.25], [-2.0, -2.0]])
    # 2 right and 2 ties: share 0.6. With z = 1.96, z^2 / 5 = 0.76832:
    # (0.6 + 0.38416) / 1.76832 -+ sqrt(0.76832 * 0.24 + 0.76832^2 / 4) / 1.76832
    assert Accuracy.of(scores) == (5, 2, 0.6, pytest.approx(0.2307, abs=1e-4), pytest.approx(0.8824, abs=1e-4))


def test_accuracies_are_of_all_pairs_and_of_each_group(write):
    pairs = read_pairs([write("a.jsonl", *(pair(UID=uid, field="f") for uid in "uuuv"))])
    results = results_of(pairs, np.array([[2.0, 1.0], [2.0, 1.0], [1.0, 2.0], [1.0, 2.0]]))
    assert (results.all_pairs.pairs, results.all_pairs.accuracy) == (4, 0.5)
    assert results.groups.keys() == {"field", "UID"}
    assert {name: each.accuracy for name, each in results.groups["UID"].items()} == {"u": 2 / 3, "v": 0.0}
    assert results.mean_over_uid == pytest.approx(1 / 3)
    assert results.to_json()["UID"]["v"]["pairs"] == 1 and json.dumps(results.to_json())
    assert cells(results.table())[1:3] == [
        ["all pairs", "", "4", "0.500", "0.150 to 0.850"],
        ["mean over UID", "", "", "0.333", ""],
    ]


def test_a_line_for_each_pair_holds_both_scores(write):
    pairs = read_pairs([file := write("a.jsonl", pair(), pair("w7", "w8", UID="u"))])
    lines = [json.loads(line) for line in pair_lines(pairs, np.array([[-1.5, -2.0], [3.0, 3.0]])).splitlines()]
    assert lines[0] == pair(place=f"{file}:1", UID=file, score_good=-1.5, score_bad=-2.0)
    assert (lines[1]["place"], lines[1]["score_good"]) == (f"{file}:2", 3.0)


@pytest.mark.parametrize(("bad", "num_tokens"), [("w5 " * 12, 14), ("", 2)])
def test_a_sentence_without_tokens_or_with_more_than_the_positions_is_refused_with_its_line(
    write, pretrained, bad, num_tokens
):
    pairs = read_pairs([file := write("a.jsonl", pair(), pair(bad=bad))])
    with pytest.raises(UserError, match=f"{file}:2: sentence_bad has {num_tokens} tokens.* 13 "):
        score_pairs(scorer_of(pretrained("bert_mlm")[1]), pairs)
