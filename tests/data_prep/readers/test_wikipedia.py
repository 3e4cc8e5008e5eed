import io
from pathlib import Path

import pytest

from data_prep.counts import ReadCounts
from data_prep.documents import Origin
from data_prep.readers import wikipedia
from data_prep.readers.wikipedia import read_wikipedia
from electra_tf.data.manifest import DatasetSettings
from tests.data_prep.reading import documents_of

EXCERPT = Path(__file__).parents[2] / "fixtures" / "wikipedia_excerpt.xml"
HEADER = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" version="0.10" xml:lang="en">\n'
    "  <siteinfo>\n    <sitename>Wikipedia</sitename>\n  </siteinfo>\n"
)
END = "</mediawiki>\n"


def page(title="Cat", text="A '''cat'''.", head="<ns>0</ns>", revision="<model>wikitext</model>") -> str:
    return (
        f"  <page>\n    <title>{title}</title>\n    {head}\n    <id>7</id>\n    <revision>\n      {revision}\n"
        f'      <text xml:space="preserve">{text}</text>\n    </revision>\n  </page>\n'
    )


def read(content: str | bytes, keep_disambiguation_pages=False, offset=0) -> tuple[list[list[str]], ReadCounts]:
    content = content.encode() if isinstance(content, str) else content
    settings = DatasetSettings(keep_disambiguation_pages=keep_disambiguation_pages)
    report = ReadCounts()
    items = read_wikipedia(io.BytesIO(content), Origin("dump.xml", offset), settings)
    documents = list(documents_of(items, report))
    assert all(document.has_paragraphs for document in documents)
    return [document.lines for document in documents], report


def lines_of(content: str, **options) -> list[list[str]]:
    return read(HEADER + content + END, **options)[0]


def skipped(content: str, **options) -> dict[str, int]:
    return read(HEADER + content + END, **options)[1].num_documents_skipped


def test_an_article_is_a_document_whose_first_line_is_its_title():
    assert lines_of(page() + page("Dog &amp; bone", "== A ==\nOne.\n\nTwo &lt;small&gt;2&lt;/small&gt;.")) == [
        ["Cat", "A cat."],
        ["Dog & bone", "A", "One.", "Two 2."],
    ]


def test_a_part_of_an_export_without_its_header_is_read():
    assert read(page(), offset=999) == ([["Cat", "A cat."]], ReadCounts())
    assert read(page() + END) == ([["Cat", "A cat."]], ReadCounts())
    assert read(END) == read("\n") == ([], ReadCounts())


def test_the_last_revision_of_a_history_is_read():
    older = "<revision>\n<model>css</model>\n<text>Old &amp; broken [[</text>\n</revision>\n"
    older += "<revision><text>Older</text></revision>\n"
    assert lines_of(page().replace("<revision>", older + "<revision>")) == [["Cat", "A cat."]]
    in_one_line = page().replace("    <revision>", "<revision><text>Old</text></revision><revision>")
    assert lines_of(in_one_line) == [["Cat", "A cat."]]


WITHOUT_TEXT = page().replace("<text xml:space=\"preserve\">A '''cat'''.</text>", "{}")


@pytest.mark.parametrize(
    ("reason", "pages"),
    [
        (
            "pages outside the article namespace",  # old exports only show it in the title
            [page(title, head="") for title in ("Talk:Cat", "User:A", "user talk:A", "Datei:Katze.png", "Template:C")],
        ),
        ("pages that are not wikitext", [page(revision=f"<model>{name}</model>") for name in ("css", "json")]),
        (
            "pages without text",
            ["<page/>", *map(WITHOUT_TEXT.format, ('<text bytes="0" />', "<text>{{x}}</text>", ""))],
        ),
    ],
)
def test_other_pages_than_articles_are_skipped_and_counted(reason, pages):
    assert skipped("".join(pages)) == {reason: len(pages)}


OLD_HEADER = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.3/" version="0.3" xml:lang="en">\n'


@pytest.mark.parametrize("header", [OLD_HEADER, ""])
@pytest.mark.parametrize(
    "text",
    [
        "#REDIRECT [[Dog]]",
        " \n#redirect:[[Dog]] {{R from x}}",
        "#Weiterleitung[[Hund]]",
        "#YÖNLENDİR [[Köpek]]",
        "＃転送 [[犬]]",
    ],
)
def test_exports_that_mark_no_redirects_are_searched_for_their_words(header, text):
    assert read(header + page(head="", text=text) + END)[1].num_documents_skipped == {"redirects": 1}


