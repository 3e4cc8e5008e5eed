import json

import pytest

from data_prep.counts import ReadCounts
from data_prep.readers.wikiextractor import begins_article
from tests.data_prep.reading import read

TAGGED = (
    '<doc id="12" url="u" title="Anarchism">\nAnarchism\n\nFirst paragraph.\nOrigins.\n\n</doc>\n'
    '<doc id="25" url="u" title="Autism">\nAutism\n\nAbout é <br>\n</doc>\n'
)
TEXTS = ["Anarchism\n\nFirst paragraph.\nOrigins.\n\n", "Autism\n\nAbout é <br>"]
ESCAPED = "AT&amp;T &lt;b&gt; &amp;lt; &amp;nbsp; &quot;"  # as `html.escape` with quote=False gives it


@pytest.mark.parametrize(
    ("content", "documents"),
    [
        *(
            (content, [["Anarchism", "First paragraph.", "Origins."], ["Autism", "About é <br>"]])
            for content in (
                TAGGED,
                "\ufeff\n" + TAGGED.replace("\n", "\r\n"),
                "".join(json.dumps({"id": "1", "title": "t", "text": text}) + "\n" for text in TEXTS),
            )
        ),
        # The characters of HTML that version 3 escapes are restored.
        *(
            (content, [["AT&T <b> &lt; &nbsp; &quot;"]])
            for content in (json.dumps({"text": ESCAPED}), f'<doc id="1">\n{ESCAPED}\n</doc>\n')
        ),
    ],
)
def test_both_layouts_give_the_same_lines(content, documents):
    assert read("wikiextractor", content) == documents


ARTICLE = '<doc id="1">\nb\n</doc>\n'  # 22 bytes


@pytest.mark.parametrize(
    ("content", "reason", "offset", "description"),
    [
        ('<doc id="1">\none\n<doc id="2">\nb\n</doc>', "articles without </doc>", 1000, '<doc id="1">'),
        (f'{ARTICLE}\r\n<doc id="2" url="u">\r\n\r\ntwo', "articles without </doc>", 1024, '<doc id="2" url="u">'),
        (f"{ARTICLE}Once\nupon\n\na time.\n\n", "text outside articles", 1022, "Once"),
        (f"{ARTICLE}</doc>\n\n", "text outside articles", 1022, "</doc>"),
        (f"{ARTICLE}</docs>\n", "text outside articles", 1022, "</docs>"),
    ],
)
def test_what_is_no_whole_article_is_left_out_and_named_once_with_its_offset(content, reason, offset, description):
    counts = ReadCounts()
    follows = reason == "text outside articles"
    documents = read("wikiextractor", content + ARTICLE * follows, counts, offset=1000)
    assert documents == [["b"]] * (1 + follows)
    assert counts.num_documents_skipped == {reason: 1}
    assert counts.faulty_records == {reason: [["file.txt", offset, description]]}


@pytest.mark.parametrize(
    "line", ["<doc > is a tag", "<doc x", "<doc title>", '<doc id="1"> opens', "The tag </doc> ends it."]
)
def test_a_line_of_text_may_begin_as_a_tag_does(line):
    assert read("wikiextractor", f'<doc id="1">\nb\n{line}\n</doc>') == [["b", line]]
    assert not begins_article(f"{line}\n".encode())
