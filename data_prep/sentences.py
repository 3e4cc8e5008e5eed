"""Splits paragraphs into sentences with the Wikimedia Foundation's sentencex (Rust, abbreviations of many languages).

Compared on the 49 hard paragraphs of tests/fixtures/hard_sentences.txt (abbreviations, initials, quotations, decimals,
ellipses; 22 languages): precision and recall of boundaries, and speed on one core with English Wikipedia:

    sentencex 1.0.32                                   0.93  0.96   109 MB/s
    pysbd 0.3.4                                        0.83  0.93   0.3
    blingfire 0.1.8 (no release since 2021)            0.87  0.74    19
    tensorflow_text 2.20.1 StateBasedSentenceBreaker   0.37  0.93   2.6

Two workarounds are needed. Some text takes quadratic time (opening quotation marks, Chinese and Hindi without spaces:
26 s for 262,144 characters), so one call gets at most `WINDOW_CHARACTERS`. sentencex panics at a multi-byte space next
to an initial, so it only gets plain spaces (then 400,000 random strings of hard characters cause no panic).
"""

import itertools
import re
from collections.abc import Callable

from data_prep.readers.documents import Document

# 84 of 44,460 paragraphs of Wikipedia are longer. Chinese without spaces then runs at 6 MB/s, the worst text at 3 MB/s.
WINDOW_CHARACTERS = 2048

# The language behind the code of a Wikipedia, where sentencex does not know it, as it does of als or be-x-old. For
# Norwegian it has no rules and would take the English ones; most Norwegian abbreviations are also Danish.
_RULES_OF = {"simple": "en", "no": "da", "nb": "da", "nn": "da"}

_OTHER_SPACE = re.compile(r"[^\S ]")


class SentenceSplitter:
    """Splits documents into sentences. Only white space at the ends of sentences is lost.

    Args of the constructor:
        mode: "line": a line is a sentence. "split": lines are split. "auto": split if the document has paragraphs.
        language: code of a Wikipedia such as "en", "simple", "zh-min-nan" or, as dumps are named, "zh_min_nan", for
            abbreviations and full stops. sentencex applies its English rules to unknown languages.
    """

    def __init__(self, mode: str, language: str) -> None:
        self._mode = mode
        self._language = _RULES_OF.get(language, language.replace("_", "-"))
        self._segment: Callable[[str, str], list[str]] | None = None

    def sentences(self, document: Document) -> list[str]:
        """Returns the sentences of a document, stripped, without blank ones."""
        if self._mode == "line" or (self._mode == "auto" and not document.has_paragraphs):
            return document.lines
        if self._segment is None:
            import sentencex

            self._segment = sentencex.segment
        stripped = (piece.strip() for paragraph in document.lines for piece in self._split(paragraph))
        return [sentence for sentence in stripped if sentence]

    def _split(self, paragraph: str) -> list[str]:
        """Splits a paragraph into pieces whose concatenation is the paragraph."""
        if len(paragraph) <= WINDOW_CHARACTERS:
            return self._split_window(paragraph)
        pieces: list[str] = []
        begin = 0
        while len(paragraph) - begin > WINDOW_CHARACTERS:
            window = paragraph[begin : begin + WINDOW_CHARACTERS]
            complete = self._split_window(window)[:-1]  # the last sentence may continue after the window
            if not complete:
                complete = [window[: window.rfind(" ") + 1] or window]
            pieces += complete
            begin += sum(map(len, complete))
        return pieces + self._split_window(paragraph[begin:])

    def _split_window(self, text: str) -> list[str]:
        # " " is the only printable white space.
        if text.isprintable():
            return self._segment_or_whole(text)
        ends = itertools.accumulate(map(len, self._segment_or_whole(_OTHER_SPACE.sub(" ", text))), initial=0)
        return [text[begin:end] for begin, end in itertools.pairwise(ends)]

    def _segment_or_whole(self, text: str) -> list[str]:
        assert self._segment is not None
        try:
            return self._segment(self._language, text)
        except BaseException as error:
            # A panic of the library at one paragraph must not end a long build. The exception for a panic in Rust is
            # not an `Exception` and cannot be imported: only its name identifies it.
            if type(error).__name__ != "PanicException":
                raise
            return [text]
