import io
import json
import re

import pytest

from data_prep.readers import FORMATS
from data_prep.readers.documents import seek_line
from electra_tf.config.errors import UserError

WIKIPEDIA_TAGGED = (
    '<doc id="12" url="u" title="Anarchism">\nAnarchism\n\nFirst paragraph.\nOrigins.\n\n</doc>\n'
    '<doc id="25" url="u" title="Autism">\nAutism\n\nAbout é <br>\n</doc>\n'
).encode()


def read(format_name: str, content: str | bytes) -> list[list[str]]:
    content = content.encode() if isinstance(content, str) else content
    return [document.lines for document in FORMATS[format_name].documents(content, "file.txt", 0)]


def offsets(format_name: str, content: bytes) -> list[int]:
    return [document.offset for document in FORMATS[format_name].documents(content, "file.txt", 0)]


def parts(format_name: str, content: bytes, size: int) -> list[bytes]:
    """The content, cut at boundaries between documents."""
    file, begin, found = io.BytesIO(content), 0, []
    while begin < len(content):
        end = FORMATS[format_name].next_document(file, begin + size) if begin + size < len(content) else len(content)
        found.append(content[begin:end])
        begin = end
    return found


def test_a_blank_line_ends_a_document_of_plain_text():
    assert read("text", "one\ntwo\n\n\nthree") == [["one", "two"], ["three"]]


def test_a_line_of_white_space_is_blank_as_in_the_authors_builder():
    assert read("text", "one\n \t\u00a0\r\ntwo\r\n") == [["one"], ["two"]]


def test_a_byte_order_mark_is_no_part_of_the_text():
    assert read("text", b"\xef\xbb\xbfone") == [["one"]]


def test_an_offset_is_where_the_document_begins_in_bytes():
    assert offsets("text", "\n\né\nb\n\nc".encode()) == [2, 8]


@pytest.mark.parametrize("format_name", ["text", "book", "wikiextractor"])
def test_an_empty_file_holds_no_document(format_name):
    assert read(format_name, "") == read(format_name, " \n\n") == []


@pytest.mark.parametrize(
    ("format_name", "content", "place"),
    [
        ("text", b"fine\nna\xefve", "byte 0xef at offset 7"),
        ("book", b"fine\nna\xefve", "byte 0xef at offset 7"),
        ("wikiextractor", b'<doc id="1">\nna\xefve\n</doc>', "byte 0xef at offset 15"),
        ("wikiextractor", b'{"text": "\xef"}', "byte 0xef at offset 10"),
    ],
)
def test_text_that_is_not_utf_8_is_a_user_error_that_names_file_and_byte(format_name, content, place):
    with pytest.raises(UserError, match=f"file.txt is not UTF-8: {place}"):
        read(format_name, content)


def test_both_wikiextractor_layouts_give_the_same_lines():
    wanted = [["Anarchism", "First paragraph.", "Origins."], ["Autism", "About é <br>"]]
    texts = ["Anarchism\n\nFirst paragraph.\nOrigins.\n\n", "Autism\n\nAbout é <br>"]
    as_json = "".join(json.dumps({"id": "1", "title": "t", "text": text}) + "\n" for text in texts)
    assert read("wikiextractor", WIKIPEDIA_TAGGED) == wanted
    assert read("wikiextractor", as_json) == wanted


def test_an_article_without_text_is_no_document():
    assert read("wikiextractor", '<doc id="1">\n\n</doc>\n<doc id="2">\nb\n</doc>') == [["b"]]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("Once upon a time", "begins with b'Once upon"),
        ('<doc id="1">\none\n</doc>\n<doc id="2">\ntwo', "2 articles begin with <doc ...> and 1 end"),
        ('{"text": "a"}\n{"text": ', 'JSON object with "text" on each line'),
        ('{"title": "a"}', "KeyError"),
    ],
    ids=["other text", "cut off", "broken JSON", "no text"],
)
def test_a_broken_wikiextractor_file_is_a_user_error_that_names_the_file(content, complaint):
    with pytest.raises(UserError, match=f"file.txt.*{complaint}"):
        read("wikiextractor", content)


