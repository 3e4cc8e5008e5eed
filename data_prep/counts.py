"""What a build read, what it left out, and checks that enough is left.

A record is a page, a line, an article. Of a file, or a file in an archive, that is damaged, not UTF-8 or in another
format, what comes after the fault is left out; of a file in several ranges, to the end of its range.
"""

import functools
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from data_prep.archives import ReadError
from electra_tf.data import manifest

_logger = logging.getLogger(__name__)

NUM_NAMED = 5  # faulty records, for each reason
# Category Cc except white space, which `str.isspace` knows; and U+FFFD.
DROPPED_CHARACTERS = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufffd]")

# Allowed unless --max_skipped is 0: some records of a small input, and a file of many.
_ALLOWED_RECORDS = 10
_ALLOWED_BYTES = 0.05
_MAX_FILES_NAMED = 100
_MAX_MARK_FRACTION = 0.1  # of the tokens that are one mark


@dataclass
class ReadCounts:
    """Totals of a work unit or of the whole build, before duplicates are dropped; see also `manifest.Counts`.

    Attributes:
        num_bytes: the size of the input files as stored.
        num_documents_too_short: includes documents without any character.
        num_documents_without_tokens: documents whose characters are all dropped by the tokenizer.
        num_tokens_dropped: tokens that exceeded the length of an example (only with `examples="authors"`).
        templates_dropped: templates without a text inside lines of a Wikipedia dump, by name.
        split_documents, split_record_bytes: by split; include duplicates.
        faulty_records: by reason, [file, offset or None, description] of the first records that are left out.
        faulty_files: by path, [begin, reason, description] of the first faulty range of a file, and the size as stored
            of its faulty ranges; 0 in an archive.
    """

    num_bytes: int = 0
    num_documents_skipped: Counter[str] = field(default_factory=Counter)
    num_documents_cut: int = 0
    num_documents_read: int = 0
    num_documents_mojibake_fixed: int = 0
    num_documents_normalized: int = 0
    num_control_characters_dropped: int = 0
    num_documents_too_short: int = 0
    num_documents_in_other_languages: int = 0
    num_documents_without_tokens: int = 0
    num_tokens_read: int = 0
    num_unknown_tokens: int = 0
    num_tokens_dropped: int = 0
    templates_dropped: Counter[str] = field(default_factory=Counter)
    split_documents: Counter[str] = field(default_factory=Counter)
    split_record_bytes: Counter[str] = field(default_factory=Counter)
    faulty_records: dict[str, list[list]] = field(default_factory=dict)
    faulty_files: dict[str, list] = field(default_factory=dict)

    def add(self, other: "ReadCounts") -> None:
        """Adds `other`, field by field. The order of several calls does not matter."""
        for name, value in vars(other).items():
            if not value:  # most of a single record's
                continue
            if isinstance(value, Counter):
                getattr(self, name).update(value)
            elif not name.startswith("faulty"):
                setattr(self, name, getattr(self, name) + value)
        for reason, named in other.faulty_records.items():
            self.faulty_records[reason] = sorted([*self.faulty_records.get(reason, []), *named])[:NUM_NAMED]
        for path, (*fault, num_bytes) in other.faulty_files.items():
            *earlier, num_earlier = self.faulty_files.get(path, [*fault, 0])
            self.faulty_files[path] = [*min(fault, earlier), num_bytes + num_earlier]

    @classmethod
    def of_fault(cls, reason: str, path: str, offset: int | None, description: str) -> "ReadCounts":
        """The counts of a faulty record, which is left out. Its control characters are escaped."""
        text = DROPPED_CHARACTERS.sub(lambda control: repr(control[0])[1:-1], " ".join(description.split()))
        return cls(num_documents_skipped=Counter({reason: 1}), faulty_records={reason: [[path, offset, text]]})

    @classmethod
    @functools.cache  # a dump has more redirects than articles
    def skipped(cls, reason: str) -> "ReadCounts":
        """The counts of a document that is left out, and is no fault; to be added only."""
        return cls(num_documents_skipped=Counter({reason: 1}))

    @classmethod
    def from_json(cls, fields: dict) -> "ReadCounts":
        """Creates the counts from `vars(counts)`, read from JSON."""
        kinds = vars(cls())
        return cls(**{name: type(kinds[name])(value) for name, value in fields.items()})


