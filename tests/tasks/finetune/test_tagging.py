"""Tagged sentences: both file layouts, tag schemes, and mistakes in the files."""

import numpy as np
import pytest

from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.examples import Examples
from electra_tf.tasks.finetune.kinds.conll import read_tagged
from electra_tf.tasks.finetune.kinds.tagging import tag_labels, tag_targets
from tests.toy import toy_finetuning_config

CONLL = "-DOCSTART- -X- O\n\nOld NN B-NP\nharbour\u00a0x NN I-NP\n\n\nfell VB O\r\n"


def tagged(*sentences: str) -> Examples:
    tags = [sentence.split() for sentence in sentences]
    rows = [[10 * row + word for word in range(len(sentence))] for row, sentence in enumerate(tags)]
    return Examples(([["w"] * len(sentence) for sentence in tags],), tags, ["" for _ in tags], "dev.txt", rows)


def test_the_first_conll_column_is_the_word_and_the_last_is_the_tag(write):
    examples = read_tagged(write("a.txt", CONLL))
    assert examples.inputs[0] == [["Old", "harbour\u00a0x"], ["fell"]]
    assert examples.labels == [["B-NP", "I-NP"], ["O"]]
    assert (examples.rows, examples.ids) == ([[3, 4], [7]], ["0", "1"])


@pytest.mark.parametrize(
    ("content", "known", "words"),
    [
        ("Old\nharbour\n\nfell\n", ("O",), [["Old", "harbour"], ["fell"]]),
        (CONLL, ("B-VP",), [["Old", "harbour\u00a0x"], ["fell"]]),
        ('{"tokens": ["a", "cat"], "ner_tags": [0, 1]}\n', ("O", "B"), [["a", "cat"]]),  # ids without names
        ("#\thttp://a.b\t[2009]\n1\tOld\n2\tYork\n\n1\tfell\n", ("O", "B"), [["Old", "York"], ["fell"]]),
    ],
)
def test_words_are_read_without_tags_for_prediction(write, content, known, words):
    examples = read_tagged(write("a.jsonl" if content.startswith("{") else "a.txt", content), known)
    assert (examples.inputs[0], examples.labels) == (words, None)


@pytest.mark.parametrize("names", [("words", "tags"), ("tokens", "labels")])
def test_json_lines_give_words_and_tags(write, names):
    path = write("a.jsonl", '{{"id": 5, "{}": ["tr:a", "tr:b"], "{}": ["B-NP", "I-NP"]}}\n'.format(*names))
    examples = read_tagged(path)
    assert (examples.inputs[0], examples.labels, examples.ids) == ([["a", "b"]], [["B-NP", "I-NP"]], ["5"])
    assert read_tagged(path, ()) == examples


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("a.txt", "Old NN B-NP\nharbour I-NP\n", ["a.txt:2", "2 columns", "3"]),
        ("a.tsv", "words\ttags\nOld York\tB I\n", ["a.tsv begins with 'words", "names of columns"]),
        ("a.txt", "\n\n", ["a.txt has no examples"]),
        ("a.txt", "-DOCSTART- -X- O O\n\n", ["a.txt has no examples"]),
        ("a.txt", "Alice lives in Paris .\nBob sleeps .\n", ["a.txt:2 has 3 columns, expected 5: one word a line"]),
        ("a.jsonl", '{"words": ["a"], "tags": ["O", "O"]}\n', ["a.jsonl:1", "'tags'"]),
        ("a.jsonl", '{"tokens": ["a", "b"], "ner_tags": [-100, 0]}\n', ["a.jsonl:1", "'ner_tags'"]),
        ("a.jsonl", '{"tokens": ["a", "b"], "ner_tags": ["O", null]}\n', ["a.jsonl:1", "'ner_tags'"]),
        ("a.jsonl", '{"words": ["b", "a\\tc"], "tags": ["O", "O"]}\n', ["a.jsonl:1", r"'a\tc'"]),
    ],
)
def test_a_mistake_in_a_file_is_reported_with_its_place(write, refusal, name, content, parts):
    message = refusal(read_tagged, write(name, content))
    assert all(part in message for part in parts), message


COMMENTS = "# sent_id = 1\n# text = a b\n"


