import os

import pytest

from data_prep.inputs import find_files, plan_units, read_part
from electra_tf.config.errors import UserError


def write(directory, **contents: str):
    """Files NAME.txt with these contents."""
    for name, content in contents.items():
        (directory / f"{name}.txt").write_text(content)
    return directory


def test_names_are_relative_to_the_fixed_part_of_the_glob_and_sorted(tmp_path):
    (tmp_path / "B").mkdir()
    (tmp_path / "A").mkdir()
    write(tmp_path / "B", first="x")
    write(tmp_path / "A", second="xy")
    files = find_files([f"text:{tmp_path}/*/*.txt"])
    assert [(file.name, file.num_bytes) for file in files] == [("A/second.txt", 2), ("B/first.txt", 1)]


def test_a_plain_path_is_a_glob_too(tmp_path):
    write(tmp_path, only="x")
    (file,) = find_files([f"book:{tmp_path}/only.txt"])
    assert (file.name, file.format) == ("only.txt", "book")


def test_inputs_keep_the_order_in_which_they_were_given(tmp_path):
    write(tmp_path, a="x", b="y")
    files = find_files([f"text:{tmp_path}/b*", f"book:{tmp_path}/a*"])
    assert [(file.input_index, file.name) for file in files] == [(0, "b.txt"), (1, "a.txt")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("text:{}/*.json", r"no file matches .*\.json"),
        ("books:{}/*", "unknown format 'books'; did you mean book?"),
        ("wikiextract:{}/*", "did you mean wikiextractor?"),
        ("q:{}/*", "expected one of text, book, wikiextractor"),
        ("{}/a.txt", "is not FORMAT:GLOB"),
        ("text:", "is not FORMAT:GLOB"),
    ],
)
def test_an_input_that_names_nothing_is_a_user_error(tmp_path, text, complaint):
    write(tmp_path, a="x")
    with pytest.raises(UserError, match=complaint):
        find_files([text.format(tmp_path)])


def test_a_file_that_two_inputs_match_is_a_user_error(tmp_path):
    write(tmp_path, a="x")
    with pytest.raises(UserError, match="a.txt is read twice"):
        find_files([f"text:{tmp_path}/*", f"book:{tmp_path}/a.txt"])


def test_nothing_but_empty_files_is_a_user_error(tmp_path):
    write(tmp_path, a="", b="")
    with pytest.raises(UserError, match="all 2 input files are empty"):
        find_files([f"text:{tmp_path}/*"])


def test_a_file_name_that_is_not_utf_8_is_a_user_error(tmp_path):
    with open(os.fsencode(tmp_path) + b"/caf\xe9.txt", "wb") as file:
        file.write(b"x")
    with pytest.raises(UserError, match=r"'caf\\udce9\.txt' is not UTF-8.*; rename the file"):
        find_files([f"text:{tmp_path}/*"])


def test_small_files_share_a_unit_and_big_ones_are_cut_between_documents(tmp_path):
    write(tmp_path, a="1", b="22", c="one\n\ntwo\ntwo\n\nthree", d="4")
    units = plan_units(find_files([f"text:{tmp_path}/*"]), unit_bytes=6)
    assert [[(part.file.name, part.begin, part.end) for part in unit] for unit in units] == [
        [("a.txt", 0, 1), ("b.txt", 0, 2)],
        [("c.txt", 0, 14)],
        [("c.txt", 14, 19), ("d.txt", 0, 1)],
    ]


def test_a_book_is_never_cut(tmp_path):
    write(tmp_path, a="one\n\ntwo\n\nthree")
    units = plan_units(find_files([f"book:{tmp_path}/*"]), unit_bytes=2)
    assert [[(part.begin, part.end) for part in unit] for unit in units] == [[(0, 15)]]


def test_the_offset_of_a_document_is_that_in_the_whole_file(tmp_path):
    write(tmp_path, a="one\n\ntwo\n\nthree\n")
    units = plan_units(find_files([f"text:{tmp_path}/*"]), unit_bytes=4)
    documents = [document for unit in units for part in unit for document in read_part(part)]
    assert [(document.offset, document.lines) for document in documents] == [
        (0, ["one"]),
        (5, ["two"]),
        (10, ["three"]),
    ]


def test_a_file_that_vanished_is_a_user_error(tmp_path):
    write(tmp_path, a="one")
    ((part,),) = plan_units(find_files([f"text:{tmp_path}/*"]), unit_bytes=4)
    (tmp_path / "a.txt").unlink()
    with pytest.raises(UserError, match="cannot read .*a.txt"):
        list(read_part(part))
