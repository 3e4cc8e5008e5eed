"""Files of multiple choice: SWAG, RACE, COPA and a user's own, and mistakes in them."""

import json

import pytest

from electra_tf.tasks.finetune.multiple_choice import read_choices

SWAG = {"sent1": "Ann sits_.", "sent2": "She", "ending0": "runs", "ending1": "sings", "ending2": "eats", "label": 2}
COPA = {"premise": "It rained.", "choice1": "Ann got wet.", "choice2": "Bo slept.", "question": "effect", "label": 0}
RACE = {
    "id": "high7.txt",
    "article": "Ann came.",
    "questions": ["Who came?", "__ came."],
    "options": [["Ann", "Bo"], ["Cy", "Ann", "Di"]],
    "answers": ["A", "B"],
}
FLAT_RACE = {"article": "Ann came.", "question": "_ came.", "options": ["Bo", "Ann"], "answer": "B"}
OWN = {"context": "Ann came.", "choices": ["She sat.", "It", "He"], "label": 1}


def lines(*objects: dict) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in objects)


@pytest.mark.parametrize(
    ("row", "context", "choices", "label"),
    [
        (SWAG, "Ann sits_.", ["She runs", "She sings", "She eats"], 2),
        (
            COPA,
            "It rained.",
            ["What happened as a result? Ann got wet.", "What happened as a result? Bo slept."],
            0,
        ),
        (COPA | {"question": "cause"}, "It rained.",
         ["What was the cause of this? Ann got wet.", "What was the cause of this? Bo slept."], 0),
        (FLAT_RACE, "Ann came.", ["Bo came.", "Ann came."], 1),
        (FLAT_RACE | {"question": "Who came?"}, "Ann came.", ["Who came? Bo", "Who came? Ann"], 1),
        (OWN, "Ann came.", ["She sat.", "It", "He"], 1),
        (OWN | {"question": "Then"}, "Ann came.", ["Then She sat.", "Then It", "Then He"], 1),
        (OWN | {"question": "my_fn gives _?"}, "Ann came.",
         ["my_fn gives She sat.?", "my_fn gives It?", "my_fn gives He?"], 1),
        (OWN | {"question": "__x__ a_", "choices": ["b", "c"]}, "Ann came.", ["__x__ a_ b", "__x__ a_ c"], 1),
        (OWN | {"question": "他___走了"}, "Ann came.", ["他She sat.走了", "他It走了", "他He走了"], 1),
        (OWN | {"question": "a ___ b", "choices": [r"\1", "c"]}, "Ann came.", [r"a \1 b", "a c b"], 1),
    ],
)  # fmt: skip
def test_each_layout_gives_a_context_choices_and_the_index_of_the_right_one(write, row, context, choices, label):
    examples = read_choices(write("train.jsonl", lines(row)))
    assert (examples.inputs[0], examples.inputs[1], examples.labels) == ([context], [choices], [label])
    assert (examples.ids, examples.where(0)[-13:]) == (["0"], "train.jsonl:1")


def test_an_article_of_race_has_an_example_for_each_question(write):
    examples = read_choices(write("race.jsonl", lines(RACE, RACE | {"id": "high8.txt"})))
    assert examples.inputs[0] == ["Ann came."] * 4
    assert examples.inputs[1][:2] == [["Who came? Ann", "Who came? Bo"], ["Cy came.", "Ann came.", "Di came."]]
    assert (examples.labels, list(examples.rows)) == ([0, 1, 0, 1], [1, 1, 2, 2])
    assert examples.ids == ["high7.txt-0", "high7.txt-1", "high8.txt-0", "high8.txt-1"]


def test_swag_is_read_from_csv_and_parquet_alike(write, write_parquet):
    content = f"{','.join(SWAG)}\n{','.join(map(str, SWAG.values()))}\n"
    of_csv = read_choices(write("swag.csv", content))
    columns = {name: [value] for name, value in SWAG.items()}
    of_parquet = read_choices(write_parquet("swag.parquet", columns, ("0", "1", "2")))
    assert (of_csv.inputs, of_csv.labels) == (of_parquet.inputs, of_parquet.labels)
    assert of_csv.where(0).endswith("swag.csv:2")


@pytest.mark.parametrize("row", [SWAG | {"label": -1}, {name: OWN[name] for name in ("context", "choices")}, RACE])
def test_new_text_needs_no_labels(write, row):
    row = {name: value for name, value in row.items() if name != "answers"}
    assert read_choices(write("new.jsonl", lines(row)), may_lack_labels=True).labels is None


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        ([{"sent1": "a", "text": "b"}], ["a.jsonl has the columns sent1, text", "SWAG: sent1, sent2, ending0"]),
        ([{"context": "a", "choices": ["b"]}], ["a.jsonl has no column 'label'"]),
        ([RACE | {"answers": ["A"]}], ["a.jsonl:1", "answers"]),
        ([RACE | {"questions": [], "options": [], "answers": []}], ["a.jsonl has no questions"]),
        ([COPA, COPA | {"question": "why"}], ["a.jsonl:2", "'why'", "cause or effect"]),
        ([COPA | {"question": ["cause"]}], ["a.jsonl:1", "['cause']"]),
        ([OWN, OWN | {"label": 3}], ["a.jsonl:2", "label 3", "0 to 2"]),
        ([OWN | {"label": -1}], ["a.jsonl:1", "label -1"]),
        ([OWN | {"label": 0.5}], ["a.jsonl:1", "label 0.5"]),
        ([OWN | {"label": None}], ["a.jsonl:1", "label None"]),
        ([OWN | {"label": "D"}], ["a.jsonl:1", "label 'D'", "letter to C"]),
        ([OWN, OWN | {"context": None}], ["a.jsonl:2", "None as its context"]),
        ([OWN | {"question": 5}], ["a.jsonl:1", "5 as its question"]),
        ([OWN | {"choices": "a b"}], ["a.jsonl:1", "'a b' as its choices", "a list"]),
        ([OWN, OWN | {"choices": []}], ["a.jsonl:2", "[] as its choices"]),
        ([OWN | {"choices": ["a", " "]}], ["a.jsonl:1", "' ' as choice 1"]),
        ([SWAG | {"ending1": None}], ["a.jsonl:1", "None as choice 1"]),
    ],
)
def test_a_mistake_in_a_file_is_reported_with_its_place(write, refusal, rows, parts):
    message = refusal(read_choices, write("a.jsonl", lines(*rows)))
    for part in parts:
        assert part in message, (part, message)