@pytest.mark.parametrize("text", ["null", "12", '["a"]'])
def test_a_json_text_that_is_no_string_is_a_user_error_that_names_its_place(text):
    content = f'{{"text": "a"}}\n{{"text": {text}}}\n'
    with pytest.raises(UserError, match=re.escape(f'file.txt at offset 14: "text" is {text}, expected a string')):
        read("wikiextractor", content)


def test_json_nested_too_deeply_is_a_user_error():
    with pytest.raises(UserError, match="file.txt at offset 0: expected a JSON object"):
        read("wikiextractor", '{"text": ' + "[" * 100_000)


def test_half_a_surrogate_pair_in_json_is_dropped_and_a_whole_one_is_a_character():
    assert read("wikiextractor", r'{"text": "a\ud800b \ud83d\ude00\n\udc00"}') == [["ab \U0001f600"]]


@pytest.mark.parametrize("size", range(1, 40))
@pytest.mark.parametrize(
    ("format_name", "content"),
    [
        ("text", "one\ntwo\n\n \n\nthrée\nfour\n\nfive\n".encode()),
        ("wikiextractor", WIKIPEDIA_TAGGED),
        ("wikiextractor", b'{"text": "a\\nb"}\n{"text": "c"}\n\n{"text": "d"}\n'),
    ],
    ids=["text", "tagged", "json"],
)
def test_parts_of_a_file_hold_the_documents_of_the_whole(format_name, content, size):
    cut = parts(format_name, content, size)
    assert b"".join(cut) == content
    assert [lines for part in cut for lines in read(format_name, part)] == read(format_name, content)


@pytest.mark.parametrize(("position", "line_begin"), [(0, 0), (1, 3), (3, 3), (4, 6), (6, 6), (7, 7)])
def test_a_line_that_begins_at_the_position_sought_is_found(position, line_begin):
    file = io.BytesIO(b"ab\ncd\ne")
    assert (seek_line(file, position), file.tell()) == (line_begin, line_begin)


WRAPPED = [
    "It was a bright cold day in the town of X,",
    "and the clocks on the tower were striking.",
    "He came in and shut the door. She sat down",
    "quietly.",
    '"Well?" he said, looking at the dark-',
    "haired stranger by the fire, who said very",
    "little.",
]
JOINED = [
    "It was a bright cold day in the town of X, and the clocks on the tower were striking. He came in and shut the"
    " door. She sat down quietly.",
    '"Well?" he said, looking at the dark-haired stranger by the fire, who said very little.',
]


def test_a_wrapped_book_without_blank_lines_is_cut_where_a_line_stops_early():
    assert read("book", "\r\n".join(WRAPPED)) == [JOINED]


def test_a_wrapped_book_with_blank_lines_is_cut_at_these():
    text = "\n".join([*WRAPPED[:4], "", " ", *WRAPPED[4:], ""])
    assert read("book", text) == [JOINED]


def test_an_early_end_inside_a_paragraph_counts_for_nothing_where_blank_lines_separate():
    assert read("book", "\n".join(["Spoken at last.", "She went away now.", "", "The next day came."])) == [
        ["Spoken at last. She went away now.", "The next day came."]
    ]


LONG_PARAGRAPH = "He walked on and on, past the mill and the weir. " * 9


@pytest.mark.parametrize("separator", ["\n", "\n\n", "\r\n\r\n"], ids=["no blanks", "blanks", "CRLF"])
def test_a_book_with_a_paragraph_a_line_keeps_its_lines(separator):
    paragraphs = [
        "CHAPTER I",
        "She spoke.",
        LONG_PARAGRAPH.strip(),
        "No.",
        "Why not?",
        LONG_PARAGRAPH.strip(),
        "I see.",
    ]
    assert read("book", "\ufeff" + separator.join(paragraphs)) == [paragraphs]


def test_a_dash_at_the_end_of_a_line_is_not_a_broken_word():
    text = "He had gone - or so he would say -\nto the far shore of the lake in sum-\nMer."
    assert read("book", text) == [["He had gone - or so he would say - to the far shore of the lake in sum- Mer."]]
