import json

import pytest

from data_prep.counts import ReadCounts
from data_prep.readers.wikiextractor import begins_article

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


@pytest.mark.parametrize(
    ("content", "offset"),
    [
        ('<doc id="1">\none\n<doc id="2">\nb\n</doc>', 1000),
        ('<doc id="1">\r\nb\r\n</doc>\r\n<doc id="2" url="u" title="t">\r\n\r\ntwo', 1025),
    ],
)
def test_an_article_without_an_end_is_left_out_and_named_with_its_offset(read, content, offset):
    counts = ReadCounts()
    assert read("wikiextractor", content, counts, offset=1000) == [["b"]]
    ((path, begin, tag),) = counts.faulty_records["articles without </doc>"]
    assert (path, begin) == ("file.txt", offset) and tag.startswith("<doc id=")


@pytest.mark.parametrize(
    ("text", "offset", "description"),
    [("Once\nupon\n\na time.\n", 22, "Once"), ("</doc>\n", 22, "</doc>"), ("</docs>", 22, "</docs>")],
)
def test_text_outside_articles_is_left_out_and_counted_once(read, text, offset, description):
    counts = ReadCounts()
    article = '<doc id="1">\nb\n</doc>\n'
    assert len(article) == 22
    assert read("wikiextractor", article + text + "\n" + article, counts) == [["b"], ["b"]]
    assert counts.num_documents_skipped == {"text outside articles": 1}
    assert counts.faulty_records == {"text outside articles": [["file.txt", offset, description]]}


@pytest.mark.parametrize(
    "line", ["<doc > is a tag", "<doc x", "<doc title>", '<doc id="1"> opens', "The tag </doc> ends it."]
)
def test_a_line_of_text_may_begin_as_a_tag_does(read, line):
    assert read("wikiextractor", f'<doc id="1">\nb\n{line}\n</doc>') == [["b", line]]
    assert not begins_article(f"{line}\n".encode())
