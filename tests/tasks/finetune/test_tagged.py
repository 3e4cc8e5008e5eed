"""Tagged sentences: both layouts, the schemes of tags, and mistakes in the files."""

import pytest

from electra_tf.config.errors import UserError
from electra_tf.tasks.finetune.tagged import (
    TaggedExamples,
    in_scheme,
    read_tagged,
    read_words,
    scheme_of,
    spans_of,
    tag_labels,
    tag_targets,
)

CONLL = "-DOCSTART- -X- O\n\nOld NN B-NP\nharbour\u00a0x NN I-NP\n\n\nfell VB O\r\n"


@pytest.fixture
def write(tmp_path):
    def write_file(name: str, content: str) -> str:
        path = tmp_path / name
        path.write_bytes(content.encode())
        return str(path)

    return write_file


def tagged(*sentences: str) -> TaggedExamples:
    tags = [sentence.split() for sentence in sentences]
    lines = [[10 * row + word for word in range(len(sentence))] for row, sentence in enumerate(tags)]
    return TaggedExamples([["w"] * len(sentence) for sentence in tags], tags, [], "dev.txt", lines)


def refusal(call, *arguments) -> str:
    with pytest.raises(UserError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_conll_columns_have_the_word_first_and_the_tag_last(write):
    examples = read_tagged(write("a.txt", CONLL))
    assert examples.words == [["Old", "harbour\u00a0x"], ["fell"]]
    assert examples.tags == [["B-NP", "I-NP"], ["O"]]
    assert (examples.lines, examples.ids) == ([[3, 4], [7]], ["0", "1"])


def test_words_alone_are_read_for_prediction(write):
    examples = read_words(write("a.txt", "Old\nharbour\n\nfell\n"))
    assert (examples.words, examples.tags) == ([["Old", "harbour"], ["fell"]], None)
    assert read_words(write("b.txt", CONLL)).words == [["Old", "harbour\u00a0x"], ["fell"]]


@pytest.mark.parametrize("names", [("words", "tags"), ("tokens", "labels")])
def test_json_lines_have_words_and_tags(write, names):
    path = write("a.jsonl", '{{"id": 5, "{}": ["Old", "harbour"], "{}": ["B-NP", "I-NP"]}}\n'.format(*names))
    examples = read_tagged(path)
    assert (examples.words, examples.tags, examples.ids) == ([["Old", "harbour"]], [["B-NP", "I-NP"]], ["5"])
    assert read_words(path).tags is None


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("a.txt", "Old NN B-NP\nharbour I-NP\n", ["a.txt:2", "2 columns", "3 as on line 1"]),
        ("a.txt", "Old\n", ["a.txt:1", "1 columns", "a word and its tag"]),
        ("a.txt", "\n", ["no sentences"]),
        ("a.jsonl", "", ["no sentences"]),
        ("a.jsonl", '{"words": ["a"], "tags": ["O"]\n', ["a.jsonl:1", "no JSON"]),
        ("a.jsonl", '{"words": ["a"], "tags": ["O", "O"]}\n', ["a.jsonl:1", "1 words but 2 tags"]),
        ("a.jsonl", '{"words": ["a"]}\n', ["a.jsonl:1", "'tags'", "'labels'"]),
        ("a.jsonl", '{"words": ["a"], "tags": [3]}\n', ["a.jsonl:1", "no list of texts"]),
        ("a.jsonl", '{"words": [], "tags": []}\n', ["a.jsonl:1", "no words"]),
        ("a.jsonl", '{"words": ["b", "a\\tc"], "tags": ["O", "O"]}\n', ["a.jsonl:1", r"'a\tc'", "without tabs"]),
        ("a.jsonl", '{"words": ["b"], "tags": ["O\\n"]}\n', ["a.jsonl:1", r"'O\n'", "line breaks"]),
        ("a.txt", "Old O\na\rc O\n", ["a.txt:2", r"'a\rc'"]),
        ("a.csv", "words,tags\na,O\n", ["a.csv", "'.csv'", ".jsonl", "CoNLL"]),
        ("a.parquet", "PAR", ["a.parquet", "'.parquet'", "CoNLL"]),
    ],
)
def test_a_mistake_in_a_file_is_named_in_one_line(write, name, content, parts):
    message = refusal(read_tagged, write(name, content))
    for part in parts:
        assert part in message, (part, message)


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("O B-A I-A B-A", "iob2"),
        ("O I-A B-A I-B", "iob1"),
        ("B-A I-B", "iob1"),
        ("S-A B-A E-A", "bioes"),
        ("U-A B-A L-A", "bilou"),
        ("B I O", "iob2"),
        ("NN VB O", "plain"),
        ("O O", "plain"),
    ],
)
def test_the_scheme_is_recognised(tags, scheme):
    assert scheme_of(tagged(tags)) == scheme


