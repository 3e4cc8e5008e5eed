"""Converts UTF-16 that says so, tells UTF-8 from other encodings and from files that are no text."""

import codecs
import io
import re
from collections.abc import Iterator

from data_prep.archives import BUFFER_BYTES, FileFault, begin_of, joined, raise_error_of

# Text has hardly any of these. In UTF-16 they are every second byte (NUL of ASCII, 0x04 of Cyrillic, 0x0E of Thai), or,
# where that is a tab or a line end (Devanagari, Malayalam), at least one in ten.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MAX_CONTROLS = 0.05
_MAX_CONTROLS_OF_FEW = 0.1  # characters, in which three controls are no sign of anything

# How files begin that are no text, though they are UTF-8: read as text, they would be lost without a word.
_NOT_TEXT = {
    rb"\{\\rtf\d": "an RTF document",
    rb"version https://git-lfs\.\S+/v1\r?\n(oid|ext)": "a pointer of Git LFS (git lfs pull gets the file itself)",
    rb'(?:\xef\xbb\xbf)?\s*\[\s*(\{\s*)?"[^"\n]*"\s*[:,]': "a JSON array (jq -c '.[]' makes lines of it)",
    # The first line goes on in the next one, with a name.
    rb'(?:\xef\xbb\xbf)?\s*\{([ \t]*"[^\n]*[,{\[:])?[ \t]*\r?\n\s*["}]': "indented JSON (jq -c . makes lines of it)",
    rb"(?i)(?:\xef\xbb\xbf)?\s*<(!doctype )?html\b": "an HTML page",
    rb"\s*%PDF-\d": "a PDF file",
    rb"PAR1": "a table (parquet:GLOB, or sentences:GLOB if a row is a sentence)",
    rb"ARROW1|\xff{4}": "a table (arrow:GLOB, or sentences:GLOB if a row is a sentence)",
}


def check_is_text(begin: bytes) -> None:
    """Checks the first bytes of a text file.

    Raises: FileFault: it is of a format that is no text, or has many control characters, as UTF-16 has.
    """
    names = (name for pattern, name in _NOT_TEXT.items() if re.match(pattern, begin))
    problems = [f"is {name}; give its text in a format of input, see --help" for name in names]
    # A run of NULs is a hole that a crash left, which the text around it shows; UTF-32 has at most three in a row.
    without_holes = re.sub(rb"\0{4,}", lambda hole: b" " * len(hole[0]), begin)
    if controls := many_controls(without_holes.decode("latin-1")):
        control = min(controls, key=lambda each: each[0])
        place = f"byte 0x{ord(control[0]):02x} at offset {control.start()} and others"
        problems.append(f"is not text: {place}; if it is UTF-16, convert it to UTF-8")
    if problems:
        raise FileFault("files that are not text", problems[0])


def many_controls(text: str) -> list[re.Match[str]]:
    """Finds the C0 control characters, except tabs and line ends, if they show that `text` is no text; or []."""
    controls = [] if text.isprintable() else list(_CONTROLS.finditer(text))
    max_number = min(_MAX_CONTROLS_OF_FEW * len(text), 3 + _MAX_CONTROLS * len(text))
    return controls if len(controls) > max(2, max_number) else []


def checked_text(stream: io.BufferedReader, offset: int, is_begin: bool = True) -> Iterator[bytes]:
    """Yields the blocks of a stream, which begins at `offset` of a file, up to its first fault.

    Args:
        is_begin: whether the stream is the beginning of the file, which shows whether it is text, and UTF-16.
    Raises: FileFault: it is not text, or not UTF-8. Also the error at which the stream has ended, see `joined`.
    """
    if is_begin:
        stream = in_utf_8(stream)
        check_is_text(begin_of(stream))
    decoder = codecs.getincrementaldecoder("utf-8")()
    while True:
        block = stream.read(BUFFER_BYTES)
        if not block:
            raise_error_of(stream)
        held = decoder.getstate()[0]
        try:
            decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            yield block[: max(0, error.start - len(held))]
            place = f"byte 0x{(held + block)[error.start]:02x} at offset {offset - len(held) + error.start}"
            advice = "convert it to UTF-8 from the encoding in which it was written"
            raise FileFault("files that are not UTF-8", f"is not UTF-8: {place}; {advice}") from None
        if not block:
            return
        offset += len(block)
        yield block


def utf_16_of(begin: bytes) -> str:
    """The encoding of a file that begins with a byte order mark of UTF-16: "utf-16-le" or "utf-16-be"; else ""."""
    marks = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
    return "" if begin.startswith(codecs.BOM_UTF32_LE) else marks.get(begin[:2], "")


def in_utf_8(stream: io.BufferedReader) -> io.BufferedReader:
    """A file from its beginning, in UTF-8 if it is in UTF-16 with a byte order mark."""
    encoding = utf_16_of(begin_of(stream))
    return joined(_converted(stream, encoding)) if encoding else stream


def _converted(stream: io.BufferedReader, encoding: str) -> Iterator[bytes]:
    # Halves of surrogate pairs become U+FFFD, which is dropped and counted.
    for text in codecs.iterdecode(iter(lambda: stream.read(BUFFER_BYTES), b""), encoding, errors="replace"):
        yield text.encode()
    raise_error_of(stream)
