from collections import Counter
from pathlib import Path

import pytest
import yaml

from data_prep.counts import ReadCounts
from data_prep.wikitext import names as wiki_names
from data_prep.wikitext.names import header_of, parsed_names, wiki_of
from data_prep.wikitext.prose import plain_text
from electra_tf.config.errors import UserError
from electra_tf.config.loader import read_values
from tests.data_prep.reading import read

BUILT_IN = Path(wiki_names.__file__).with_name("wikipedia_names.yaml")


def text(wikitext: str, language: str, names: str = "") -> str:
    return "\n".join(plain_text(wikitext, wiki_of(b"", language, names))[0])


@pytest.mark.parametrize(
    ("language", "wikitext", "expected"),
    [
        ("fr", "le {{date|1|10|2005|en sport}}, le {{date-|19 janvier}}", "le 1er octobre 2005, le 19 janvier"),
        ("fr", "{{Unité|1234567,89}} et {{unité|10000|km|2}}", "1 234 567,89 et 10 000 km²"),
        ("fr", "{{unité|1.23|e=15|J|2|K|-1}}, {{unité|-40.234|°C}}", "1,23×10^15 J²⋅K^-1, −40,234 °C"),
        ("fr", "au {{s|XIX}}, {{s-|I}}, {{-s|V}}", "au XIXe siècle, Ier siècle, Ve siècle av. J.-C."),
        ("fr", "M{{e|me}}, 10{{e|6}}, 10{{exp|-3}}, M{{exp|gr}}, 1{{er|mai}}", "Mme, 10^6, 10^-3, Mgr, 1er mai"),
        ("fr", "{{unité|5|à=10|km}}, {{unité|1.5|ou=2000|km|2}}", "5 à 10 km, 1,5 ou 2 000 km²"),
        ("fr", "l{{'}}''Avare'' {{incise|dit-on}} {{citation|bon}}{{,}}", "l'Avare – dit-on – « bon »"),
        ("de", "liegt {{Höhe|115|DE-NHN}} und {{Höhe|2106|AT}} hoch", "liegt 115 m ü. NHN und 2106 m ü. A. hoch"),
        ("de", "das {{enS|Foreign Office}} ({{grcS|λόγος}})", "das englisch Foreign Office (altgriechisch λόγος)"),
        ("de", "am {{JULGREGDATUM|6|6|1799}} mit {{formatnum:1234.5}} Rubel", "am 6. Juni 1799 mit 1.234,5 Rubel"),
        ("ja", "{{読み仮名|東京|とう}}は{{仮リンク|相|en|PM|label=首相}}", "東京（とう）は首相"),
        ("ja", "（{{lang-de-short|Land}}、{{lang-en|Cat}}、{{lang|de|Rat}}）", "（独: Land、英語: Cat、Rat）"),
        ("it", "{{TA|3 743 km²}}, {{M|12|k|m}}, {{formatnum:4666175}}", "3 743 km², 12 km, 4 666 175"),
        ("xx", "a {{lang|fr|chat}} of {{convert|1200|km|mi}}", "a chat of 1,200 km"),
        ("en", "{{formatnum:-1234.50}} {{formatnum:12,345|R}} {{formatnum:12345|NOSEP}}", "−1,234.50 12345 12345"),
        ("en", "{{circa|1500}}, {{circa|1500|1510}}, {{fl.|1500|1510}}", "c. 1500, c. 1500 – c. 1510, fl. 1500–1510"),
        ("en", "{{as of|2010|8|2|since=y}} {{As of|2012|lc=on}}", "Since 2 August 2010 as of 2012"),
        ("en", "{{sic|reci|eve}} {{sic|reci|eve|hide=y}} {{sic|?}} {{sic}}", "recieve [sic] recieve ? [sic] [sic]"),
        ("en", "{{cvt|1|,|2|and|3|km}}, {{cvt|24|*|12|in}}, {{cvt|5|-|6|C}}", "1, 2 and 3 km, 24×12 in, 5–6 °C"),
        ("en", "{{convert|5|&plusmn;|1|km}}, {{cvt|1|mi|200|yd}}, {{cvt|5|km|1}}", "5 ± 1 km, 1 mi 200 yd, 5 km"),
        ("en", "{{cvt|2|e6km}} {{cvt|3|e9m3}} {{convert|5|eV}} {{convert|5}}", "2 million km 3 billion m³ 5 eV 5"),
        ("en", "{{val|5.4|+0.3|-0.2|u=m}} {{val|1.2|(3)|e=5|u=m}}", "5.4+0.3−0.2 m 1.2(3)×10^5 m"),
        ("en", "{{bibleverse||Genesis|1:1|NKJV}}; {{bibleverse|2|Kings|2:3|NIV}}", "Genesis 1:1; 2 Kings 2:3"),
        ("en", "a{{#tag:ref|note|name=x}} b {{IPA|fr|ʃa}} {{IPA|/ʃa/}}", "a b [ʃa] /ʃa/"),
        ("en", "{{nihongo||東京|Tōkyō}}, {{nihongo3|Tower|塔|Tō}}", "Tōkyō (東京), Tō (塔, Tower)"),
        ("en", "10{{sup|6}} 10{{sup|-2}} 1{{sup|st}} 2{{e|6}} {{EUR|5}}", "10^6 10^-2 1st 2×10^6 €5"),
        # Numbers are written as the wiki does.
        *(
            (language, "{{formatnum:1234}} {{formatnum:12345}}", expected)
            for language, expected in (
                *(("en", "1,234 12,345"), ("de", "1.234 12.345"), ("fr", "1 234 12 345"), ("pl", "1234 12 345")),
                *(("ja", "1,234 12,345"), ("ar", "1٬234 12٬345"), ("pt-br", "1 234 12 345")),
            )
        ),
        # Lists of literature are left out.
        *(
            (language, f"Text.\n== {heading} ==\n* A. Author: ''Title''.\n== X ==\n* item", "Text.\nX\nitem")
            for language, heading in (
                *(("de", "Literatur"), ("fr", "Notes et références"), ("ja", "脚注")),
                *(("zh", "參考文獻"), ("sv", "Källor")),
            )
        ),
    ],
)
def test_templates_of_a_wiki_become_what_its_readers_see(language, wikitext, expected):
    assert text(wikitext, language) == expected