def total_of(counts_of_units: Iterable[ReadCounts]) -> ReadCounts:
    """Adds up the counts of all units; each faulty file counts as one document that is left out."""
    total = ReadCounts()
    for counts in counts_of_units:
        total.add(counts)
    total.num_documents_skipped += Counter(reason for _, reason, *_ in total.faulty_files.values())
    return total


def named_faults(counts: ReadCounts, names: Mapping[str, str] = MappingProxyType({})) -> dict[str, tuple[str, ...]]:
    """Names the first faulty records and files of each reason.

    With `names`, of files by their paths: fewer, by these names, and without advice.
    """

    def name_of(path: str) -> str:  # of a file, or of one in an archive
        return next((name + path[len(file) :] for file, name in names.items() if path.startswith(file)), path)

    named: dict[str, tuple[str, ...]] = {
        reason: tuple(
            f"{name_of(path)}{'' if offset is None else f' at offset {offset}'}: {text}"
            for path, offset, text in records
        )
        for reason, records in counts.faulty_records.items()
    }
    for path, (_, reason, description, *_) in sorted(counts.faulty_files.items()):
        text = f"{name_of(path)} {description.partition('; ')[0] if names else description}"
        named[reason] = (*named.get(reason, ()), text)[: NUM_NAMED if names else _MAX_FILES_NAMED]
    return dict(sorted(named.items()))


def require_few_faults(counts: ReadCounts, max_skipped: float, num_bytes: int) -> None:
    """Logs a warning with the faulty records and files that are left out.

    Args:
        counts: of the whole input, of `num_bytes`.
    Raises: ReadError: more records than 10 and than the fraction `max_skipped` are left out (a file counts as one), or
        files with more than 5 % and than this fraction of the bytes.
    """
    if not (named := named_faults(counts)):
        return
    number = sum(counts.num_documents_skipped[reason] for reason in counts.faulty_records)
    num_documents = counts.num_documents_read + number
    num_files = len(counts.faulty_files)
    num_faulty_bytes = sum(num_bytes for *_, num_bytes in counts.faulty_files.values())
    parts = [f"{number} of {num_documents} documents"] if number else []
    if num_files:
        parts.append(f"{num_files} files with {100 * num_faulty_bytes / num_bytes:.3g} % of the bytes")
    numbered = {f"{counts.num_documents_skipped[key] or len(names)} {key}": names for key, names in named.items()}
    message = f"{' and '.join(parts)} cannot be read: {join_faults(numbered)}"
    max_number = max(_ALLOWED_RECORDS, max_skipped * num_documents) if max_skipped else 0
    max_bytes = max(_ALLOWED_BYTES, max_skipped) * num_bytes if max_skipped else 0
    exceeded = [f"{int(max_number)} records"] if number + num_files > max_number else []
    exceeded += [f"{100 * max_bytes / num_bytes:g} % of the bytes"] if num_faulty_bytes > max_bytes else []
    if exceeded:
        raise ReadError(
            f"{message}; more than {' and '.join(exceeded)}, the limit with max_skipped={max_skipped}: correct or"
            " remove them, or raise max_skipped to leave them out"
        )
    _logger.warning("warning: %s; they are left out, files from the fault on", message)


def join_faults(named: Mapping[str, Iterable[str]]) -> str:
    """Writes the result of `named_faults` as a line."""
    return "; ".join(f"{reason}: {', '.join(names)}" for reason, names in named.items())


def warn_of_mark(counts_of_tokens: Mapping[str, int]) -> None:
    """Logs a warning with the most frequent mark, if it is more than a tenth of all tokens."""
    marks = [(count, token) for token, count in counts_of_tokens.items() if len(token) == 1 and not token.isalnum()]
    count, mark = max(marks, default=(0, ""))
    if count > _MAX_MARK_FRACTION * (total := sum(counts_of_tokens.values())):
        text = "warning: %.0f %% of the tokens are the mark %s; if it joins the parts of words, replace it in the text"
        _logger.warning(text, 100 * count / total, mark)


def left_out(counts: ReadCounts | manifest.Counts, too_short: str = "too short") -> str:
    """Describes how many documents were left out, by reason: "3 redirects, 1 too short"."""
    left_out = {
        **counts.num_documents_skipped,
        too_short: counts.num_documents_too_short,
        "in other languages": counts.num_documents_in_other_languages,
        "without a token": counts.num_documents_without_tokens,
        "duplicate": getattr(counts, "num_documents_duplicate", 0),
        "near-duplicate": getattr(counts, "num_documents_near_duplicate", 0),
    }
    return ", ".join(f"{number} {reason}" for reason, number in left_out.items() if number)
