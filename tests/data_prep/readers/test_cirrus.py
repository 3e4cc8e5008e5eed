import io
import json

import pytest

from data_prep.counts import ReadCounts
from data_prep.documents import Origin
from data_prep.readers.cirrus import read_cirrus
from electra_tf.data.manifest import DatasetSettings
from tests.data_prep.reading import lines_of

PAGE = {
    "page_id": 7,
    "namespace": 0,
    "title": "Älg",
    "text": "Älgen är ett hjortdjur. Den är 2 m hög.",
    "opening_text": "Älgen är ett hjortdjur.",
    "auxiliary_text": ["En älg"],
    "heading": ["Storlek"],
    "language": "sv",
    "content_model": "wikitext",
    "source_text": "'''Älgen''' är ett hjortdjur. Den är {{mått|2|m}} hög.",
    "template": ["Mall:Mått", "Modul:Disambiguation"],
}
ARTICLE = ["Älg", "Älgen är ett hjortdjur. Den är 2 m hög."]
INDEX_LINE = '{"index":{"_type":"_doc","_id":"7"}}\n'


def read(*pages: dict | list, **settings) -> tuple[list[list[str]], ReadCounts]:
    content = "".join(f"{INDEX_LINE}{json.dumps(page)}\n" for page in pages)
    counts = ReadCounts()
    items = read_cirrus(io.BytesIO(content.encode()), Origin("a", 100), DatasetSettings(**settings))
    return lines_of(items, counts), counts


def test_an_article_is_its_title_and_the_text_of_mediawiki():
    assert read(PAGE, {"text": "A", "title": "B\ud800"}, {"text": "C"}) == ([ARTICLE, ["B", "A"], ["C"]], ReadCounts())


@pytest.mark.parametrize(
    ("text", "without"),
    [
        (r"so E = m c 2 {\displaystyle E=mc^{2}} holds", "so E = m c 2 holds"),
        (r"a {\textstyle \{x_{\mathrm {i}}\}\}} and b {\displaystyle b}.", "a and b."),
        (r"a set {x} and {\displaystyle x {y}", r"a set {x} and {\displaystyle x {y}"),
        ("x {\\displaystyle " + "{" * 99, "x {\\displaystyle " + "{" * 99),
        ("x{\\a" + " " * 2**18 + "x", "x{\\a" + " " * 2**18 + "x"),
    ],
)
def test_the_tex_of_formulas_is_dropped(text, without):
    assert read(PAGE | {"text": text})[0] == [["Älg", without]]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"namespace": 14}, "pages outside the article namespace"),
        ({"page_type": "redirect", "text": None}, "redirects"),
        ({"content_model": "json"}, "pages that are not wikitext"),
        ({"title": "Älg (disambiguation)"}, "disambiguation pages"),
        ({"source_text": "{{Förgrening}}"}, "disambiguation pages"),
        ({"source_text": "{{Olika}}"}, "disambiguation pages"),  # of the user's names for this language
        ({"text": ""}, "pages without text"),
        ({"text": None}, "pages without text"),
    ],
)
def test_other_pages_are_counted_by_reason(changes, reason):
    documents, counts = read(PAGE | changes, PAGE, wikipedia_names="sv:\n  disambiguation: olika\n")
    assert documents == [ARTICLE] and counts == ReadCounts.skipped(reason)


def test_disambiguation_pages_can_be_kept():
    assert len(read(PAGE | {"source_text": "{{Förgrening}}"}, keep_disambiguation_pages=True)[0]) == 1


@pytest.mark.parametrize("page", [{"title": "a"}, ["text"]])
def test_a_line_without_a_text_is_named(page):
    documents, counts = read(PAGE, page)
    assert documents == [ARTICLE]
    offset = 100 + 2 * len(INDEX_LINE) + len(json.dumps(PAGE)) + 1
    assert counts.faulty_records == {"lines without a string in text_field=text": [["a", offset, json.dumps(page)]]}