def test_no_template_of_a_wiki_has_two_rules():
    sections, _ = read_values(BUILT_IN)  # which refuses a key that is given twice
    for language, section in sections.items():
        names = Counter(name for table in section.get("templates", {}).values() for name in wiki_names._names(table))
        assert [(language, name) for name, number in names.items() if number > 1] == []


def header(language: str, *namespaces: tuple[int, str], version: str = "0.11") -> str:
    elements = "".join(f'<namespace key="{key}" case="first-letter">{name}</namespace>\n' for key, name in namespaces)
    return (
        f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-{version}/" version="{version}"'
        f' xml:lang="{language}">\n<siteinfo>\n<dbname>x</dbname>\n<namespaces>\n{elements}</namespaces>\n</siteinfo>\n'
    )


@pytest.mark.parametrize(("file", "category"), [("Ficheru", "Categoría"), ("ഫയൽ", "വർഗ്ഗം"), ("පින්තූර", "ප්‍රවර්ගය")])
def test_links_to_the_namespaces_of_the_header_are_invisible(file, category):
    wiki = wiki_of(header("xx", (6, file), (14, category), (0, "")).encode(), "en", "")
    wikitext = f"a [[{file}:X|thumb|b]][[{category}:X]][[{category.lower()}: x y]] c [[:{category}:X|d]]"
    assert plain_text("[[File:X]][[Category:X|k]]", wiki)[0] == []
    assert plain_text(wikitext, wiki)[0] == ["a c d"]


def test_an_old_export_has_no_pages_of_the_namespaces_of_its_header():
    page = "<page><title>{}</title><revision><text>Words.</text></revision></page>\n"
    content = header("xx", (4, "Vikipedija"), (100, "Grund Fe"), version="0.5")
    content += page.format("Vikipedija:A") + page.format("grund_fe:A") + page.format("Mars: a film")
    counts = ReadCounts()
    assert [title for title, *_ in read("wikipedia", content, counts)] == ["Mars: a film"]
    assert counts.num_documents_skipped == {"pages outside the article namespace": 2}


@pytest.mark.parametrize(
    ("xml", "language"),
    [
        *((header("DE-at"), "de"), (header("de")[:-20], "de"), ("<mediawiki xml:lang='de'>\n<page>", "de"), ("", "fr")),
        *(("<mediawiki xml:lang='de' a=b>", "fr"), ("<page><title>mediawiki</title>", "fr")),
    ],
)
def test_the_language_is_that_of_the_header_or_the_given_one(xml, language):
    months = {"de": "März", "fr": "mars"}
    assert wiki_of(header_of(xml.encode()), "fr", "").locale.months[2] == months[language]