@pytest.mark.parametrize("header", [OLD_HEADER, "", HEADER])
@pytest.mark.parametrize("text", ["# [[Dog]]\n# [[Elk]]", "#[[Dog]]", "#1 [[Dog]]", "#First: [[Dog]]", "#Nr.1 [[Dog]]"])
def test_a_page_that_begins_with_a_numbered_list_is_an_article(header, text):
    documents, counts = read(header + page(text=text) + END)
    assert len(documents) == 1
    assert counts.num_documents_skipped == {}


def test_an_export_that_marks_redirects_needs_no_search():
    assert skipped(page(head='<ns>0</ns><redirect title="Dog" />')) == {"redirects": 1}
    assert skipped(page(text="#REDIRECT [[Dog]]")) == {}


def test_an_article_may_have_a_colon_in_its_title():
    assert lines_of(page("Alien: Covenant", head="")) == [["Alien: Covenant", "A cat."]]
    assert lines_of(page("User: the film", head="<ns>0</ns>")) == [["User: the film", "A cat."]]


@pytest.mark.parametrize(
    "text",
    [
        "'''Cat''' may be:\n* [[Dog]]\n{{disambig}}",
        "{{ Disambiguation | geo }}\n* a",
        "* a\n{{Hndis|Cat, A}}",
        "* a\n{{Begriffsklärung}}",
        "* a\n__DISAMBIG__",
    ],
)
def test_disambiguation_pages_are_skipped_by_default(text):
    assert skipped(page(text=text)) == {"disambiguation pages": 1}
    assert len(lines_of(page(text=text), keep_disambiguation_pages=True)) == 1


DOG = page("Dog")
CAT_AND_DOG = [["Cat", "A cat."], ["Dog", "A cat."]]


@pytest.mark.parametrize(
    "content",
    [
        HEADER.replace("\n", "") + page() + DOG + END,
        HEADER + "<!-- exported today -->" + page() + " <!-- 2 --> " + DOG + END,
        (HEADER + page() + DOG + END).replace("\n", ""),
        (HEADER + page() + DOG + END).replace("\n", "\r"),
        "<!-- first -->\n" + HEADER + page() + "<logitem> </logitem>" + DOG + END + HEADER + END,
        HEADER + (page() + DOG).replace("<page>", '<page xml:space="preserve">') + END,
        HEADER + page().replace("<page>", "<page\n\tid='7'>").strip() + DOG.strip() + END,
        HEADER + page().strip() + "<pages/>" + DOG,
    ],
)
@pytest.mark.parametrize("read_bytes", [1, 7, 2**18])
def test_pages_are_found_anywhere_in_a_line(monkeypatch, content, read_bytes):
    monkeypatch.setattr(wikipedia, "BUFFER_BYTES", read_bytes)
    documents, counts = read(content, offset=5)
    assert documents == CAT_AND_DOG
    assert counts == ReadCounts()


@pytest.mark.parametrize(
    "broken",
    [page("Dog", "A <b> dog"), page("Dog", "A &nbsp; dog"), DOG.replace("</page>", ""), DOG[: len(DOG) // 2]],
)
@pytest.mark.parametrize("rest", ["", page("Elk") + END, END, page("Elk").strip()])
def test_a_broken_page_is_left_out_and_named_with_its_position(broken, rest):
    documents, counts = read(HEADER + page() + broken + rest, offset=30)
    assert [lines[0] for lines in documents] == ["Cat", "Elk"][: 1 + ("Elk" in rest)]
    assert counts.num_documents_skipped == {"malformed pages": 1}
    ((path, offset, _),) = counts.faulty_records["malformed pages"]
    assert (path, offset) == ("dump.xml", 30 + len(HEADER + page()) + len("  "))


def test_entities_that_a_document_type_declares_are_not_expanded():
    bomb = '<?xml version="1.0"?>\n<!DOCTYPE x [\n<!ENTITY a "aaaa">\n]>\n' + HEADER + page(text="&a;") + END
    documents, counts = read(bomb)
    assert documents == [] and "undefined entity" in counts.faulty_records["malformed pages"][0][2]


def test_an_excerpt_of_a_dump_becomes_articles_without_markup():
    documents, report = read(EXCERPT.read_bytes())
    assert [(lines[0], len(lines)) for lines in documents] == [
        ("Answer", 7),
        ("Atomic number", 26),
        ("Affirming the consequent", 20),
        ("Demographics of Angola", 34),
        ("Transport in Angola", 46),
        ("Ampere", 40),
    ]
    assert report == ReadCounts(
        num_documents_skipped={"redirects": 1, "disambiguation pages": 1, "pages outside the article namespace": 1}
    )
    assert "one coulomb (roughly 6.241×10^18 times the elementary charge) per second." in documents[5][2]
    markers = ("[[", "]]", "{{", "}}", "<ref", "&nbsp;", "{|", "|}", "''", "__", "==", "http")
    assert [line for lines in documents for line in lines for marker in markers if marker in line] == []
