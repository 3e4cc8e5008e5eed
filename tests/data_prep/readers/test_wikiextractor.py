import json

import pytest

from electra_tf.config.errors import UserError

TAGGED = (
    '<doc id="12" url="u" title="Anarchism">\nAnarchism\n\nFirst paragraph.\nOrigins.\n\n</doc>\n'
    '<doc id="25" url="u" title="Autism">\nAutism\n\nAbout é <br>\n</doc>\n'
)


def test_both_layouts_give_the_same_lines(read):
    wanted = [["Anarchism", "First paragraph.", "Origins."], ["Autism", "About é <br>"]]
    texts = ["Anarchism\n\nFirst paragraph.\nOrigins.\n\n", "Autism\n\nAbout é <br>"]
    as_json = "".join(json.dumps({"id": "1", "title": "t", "text": text}) + "\n" for text in texts)
    assert read("wikiextractor", TAGGED) == wanted
    assert read("wikiextractor", "\ufeff\n" + TAGGED.replace("\n", "\r\n")) == wanted
    assert read("wikiextractor", as_json) == wanted


def test_an_article_without_text_is_no_document(read):
    assert read("wikiextractor", '<doc id="1">\n\n</doc>\n<doc id="2">\nb\n</doc>') == [["b"]]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("Once upon a time", "begins with b'Once upon.*give the right format"),
        ('<doc id="1">\none\n<doc id="2">\ntwo\n</doc>', 'the article <doc id="1"> has no </doc>'),
        ('{"text": "a"}\n{"text": \n', "a line that is not JSON"),
        ('{"title": "a"}', "no field 'text'.*'title'"),
    ],
    ids=["other text", "no end", "broken JSON", "no text"],
)
def test_a_broken_file_is_a_user_error_that_names_the_file(read, content, complaint):
    with pytest.raises(UserError, match=f"file.txt.*{complaint}"):
        read("wikiextractor", content)


def test_an_unfinished_article_at_the_end_is_a_user_error(read):
    with pytest.raises(UserError, match='file.txt after offset 7: the article <doc id="2"> has no </doc>'):
        read("wikiextractor", '<doc id="2">\ntwo\n', offset=7)
