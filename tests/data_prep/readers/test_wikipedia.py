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


def read(content: str | bytes, offset=0, **settings) -> tuple[list[list[str]], ReadCounts]:
    content, counts = content.encode() if isinstance(content, str) else content, ReadCounts()
    items = read_wikipedia(io.BytesIO(content), Origin("dump.xml", offset), DatasetSettings(**settings))
    documents = list(documents_of(items, counts))
    assert all(document.has_paragraphs for document in documents)
    return [document.lines for document in documents], counts


CAT = ["Cat", "A cat."]
OLDER = (
    "<revision>\n<model>css</model>\n<text>Old &amp; broken [[</text>\n</revision>\n"
    "<revision><text>Older</text></revision>\n"
)
IN_ONE_LINE = "<revision><text>Old</text></revision><revision>"


@pytest.mark.parametrize(
    ("content", "documents"),
    [
        # The first line is the title.
        (
            HEADER + page() + page("Dog &amp; bone", "== A ==\nOne.\n\nTwo &lt;small&gt;2&lt;/small&gt;.") + END,
            [CAT, ["Dog & bone", "A", "One.", "Two 2."]],
        ),
        # A part of an export without its header.
        (page(), [CAT]),
        (page() + END, [CAT]),
        (END, []),
        ("\n", []),
        # Of a history, the last revision is read.
        (HEADER + page().replace("<revision>", OLDER + "<revision>") + END, [CAT]),
        (HEADER + page().replace("    <revision>", IN_ONE_LINE) + END, [CAT]),
        # A title may have a colon.
        (HEADER + page("Alien: Covenant", head="") + END, [["Alien: Covenant", "A cat."]]),
        (HEADER + page("User: the film", head="<ns>0</ns>") + END, [["User: the film", "A cat."]]),
    ],
)
def test_articles_are_documents(content, documents):
    assert read(content, offset=999) == (documents, ReadCounts())


OLD_HEADER = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.3/" version="0.3" xml:lang="en">\n'
WITHOUT_TEXT = page().replace("<text xml:space=\"preserve\">A '''cat'''.</text>", "{}")
REDIRECTS = [
    "#REDIRECT [[Dog]]",
    " \n#redirect:[[Dog]] {{R from x}}",
    "#Weiterleitung[[Hund]]",
    "#YÖNLENDİR [[Köpek]]",
    "＃転送 [[犬]]",
]
NUMBERED_LISTS = ["# [[Dog]]\n# [[Elk]]", "#[[Dog]]", "#1 [[Dog]]", "#First: [[Dog]]", "#Nr.1 [[Dog]]"]
DISAMBIGUATIONS = [
    "'''Cat''' may be:\n* [[Dog]]\n{{disambig}}",
    "{{ Disambiguation | geo }}\n* a",
    "* a\n{{Hndis|Cat, A}}",
    "* a\n{{Begriffsklärung}}",
    "* a\n__DISAMBIG__",
]


@pytest.mark.parametrize(
    ("reason", "header", "pages"),
    [
        (
            "pages outside the article namespace",  # old exports only show it in the title
            HEADER,
            [page(title, head="") for title in ("Talk:Cat", "User:A", "user talk:A", "Datei:Katze.png", "Template:C")],
        ),
        ("pages that are not wikitext", HEADER, [page(revision=f"<model>{name}</model>") for name in ("css", "json")]),
        (
            "pages without text",
            HEADER,
            ["<page/>", *map(WITHOUT_TEXT.format, ('<text bytes="0" />', "<text>{{x}}</text>", ""))],
        ),
        ("disambiguation pages", HEADER, [page(text=text) for text in DISAMBIGUATIONS]),
        # Exports that mark no redirects are searched for their words, the others are not.
        *(("redirects", header, [page(head="", text=text) for text in REDIRECTS]) for header in (OLD_HEADER, "")),
        ("redirects", HEADER, [page(head='<ns>0</ns><redirect title="Dog" />')]),
    ],
)
def test_other_pages_than_articles_are_skipped_and_counted(reason, header, pages):
    documents, counts = read(header + "".join(pages) + END)
    assert (documents, counts.num_documents_skipped) == ([], {reason: len(pages)})


@pytest.mark.parametrize(
    ("header", "texts", "settings"),
    [
        *((header, NUMBERED_LISTS, {}) for header in (OLD_HEADER, "", HEADER)),
        (HEADER, REDIRECTS[:1], {}),
        (HEADER, DISAMBIGUATIONS, {"keep_disambiguation_pages": True}),
    ],
)
def test_pages_that_only_look_like_others_are_articles(header, texts, settings):
    documents, counts = read(header + "".join(page(text=text) for text in texts) + END, **settings)
    assert (len(documents), counts.num_documents_skipped) == (len(texts), {})


DOG = page("Dog")


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
    assert read(content, offset=5) == ([CAT, ["Dog", "A cat."]], ReadCounts())


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
    sizes = ["Answer 7", "Atomic number 26", "Affirming the consequent 20", "Demographics of Angola 34"]
    sizes += ["Transport in Angola 46", "Ampere 40"]
    assert [f"{lines[0]} {len(lines)}" for lines in documents] == sizes
    assert report == ReadCounts(
        num_documents_skipped={"redirects": 1, "disambiguation pages": 1, "pages outside the article namespace": 1}
    )
    assert "one coulomb (roughly 6.241×10^18 times the elementary charge) per second." in documents[5][2]
    markers = ("[[", "]]", "{{", "}}", "<ref", "&nbsp;", "{|", "|}", "''", "__", "==", "http")
    assert [line for lines in documents for line in lines for marker in markers if marker in line] == []
