"""How many examples lost tokens because they were too long: counted in examples, of every kind and every file."""

import logging

import pytest

from electra_tf.tasks.finetune.kinds.question_answering import question_examples
from electra_tf.tasks.finetune.kinds.squad import Answer, Question

LONG, SHORT = "w5 " * 30, "w6 w7"
PAIR = {"kind": "classification", "labels": ["a", "b"], "text_columns": ["one", "two"]}
CHOICE = {"kind": "multiple_choice"}


@pytest.mark.parametrize(
    ("task", "inputs", "labels", "count"),
    [
        ({"kind": "regression", "text_columns": ["text"]}, ([LONG, SHORT, LONG],), [0.0, 0.5, 1.0], 2),
        (PAIR, ([LONG, SHORT, LONG], [LONG, SHORT, SHORT]), ["a", "b", "a"], 2),
        (PAIR | {"double_unordered": True}, ([LONG, SHORT, SHORT], [LONG, LONG, SHORT]), ["a", "b", "a"], 2),
        ({"kind": "similarity"}, ([LONG, SHORT, LONG], [LONG, SHORT, SHORT]), [0.0, 0.5, 1.0], 2),
        ({"kind": "similarity", "is_contrastive": True}, ([SHORT, SHORT, LONG], [LONG, SHORT, LONG]), [True] * 3, 2),
        (CHOICE, ([LONG, SHORT, LONG], [["w5", "w6", "w7"], ["w5", "w6"], ["w5", "w6"]]), [0, 1, 1], 2),
        ({"kind": "tagging", "labels": ["O"]}, ([LONG.split(), SHORT.split(), LONG.split()],), None, 2),
    ],
    ids=["text", "pair", "both orders", "scored", "contrastive", "choices", "tags"],
)
@pytest.mark.parametrize("is_train", [False, True])
def test_examples_are_counted_not_texts(data_of, caplog, task, inputs, labels, count, is_train):
    caplog.set_level(logging.INFO)
    if labels is None:
        labels = [["O"] * len(words) for words in inputs[0]]
    data_of(task, inputs, labels, is_train=is_train)
    expected = f"dev.csv: {count} of 3 examples were truncated: data.max_seq_length is 12"
    assert [line for line in caplog.messages if " examples " in line] == [expected] * (2 if is_train else 1)


def test_questions_are_cut_and_contexts_are_read_in_windows(data_of, tiny_encoder, caplog):
    caplog.set_level(logging.INFO)
    texts = [("w5 w6 w7 w8 w9", SHORT), ("w5", LONG), ("w5 w6 w7 w8", SHORT), ("w8 " * 9, LONG)]
    asked = [Question(f"q{n}", *each, (Answer("w6", 0),), False) for n, each in enumerate(texts)]
    task = {"kind": "question_answering", "version_2": False, "max_query_length": 4}
    examples = question_examples(asked, "dev.json", is_labelled=True)
    data_of(task, examples.inputs, examples.labels, is_train=False)
    message = caplog.messages[-1]
    assert message.startswith("dev.csv: 2 of 4 examples were truncated: ")
    assert message.endswith("questions end at task.max_query_length 4")


def test_a_context_beyond_all_windows_counts_once_for_each_of_its_questions(data_of, caplog):
    caplog.set_level(logging.INFO)
    book = "w5 " * 5_000  # 12 tokens a row, 64 bytes a token, 16 rows: 12,288 bytes
    asked = [Question(f"q{n}", "w7", context, (), True) for n, context in enumerate((book, SHORT, book))]
    data_of({"kind": "question_answering", "version_2": True}, (asked,), [()] * 3, is_train=False)
    assert caplog.messages[-1].startswith("dev.csv: 2 of 3 examples were truncated: ")


def test_a_test_file_is_counted_too(job_in, own_files, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    (tmp_path / "test.csv").write_text(f"text,label\n{LONG},even\nw5,odd\n{LONG},odd\n")
    job_in(tmp_path, data={"max_seq_length": 12, "test_file": str(tmp_path / "test.csv")})
    counts = [line.partition(" examples")[0] for line in caplog.messages]
    assert counts == [f"{own_files['train_file']}: 1 of 10", f"{tmp_path}/test.csv: 2 of 3"]
