import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.wikitext import prose
from data_prep.wikitext.names import wiki_of

NINES = 4400 * "9"
MARKERS = ("[[", "]]", "{{", "}}", "<ref", "&nbsp;", "{|", "|}")


def plain_text(wikitext: str, language: str = "en") -> list[str]:
    """The lines of a page of the Wikipedia in `language`."""
    return prose.plain_text(wikitext, wiki_of(b"", language, ""))[0]


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("'''Bold''' and ''slanted'' and '''''both'''''", "Bold and slanted and both"),
        ("a [[cat]], a [[dog|hound]]", "a cat, a hound"),
        ("[[bus]]es and [[public transport|public]]s", "buses and publics"),
        ("[[Pipe (computing)|]], [[Boston, Massachusetts|]], [[Help:Pipe|]]", "Pipe, Boston, Pipe"),
        ("a [[wikt:word|word]] of [[s:Hamlet|Hamlet]]", "a word of Hamlet"),
        ("[[File:Cat.jpg|thumb|A [[cat]] with {{convert|5|kg}} [http://a b]]]It sleeps.", "It sleeps."),
        ("[[Datei:Katze.jpg|mini|Eine [[Katze]]]]Sie schläft.", "Sie schläft."),
        ("[[Unknown:Cat.svg|left]]It sleeps.[[Category:Cats|cat]][[de:Katze]][[zh-min-nan:Niau]]", "It sleeps."),
        ("[http://example.org The ''site''] and [https://example.org]", "The site and"),
        ("[mailto:a@example.org mail] http://example.org/a stays", "mail http://example.org/a stays"),
        ("ភាសា&#8203;ខ្មែរ\u200bឯ, می&zwnj;ر\u00ad\u2060ا", "ភាសា\u200bខ្មែរ\u200bឯ, می\u200cرا"),  # a tokenizer decides
        ("5&nbsp;km &ndash; 6&#160;km &#x3b1; &lt;b&gt; &amp;amp; AT&T; &copy", "5 km – 6 km α <b> &amp; AT&T; &copy"),
        ("a<!-- no -->b<!-- [[ {{ --> c", "ab c"),
        ("a<!-- not closed [[x]]", "a"),
        ("It is so.<ref name=a>{{cite web|url=x}}</ref><ref name=a /> And so.<REF\n>x</REF >", "It is so. And so."),
        ("Let <math>\\frac{a}{b}</math> and <math>n</math> be", "Let and n be"),
        ("<gallery>\nA.jpg|one\n</gallery>x<timeline>t</timeline><source lang='c'>int[[i]]</source>", "x"),
        ("the <code>int</code> <span style='a'>type</span><br/>of <small>C</small>", "the int type of C"),
        ("<div><p class=x>one\ntwo</p></div>", "one two"),
        ("<nowiki>[[not a link]] ''x'' {| a |}</nowiki>", "[[not a link]] ''x'' {| a |}"),
        ("[[[[lang|fr {|]]", "fr"),
        ("{|{{nowrap|<b>a [http://a ('|}b=]}}", "a (' b="),
        ("{&#124;a|}, {&#124;b&#124;}, {{nowrap|{ {{!}}c{{!}} }}}, [[d|{&#124;e&#124;}]]", "{|a, {|b|}, { |c|}, {|e|}"),
        ("10<sup>7</sup> m<sup>2</sup>, H<sub>2</sub>O, the 1<sup>st</sup>", "10^7 m2, H2O, the 1st"),
        ("__NOTOC__a__KEIN_INHALTSVERZEICHNIS__ b__init__", "a b__init__"),
        ("-{H|zh-cn:博客;zh-tw:部落格}-a (-{Up}-) -{R|c: d}- -{zh:A&nbsp;B;zh-tw:C;}-", "a (Up) c: d A B"),
        ("-{zh-hans; zh-hant|只}-A-{里}-B -{ T |题}-c", "只A里B c"),
        ("N-{2-[4]ethyl}-N, 1-{3}-a, {a}-{b}-{c}, f-{i|j}-g", "N-{2-[4]ethyl}-N, 1-{3}-a, {a}-{b}-{c}, f-{i|j}-g"),
        ("A (; born 1950; ) and B (, ), ({{x}}; {{lang|fr|D}}), f() , g.", "A (born 1950) and B, (D), f(), g."),
        ("柏林（{{x}}、{{lang|de|Berlin}}、{{x}}、伯林；{{x}}）（{{x}}）是", "柏林（Berlin、伯林）是"),
        ("word{{citation needed|date=May}} , next {{x}} . End", "word, next. End"),
        ("{{Infobox\n| a = {{convert|5|km}}\n| b = [[x]]\n}}\nText.", "Text."),
        ("{|\n! h !! i\n|-\n| a || b\n{|\n| inner\n|}\n|}\nText.", "Text."),
        ("<table><tr><td>a<table></table></td></tr></table>Text.", "Text."),
        ("{{Taxobox\n| a = {|\n| b\n|}}}\nText.", "Text."),
        ("{{lang|fr|''chat''}} {{lang-ru|кот}} {{transl|ar|ALA|qiṭṭ}}", "chat кот qiṭṭ"),
        ("{{nowrap|1=a=b}} {{math|{{!}}''x''{{!}} {{=}} 2}}", "a=b |x| = 2"),
        ("{{Convert|52419|sqmi|km2|abbr=on}} {{convert|6|ft|2|in|m}}", "52,419 sq mi 6 ft 2 in"),
        ("{{frac|2}} {{frac|3|4}} {{frac|1|3|4}}", "1/2 3/4 1 3/4"),
        ("{{val|6.241|e=18|u=C}} {{formatnum:12345}} {{nts|12345}}", "6.241×10^18 C 12,345 12,345"),
        ("{{ Lang |fr| {{nowrap| a b }} }}", "a b"),
        # A number too long for Python stays as it is: with so many nines, int() raises ValueError.
        (f"{{{{convert|1|to|{NINES}|m}}}} {{{{formatnum:{NINES}}}}}", f"1 to {NINES} m {NINES}"),
        (f"{{{{as of|2015|{NINES}|3}}}} <nowiki>&#{NINES};</nowiki>", "As of 2015 \ufffd"),
    ],
    ids=lambda text: text[:25],
)
def test_markup_and_templates_within_a_line_become_their_visible_text(wikitext, text):
    assert plain_text(wikitext) == [text]