@pytest.mark.parametrize(
    "content",
    [
        "1 Old B\n2 harbour I\n\n3 fell O\n",  # through the file
        COMMENTS + "1-2\tZum\t_\n1\tZu\tADP\n2\tdem\tDET\n2.1\tx\tX\n3\t.\tPUNCT\n\n" + COMMENTS + "1\tJa\tINTJ\n",
        "1 Old B\n1 harbour I\n1 fell O\n\n2 Yes O\n2 . O\n",  # sentences
    ],
)
@pytest.mark.parametrize("read", [read_tagged, lambda path: read_tagged(path, ("O",))], ids=["train", "predict"])
def test_a_first_column_that_counts_is_not_taken_for_the_words(write, refusal, content, read):
    message = refusal(read, write("a.conllu", content))
    assert "a.conllu:" in message and "first column" in message and "cut" not in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("re:a O\nb O\n", [["re:a", "b"]]),  # the code of a language is before every word
        ("en:a O\n\nzh-yue:b O\n", [["a"], ["b"]]),
        ("1998 O\nwas O\n", [["1998", "was"]]),
        ("1 O\n2 O\n\n5 O\n", [["1", "2"], ["5"]]),
        ("#\tO\nOld\tO\n", [["#", "Old"]]),
        ("I O\n#one B\n\t\nA O\n#two B\n", [["I", "#one"], ["A", "#two"]]),  # only an empty line has a tab
        ("# new document\nOld\tB\nharbour\tI\n\n# id\nfell\tO\n", [["Old", "harbour"], ["fell"]]),
        ("# id = 1\nOld a b O\n\nfell a b B\n\n# id = 2\n# x y z\nYork a b O\n", [["Old"], ["fell"], ["York"]]),
        ("-DOCSTART- O\n\n# x\nOld O\n\n# y\nYork B\n\nfell O\n", [["Old"], ["York"], ["fell"]]),
        ("# sent_id = 1\nOld O\n\n# newdoc\nfell B\n", [["Old"], ["fell"]]),
        ("It PRP\nis VBZ\n\n# SYM\n5 CD\n", [["It", "is"], ["#", "5"]]),
        ("# B-X\nfell O\n", [["#", "fell"]]),
        ("# SYM\n5 CD\n\nA CD\n# SYM\n", [["#", "5"], ["A", "#"]]),
        ("Token B-PRODUCT\nis O\n", [["Token", "is"]]),
    ],
)
def test_numbers_and_hash_signs_may_be_words_but_comments_are_none(write, content, words):
    assert read_tagged(write("a.conllu", content)).inputs[0] == words


KLUE = "## klue-1\t<\u5317:LC> a\n\u5317\tB-LC\n \tO\n\u00a0a\tO\n\n## klue-2\tb\nb\tO\n"
GERMEVAL = "#\thttp://a.b\t[2009]\n1\tOld\tB-LOC\tO\n2\tYork\tI-LOC\tB-PER\n\n#\thttp://c\t[2010]\n1\tfell\tO\tO\n"
MULTICONER = "\n# id 52-a\tdomain=en\nold _ _ O\n _ _ O\nyork _ _ B-LOC\n\n# id 53-b\tdomain=en\n# _ _ O\n"


@pytest.mark.parametrize(
    ("content", "words", "tags"),
    [
        (KLUE, [["\u5317", " ", "\u00a0a"], ["b"]], [["B-LC", "O", "O"], ["O"]]),
        (GERMEVAL, [["Old", "York"], ["fell"]], [["B-LOC", "I-LOC"], ["O"]]),
        (MULTICONER, [["old", " ", "york"], ["#"]], [["O", "O", "B-LOC"], ["O"]]),
        ("tr:Old\tB-LOC\ntr::\tO\n\ntr:York\tO\n", [["Old", ":"], ["York"]], [["B-LOC", "O"], ["O"]]),
        ("# sent = 1\nOld a b O\n\n# sent = 2\nfell a b B-X\n", [["Old"], ["fell"]], [["O"], ["B-X"]]),
        ("# #\n100 CD\nm NN\n\na DT\n# #\n", [["#", "100", "m"], ["a", "#"]], [["#", "CD", "NN"], ["DT", "#"]]),
        ("#a B-X\nb O\n\n#c B-Y\nd O\n", [["#a", "b"], ["#c", "d"]], [["B-X", "O"], ["B-Y", "O"]]),
        ("@a\tO\n#b\tO\nc d\tB-X\n\t\ne \tO\n", [["@a", "#b", "c d"], ["e"]], [["O", "O", "B-X"], ["O"]]),
        ("\u2028 O\n\u00a0 O\n\u200b B-X \n\u3000\u3000 O\n", [["\u2028", "\u00a0", "\u200b", "\u3000\u3000"]],
         [["O", "O", "B-X", "O"]]),
    ],
    ids=["KLUE", "GermEval", "MultiCoNER", "PAN-X", "comments as wide", "hash words", "tags first", "tags", "spaces"],
)  # fmt: skip
@pytest.mark.parametrize("known", [None, ("O", "B-X", "CD")], ids=["train", "predict"])
def test_files_as_they_are_published_keep_each_word_with_its_tag(write, content, words, tags, known):
    examples = read_tagged(write("a.tsv", content), known)
    assert (examples.inputs[0], examples.labels) == (words, tags)


@pytest.mark.parametrize("name", ["tags", "labels", "ner_tags"])
def test_tags_of_a_parquet_file_have_the_names_of_its_schema(write_parquet, refusal, name):
    feature = {"feature": {"names": ["O", "B-X"], "_type": "ClassLabel"}, "_type": "List"}
    a, b = (
        write_parquet(f"{file}.parquet", {"tokens": [["Old", "sea"]], name: [ids]}, **{name: feature})
        for file, ids in (("a", [1, 0]), ("b", [-100, 0]))
    )
    assert read_tagged(a).labels == [["B-X", "O"]]
    assert "b.parquet:1 has -100" in refusal(read_tagged, b)