def test_tags_of_spans_and_others_in_one_file_are_refused():
    message = refusal(scheme_of, tagged("B-A", "O NP"))
    assert (
        "dev.txt:11 has the tag 'NP', expected O, or one of B, I, " in message and "'B-A' is one of a span" in message
    )


@pytest.mark.parametrize("tag", ["X-A", "b-A", "id1", "B-", "BA"])
def test_a_tag_that_is_none_of_a_span_is_named_with_its_line(tag):
    message = refusal(tag_targets, tagged("O", f"O {tag}"), "iob2", ("B-A", "I-A", "O"))
    assert f"dev.txt:11 has the tag {tag!r}, expected O, or one of B, I, E, S, L, U alone or before -TYPE" in message


# One sentence in all schemes; in it a span follows another of its type, and types have hyphens.
WRITTEN = {
    "iob1": "I-A B-A I-A O I-B-C I-A",
    "iob2": "B-A B-A I-A O B-B-C B-A",
    "bioes": "S-A B-A E-A O S-B-C S-A",
    "bilou": "U-A B-A L-A O U-B-C U-A",
}


@pytest.mark.parametrize("target", WRITTEN)
@pytest.mark.parametrize("source", WRITTEN)
def test_each_scheme_is_converted_to_each(source, target):
    assert in_scheme(WRITTEN[source].split(), target) == WRITTEN[target].split()


def test_bare_prefixes_keep_their_form_and_plain_tags_stay():
    assert in_scheme(["B", "I", "I", "O", "B"], "bioes") == ["B", "I", "E", "O", "S"]
    assert in_scheme(["NN", "VB"], "plain") == ["NN", "VB"]


def test_spans_of_a_sequence_that_no_scheme_allows_follow_conlleval():
    assert spans_of(["I-A", "I-B", "E-B", "I-B", "O", "E-A"]) == [("A", 0, 0), ("B", 1, 2), ("B", 3, 3), ("A", 5, 5)]
    assert spans_of([]) == []


def test_the_labels_are_all_that_the_scheme_has_for_the_types_of_training():
    assert tag_labels(tagged("B-A I-A", "O"), "bioes") == ("B-A", "E-A", "I-A", "O", "S-A")
    assert tag_labels(tagged("VB NN", "NN"), "plain") == ("NN", "VB")
    assert "'O' at each word" in refusal(tag_labels, tagged("O O"), "bioes")


def test_targets_are_the_numbers_of_tags_in_the_scheme():
    labels = ("B-A", "E-A", "I-A", "O", "S-A")
    assert tag_targets(tagged("B-A I-A I-A", "O B-A"), "bioes", labels) == [[0, 2, 1], [3, 4]]


def test_a_type_that_the_training_file_lacks_is_named_with_its_line():
    message = refusal(tag_targets, tagged("O", "O B-Z"), "bioes", ("B-A", "O"))
    assert "dev.txt:11" in message and "'B-Z'" in message and "B-A, O" in message
