import pytest

from data_prep.readers.documents import ReadReport
from data_prep.readers.lines import MAX_DOCUMENT_CHARACTERS
from electra_tf.config.errors import UserError


def test_a_blank_line_ends_a_document_of_plain_text(read):
    assert read("text", "one\ntwo\n\n\nthree") == [["one", "two"], ["three"]]


def test_a_line_of_white_space_is_blank_as_in_the_authors_builder(read):
    assert read("text", "one\n \t\u00a0\r\ntwo\r\n") == [["one"], ["two"]]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_every_line_end_gives_the_same_documents(read, line_end):
    assert read("text", line_end.join(["one", "two", "", "three", ""])) == [["one", "two"], ["three"]]


@pytest.mark.parametrize("format_name", ["text", "sentences", "book", "openwebtext", "wikiextractor", "jsonl"])
def test_a_file_without_text_holds_no_document(read, format_name):
    assert read(format_name, "") == read(format_name, " \n\n") == []


@pytest.mark.parametrize("format_name", ["text", "sentences", "book", "openwebtext"])
def test_text_that_is_not_utf_8_is_a_user_error_that_names_file_and_byte(read, format_name):
    with pytest.raises(UserError, match="file.txt is not UTF-8: byte 0xef at offset 7"):
        read(format_name, b"fine\nna\xefve")


def test_sentences_make_a_document_of_every_three_lines(read):
    assert read("sentences", "1\n2\n3\n4\n5\n6\n7\n") == [["1", "2", "3"], ["4", "5", "6"], ["7"]]


def test_blank_lines_among_sentences_count_as_lines(read):
    assert read("sentences", "1\n\n3\n\n\n\n7\n\n9") == [["1", "3"], ["7", "9"]]


def test_a_long_line_among_sentences_counts_as_one(read):
    report = ReadReport()
    long_line = "word " * (MAX_DOCUMENT_CHARACTERS // 4)
    documents = read("sentences", f"1\n{long_line}\n3\n4\n5\n6\n", report)
    assert documents[-2:] == [[long_line[MAX_DOCUMENT_CHARACTERS - 4 :].strip(), "3"], ["4", "5", "6"]]
    assert report.num_documents_cut == 1


def test_a_file_of_openwebtext_is_a_document_of_paragraphs(read):
    assert read("openwebtext", "Title\n\nOne. Two.\n\n\nThree.\n") == [["Title", "One. Two.", "Three."]]


def test_a_text_without_a_blank_line_is_cut_into_documents_of_bounded_size(read):
    report = ReadReport()
    line = "word " * 20_000
    num_lines = MAX_DOCUMENT_CHARACTERS // len(line.strip())
    documents = read("text", f"{line}\n" * (2 * num_lines + 1), report)
    assert [len(lines) for lines in documents] == [num_lines, num_lines, 1]
    assert report.num_documents_cut == 2