def test_a_header_longer_than_the_first_block_of_a_file_is_found():
    long = header("de", *((key, f"Namensraum {key}") for key in range(100, 700)))
    assert len(long) > 20_000
    assert header_of(("\ufeff" + long + "<page>").encode()) == long.strip().encode()


NAMES = """
fr:
  templates:
    "{1:number} fois": foo bar| /x[0-9]+|y/
    "<{1}>": date
  category: rubrique
all:
  thousands: "'"
"""


def test_a_file_of_names_adds_to_the_built_in_names_and_replaces_them():
    wikitext = "{{Foo_bar|2000}} {{X12|3}} {{y|1}} {{date|a}} {{s|X}} [[Rubrique:A]]b"
    assert text(wikitext, "fr", NAMES) == "2'000 fois 3 fois 1 fois a Xe siècle b"
    assert text("{{foo bar|2}} {{formatnum:2000}}", "de", NAMES) == "2'000"


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("de:\n  template: {}", "section de: template is not a setting; did you mean templates"),
        ("de:\n  templates:\n    '{1': x", "'{1'"),
        ("de:\n  templates:\n    '{1:nofunction}': x", "'nofunction'"),
        ("de:\n  templates:\n    '{1}': /(/", "unterminated"),
        ("no:\n  file: a", "names.yaml: expected a section"),
        ("{", "names.yaml is not YAML"),
    ],
)
def test_a_mistake_in_a_file_of_names_is_one_line_that_names_it(content, named):
    with pytest.raises(UserError) as caught:
        parsed_names(content, "names.yaml")
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("wikitext", "expected", "language"),
    [
        ("born {{when}} {{Foo|x}} in {{foo}} Ulm", {"foo": 2}, "en"),
        ("a {{foo|b {{bar}} c}} d", {"foo": 1, "bar": 1}, "en"),
        ("a {{#if:x|y}} {{lc:X}} {{#invoke:Foo|bar}} {{a b: c}}", {"/#if:.*/": 1, "#invoke:foo": 1, "a b: c": 1}, "en"),
        ("a {{#tag:ref|x {{foo}}}} {{#expr:1}} {{#expr:2}} {{plural:1|a}}", {"/#expr:.*/": 2, "/plural:.*/": 1}, "en"),
        ("He met {{foo|1}}{{sfn|X|2000}} in Rome. ({{bar|1}}{{efn|n}})", {"foo": 1, "bar": 1}, "en"),
        ("{{foo|1}} was a town.\n* {{foo|1}} is a town\n* 1990: {{foo|x}} won", {"foo": 3}, "en"),
        ("{{Use dmy dates|date=May 2020}}{{Short description|x}}A {{foo}}{{DEFAULTSORT:A}}", {"foo": 1}, "en"),
        ("{{nowrap|b {{foo}}}}, [[d|{{foo}} e]], {{lang|fr|{{foo}}}} {{quote|f {{foo}}}}", {"foo": 4, "lang": 1}, "en"),
        ("a {{Foo\n| b = c\n}} d", {}, "en"),
        ("{{foo}}\n\n({{foo}})\n* {{foo}}\n:[[File:a.png]]{{foo}}\n----{{foo}}\n== {{foo}} ==\nb", {}, "en"),
        ("{{Infobox\n| a = b {{foo}} c\n}}A is\n{|\n| a {{foo}} b\n! c {{foo}} d\n|}", {}, "en"),
        ("a<ref>b {{foo}} c</ref> d <!-- a {{foo}} b --> {{cite web|a}} e {{citation needed|date=May}} f", {}, "en"),
        # The arguments do not fit.
        ("kostet {{EUR|5}} im 10{{e}} m", {"eur": 1, "e": 1}, "de"),
        ("du {{s}} au {{sp|I}}.", {"s": 1, "sp": 1}, "fr"),
        ("は{{生年月日と年齢}}に", {"生年月日と年齢": 1}, "ja"),
        ("a {{val|5|to|8|u=m}} {{val|5|x}} {{bibleverse}} b", {"val": 2, "bibleverse": 1}, "en"),
        ("a {{music|segno}} {{rquote|left}} b", {"music": 1, "rquote": 1}, "en"),
    ],
)
def test_templates_without_a_text_inside_lines_are_counted(wikitext, expected, language):
    _, dropped = plain_text(wikitext, wiki_of(b"", language, ""))
    assert dropped == expected
    rules = yaml.dump({language: {"templates": {"": "|".join(dropped)}}}, allow_unicode=True)
    _, after = plain_text(wikitext, wiki_of(b"", language, rules))
    assert after == {}
