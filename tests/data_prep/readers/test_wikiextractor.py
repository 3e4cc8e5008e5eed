import json

import pytest

from electra_tf.config.errors import UserError

TAGGED = (
    '<doc id="12" url="u" title="Anarchism">\nAnarchism\n\nFirst paragraph.\nOrigins.\n\n</doc>\n'
    '<doc id="25" url="u" title="Autism">\nAutism\n\nAbout é <br>\n</doc>\n'
)


def test_both_layouts_give_the_same_lines(read):
    expected = [["Anarchism", "First paragraph.", "Origins."], ["Autism", "About é <br>"]]
    texts = ["Anarchism\n\nFirst paragraph.\nOrigins.\n\n", "Autism\n\nAbout é <br>"]
    as_json = "".join(json.dumps({"id": "1", "title": "t", "text": text}) + "\n" for text in texts)
    assert read("wikiextractor", TAGGED) == expected
    assert read("wikiextractor", "\ufeff\n" + TAGGED.replace("\n", "\r\n")) == expected
    assert read("wikiextractor", as_json) == expected


@pytest.mark.parametrize("layout", ["<doc>", "--json"])
def test_the_characters_of_html_that_version_3_escapes_are_restored(read, layout):
    text = "AT&amp;T &lt;b&gt; &amp;lt; &amp;nbsp; &quot;"  # as `html.escape` with quote=False gives it
    content = json.dumps({"text": text}) if layout == "--json" else f'<doc id="1">\n{text}\n</doc>\n'
    assert read("wikiextractor", content) == [["AT&T <b> &lt; &nbsp; &quot;"]]


def test_an_article_without_text_is_left_out(read):
    assert read("wikiextractor", '<doc id="1">\n\n</doc>\n<doc id="2">\nb\n</doc>') == [["b"]]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("Once upon a time", "begins with b'Once upon"),
        ('<doc id="1">\none\n<doc id="2">\ntwo\n</doc>', '<doc id="1"> has no </doc>'),
        ('<doc id="2">\ntwo\n', '<doc id="2"> has no </doc>'),
        ('{"text": "a"}\n{"text": \n', "not JSON"),
    ],
    ids=["other text", "no end", "no end of the file", "broken JSON"],
)
def test_a_broken_file_is_a_user_error_with_path_and_offset(read, content, complaint):
    with pytest.raises(UserError, match=f"file.txt.* offset .*{complaint}"):
        read("wikiextractor", content)