@pytest.mark.parametrize(
    ("sentences", "scheme", "labels"),
    [
        *((["I-A O", "O"], scheme, "B-A I-A O") for scheme in ("iob1", "iob2")),
        *((["I-A O", "O"], scheme, "E-A I-A O") for scheme in ("ioe1", "ioe2")),
        (["I-A O", "O"], "bioes", "B-A E-A I-A O S-A"),
        (["I-A O", "O"], "bilou", "B-A I-A L-A O U-A"),
        (["VB NN", "NN"], "plain", "NN VB"),
        # Types may have hyphens or be missing.
        (["B-B-C O"], "iob2", "B-B-C I-B-C O"),
        (["B I O"], "bioes", "B E I O S"),
    ],
)
def test_labels_are_all_tags_of_the_scheme_for_each_type_in_training(sentences, scheme, labels):
    assert tag_labels(tagged(*sentences), scheme) == tuple(labels.split())


@pytest.mark.parametrize(("tag", "scheme"), [("NP", "iob2"), ("S-A", "iob2"), ("E-A", "bilou"), ("B-", "iob1")])
def test_a_tag_outside_of_the_scheme_is_named_with_its_line(refusal, tag, scheme):
    message = refusal(tag_labels, tagged("O", f"O {tag}"), scheme)
    assert f"dev.txt:11 has the tag {tag!r}" in message and scheme in message and "task.scheme" in message


def test_the_tag_of_a_truncated_word_is_part_of_what_is_scored(tiny_encoder):
    config = toy_finetuning_config({"kind": "tagging", "labels": ["O", "B-X"]}, data={"max_seq_length": 8})
    first, second = (
        TaskData(config, tiny_encoder.tokenizer, None, {"dev": tagged(f"O O O O O O O {tag}")}) for tag in ("O", "B-X")
    )
    np.testing.assert_array_equal(first.evaluation.input_ids, second.evaluation.input_ids)
    assert first.data_hash != second.data_hash


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("iob2", {"f1": 2 / 3, "precision": 1.0, "recall": 0.5, "accuracy": 7 / 9, "truncated_words": 2 / 9}),
        ("plain", {"accuracy": 7 / 9, "truncated_words": 2 / 9}),
    ],
)
def test_words_beyond_the_cut_are_counted_apart_and_never_right(tiny_encoder, caplog, scheme, expected):
    task = {"kind": "tagging", "labels": ["O", "B-X"], "scheme": scheme}
    config = toy_finetuning_config(task, data={"max_seq_length": 8})
    data = TaskData(config, tiny_encoder.tokenizer, None, {"dev": tagged("B-X O O O O O O B-X", "O")})
    assert "dev.txt: 2 of 9 words get no prediction" in caplog.text
    assert data.metric_names == (*expected, "loss")
    label_ids, loss = np.array([[0, 1, *[0] * 6], [0] * 8]), np.zeros(2)
    outputs = {"label_ids": label_ids, "probabilities": np.ones([2, 8]), "loss": loss}
    assert data.evaluated(outputs).metrics == pytest.approx(expected | {"loss": 0.0})
    caplog.clear()
    windowed = toy_finetuning_config(task | {"stride": 3}, data={"max_seq_length": 8})
    for fitting, sentence in ((config, "B-X O O O"), (windowed, "B-X O O O O O O B-X")):
        without_cut = TaskData(fitting, tiny_encoder.tokenizer, None, {"dev": tagged(sentence)})
        assert without_cut.metric_names == (*list(expected)[:-1], "loss") and caplog.text == ""


def test_in_python_a_sentence_is_a_list_of_words_with_their_tags_and_probabilities(tiny_encoder):
    config = toy_finetuning_config({"kind": "tagging", "labels": ["O", "B-X"]}, data={"max_seq_length": 8})
    data = TaskData(
        config, tiny_encoder.tokenizer, None, {"dev": Examples(([["w5", "w6"]],), None, ["0"], "dev.txt", [1])}
    )
    outputs = {"label_ids": np.array([[0, 1, 0, 0]]), "probabilities": np.array([[0.5, 0.75, 0.875, 0.5]])}
    rows = data.kind.python_values(data.evaluated(outputs).rows)
    assert rows == [[("w5", "B-X", 0.75), ("w6", "O", 0.875)]]


def test_targets_are_the_ids_of_tags_and_one_missing_in_training_is_named_with_its_line(refusal):
    assert tag_targets(tagged("B-A I-A I-A", "O B-A"), ("B-A", "I-A", "O")) == [[0, 1, 1], [2, 0]]
    message = refusal(tag_targets, tagged("O", "O B-Z"), ("B-A", "O"))
    assert "dev.txt:11" in message and "'B-Z'" in message and "B-A, O" in message
