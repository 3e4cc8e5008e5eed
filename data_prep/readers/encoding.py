"""Tells text in UTF-8 from files in other encodings and from files that are no text, and says which they are."""

import codecs
import io
import json
import re
from typing import IO

from data_prep.archives import BUFFER_BYTES, FileFault, begin_of

# Text has hardly any of these. In UTF-16 they are every second byte (NUL of ASCII, 0x04 of Cyrillic, 0x0E of Thai), or,
# where that is a tab or a line end (Devanagari, Malayalam), at least one in ten.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MAX_CONTROLS = 0.05
_MAX_CONTROLS_OF_FEW = 0.1  # characters, in which three controls are no sign of anything

# The first bytes of files that are no text.
_NOT_TEXT = {
    rb"PK(\x03\x04|\x05\x06)": "a ZIP archive, or a document packed in one (docx, epub, xlsx)",
    rb"7z\xbc\xaf\x27\x1c": "a 7z archive",
    rb"Rar!\x1a\x07": "a RAR archive",
    rb"\x1f\x9d": "a file of compress",
    rb"\x04\x22\x4d\x18": "a file of lz4",
    rb"\s*%PDF-\d\.\d": "a PDF file",
    rb"\{\\rtf\d": "an RTF document",
    rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "a document of an older Microsoft Office",
    rb"SQLite format 3\0": "an SQLite database",
    rb"\x89HDF\r\n": "an HDF5 file",
    rb"version https://git-lfs\.\S+/v1\r?\n(oid|ext)": "a pointer of Git LFS (git lfs pull gets the file itself)",
}
_JSON_ARRAY = re.compile(rb'(?:\xef\xbb\xbf)?\s*\[\s*(?=\{\s*"[^"\n]*"\s*:)')
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)

# The advice is for a file, and drops bytes: it is only given where these are few.
_ADVISED_BYTES = 2**22
_MAX_DROPPED_BYTES = 3
_MIN_VALID_PER_DROPPED = 100
# In the languages of Windows-1252, most letters are ASCII. In those of the other encodings that use these bytes (other
# alphabets, Chinese, Japanese), most are not.
_MAX_HIGH_FRACTION = 0.25
# Letters of DOS and Macintosh, such as é, are signs within words in Windows-1252, or capitals after small letters.
_NOT_WINDOWS = re.compile("[A-Za-z][‚„ƒˆ]|[a-z][ŠŒŽŸ]|[a-z][†‡‰‹•˜›¢][a-z]")
_WINDOWS_ONLY = re.compile(rb"[\x80-\x9f]")


def check_is_text(begin: bytes) -> None:
    """Checks the first bytes of a text file. Raises: FileFault: it is in UTF-16 or in a format that is no text."""
    reason = "files that are not text"
    for pattern, name in _NOT_TEXT.items():
        if re.match(pattern, begin):
            raise FileFault(reason, f"is {name}; give its text in a format of --input, see --help")
    if (array := _JSON_ARRAY.match(begin)) and _begins_with_json(begin[array.end() :]):
        raise FileFault(reason, "is a JSON array (jq -c '.[]' makes lines of it)")
    for mark, name in _BYTE_ORDER_MARKS:
        if begin.startswith(mark):
            raise FileFault(reason, f"begins with the byte order mark of {name}; convert it: iconv -f {name} -t UTF-8")
    # A run of NULs is a hole that a crash left, which the text around it shows; UTF-32 has at most three in a row.
    without_holes = re.sub(rb"\0{4,}", lambda hole: b" " * len(hole[0]), begin)
    if controls := many_controls(without_holes.decode("latin-1")):
        control = min(controls, key=lambda each: each[0])
        place = f"byte 0x{ord(control[0]):02x} at offset {control.start()} and others"
        raise FileFault(reason, f"is not text: {place}; if it is UTF-16 or the like, convert it to UTF-8")


def _begins_with_json(begin: bytes) -> bool:
    """Whether `begin` begins with a JSON value, or is the begin of a longer one."""
    text = begin.decode("utf-8", "ignore")
    try:
        json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:  # of a string without an end, the position is its begin
        return getattr(error, "pos", len(text)) > len(text) - len("\\uD83D") or "Unterminated" in str(error)
    return True


def many_controls(text: str) -> list[re.Match[str]]:
    """Finds the C0 control characters, except tabs and line ends, if they show that `text` is no text; or []."""
    controls = [] if text.isprintable() else list(_CONTROLS.finditer(text))
    max_number = min(_MAX_CONTROLS_OF_FEW * len(text), 3 + _MAX_CONTROLS * len(text))
    return controls if len(controls) > max(2, max_number) else []


def copy_text(stream: io.BufferedReader, copy: IO[bytes], offset: int) -> None:
    """Copies a stream, which begins at `offset` of a file. Raises: FileFault: it is not text, or not UTF-8."""
    if offset == 0:
        check_is_text(begin_of(stream))
    decoder = codecs.getincrementaldecoder("utf-8")()
    block = b""
    while True:
        last, block = block, stream.read(BUFFER_BYTES)
        held = decoder.getstate()[0]
        try:
            decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            place = f"byte 0x{(held + block)[error.start]:02x} at offset {offset - len(held) + error.start}"
            advice = _advice(last + block + stream.read(_ADVISED_BYTES))
            raise FileFault("files that are not UTF-8", f"is not UTF-8: {place}; {advice}") from None
        if not block:
            return
        offset += len(block)
        copy.write(block)


def _advice(content: bytes) -> str:
    """What to do with text that is not UTF-8. No encoding is named if there are several likely ones."""
    text = content.decode("utf-8", "surrogateescape")
    num_bad = len(re.findall("[\udc80-\udcff]", text))
    num_valid = len(re.findall("[^\0-\x7f\udc80-\udcff]", text))
    if num_bad <= max(min(_MAX_DROPPED_BYTES, num_valid // 2), num_valid // _MIN_VALID_PER_DROPPED):
        return "the text around it is UTF-8: iconv -f UTF-8 -t UTF-8 -c drops such bytes"
    is_western = 10 * num_valid <= num_bad <= _MAX_HIGH_FRACTION * len(content)
    if is_western and _WINDOWS_ONLY.search(content):
        with_signs = content.decode("cp1252", "replace")
        if "\ufffd" not in with_signs and not _NOT_WINDOWS.search(with_signs):
            return "it looks like Windows-1252, if its language is of Western Europe; convert it to UTF-8"
    return "convert it to UTF-8 from the encoding in which it was written"