@pytest.mark.parametrize(
    ("wikitext", "lines"),
    [
        ("He said:\n{{quote|One [[a|two]].\n\nThree.|Author}}\nYes.", ["He said:", "One two.", "Three.", "Yes."]),
        (
            "One\ntwo.\n\nThree:\n* four\n** five\n#six\n:seven\n; eight\n pre\n----\nnine",
            ["One two.", "Three:", "four", "five", "six", "seven", "eight", "pre", "nine"],
        ),
        (
            "== A ==\n=== B ===\n{{x}}\n=== ''C'' ===\nText.\n== D ==\n[[File:x.png]]\n== E ==\n* e",
            ["A", "C", "Text.", "E", "e"],
        ),
        (
            "Text.\n== See also ==\n* [[A]]\n=== More ===\n* b\nReal prose.\n== Cats ==\n* c",
            ["Text.", "See also", "More", "Real prose.", "Cats", "c"],
        ),
        # Unpaired brackets are removed, and their text is kept.
        ("a [[b c", ["a b c"]),
        ("a {{nowrap|b [[c}} d]] e", ["a b c d e"]),
        ("{{Infobox\n| name = [[x|y]]\n| b = {{z}}\n\nText with a [[link|label]].", ["Infobox", "Text with a label."]),
        ('{| class="wikitable"\n! a !! b\n|-\n| c\n\nText.', ["Text."]),
        ("one [[two\n\nthree [[four|4]] ]] five", ["one two", "three 4 five"]),
        ('</ref> a <ref name="b" c <ref d', ["a c d"]),
        ("<table>one</td> two<table><tr><td>x</table> three</table\n>four <table>five", ["four five"]),
        ("one <table>two <table>x</table> three", ["one two three"]),
        ("[]][ {}}{ {{{{ }}}}}", []),
    ],
)
def test_lines_are_paragraphs_list_items_and_headings_with_text(wikitext, lines):
    assert plain_text(wikitext) == lines


REPEATED = ["{{a ", "{", "[[a|", "<ref>", "<b ", "<!--", "{|\n", "[http://a b ", "'", "==", ",", "( ", "&", "__A"]
NESTED = [
    "{{nowrap|" * 20_000 + "x" + "}}" * 20_000,
    "[[a|" * 50_000 + "x" + "]]" * 50_000,
    "{|\n" * 50_000 + "|}\n" * 50_000,
    "{|\n" + "|-\n| [[a|b]] || {{x|c}}\n" * 20_000 + "|}",
    ("{{nowrap|" + "<b [http://a b " * 300 + "}}\n\n") * 20,
]


@pytest.mark.parametrize(
    "wikitext", [*(piece * (300_000 // len(piece)) for piece in REPEATED), *NESTED], ids=lambda wikitext: wikitext[:12]
)
def test_broken_markup_is_read_in_linear_time(wikitext):
    begin = time.process_time()
    lines = plain_text(wikitext)
    # Usually at most 1 s; quadratic time would take minutes.
    assert time.process_time() - begin < 15
    assert not any(marker in line for line in lines for marker in ("[[", "{{", "{|"))


def test_text_too_long_for_the_parser_is_kept():
    words = "word " * 2_000
    assert plain_text("{{quote|" + words + "end}}") == [words + "end"]
    assert plain_text(words + "[http://example.org the ''site''].") == [words + "the site."]


PIECES = [
    *("[[", "]]", "{{", "}}", "{|", "|}", "|", "=", "'", "<ref>", "</ref>", "<ref", ">", "<!--", "-->", "]", "*", "("),
    *(")", "nowrap|", "File:", "a", "é", "<b>", "{", "}", "[", ",", ":", "__TOC__", "<math>", "\n", " "),
    *("[http://a ", "lang|fr|"),
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_random_markup_leaves_no_markers(pieces):
    for line in plain_text("".join(pieces)):
        assert line == line.strip() != ""
        assert not any(marker in line for marker in MARKERS)
