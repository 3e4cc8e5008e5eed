"""What a build read, what it left out, and checks that enough is left.

A record is a page, a line, an article. Of a file, or a file in an archive, that is damaged, not UTF-8 or in another
format, what comes after the fault is left out; of a file in several ranges, to the end of its range.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from data_prep.archives import ReadError
from electra_tf.config.errors import UserError
from electra_tf.data import manifest
from electra_tf.data.manifest import HELD_OUT_SPLIT, TRAIN_SPLIT

if TYPE_CHECKING:
    from data_prep.settings import BuildSettings
    from data_prep.sources import SourceFile

_logger = logging.getLogger(__name__)

NUM_NAMED = 5  # faulty records, for each reason
# Category Cc except white space, which `str.isspace` knows; and U+FFFD.
DROPPED_CHARACTERS = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufffd]")

# Allowed unless --max_skipped is 0: some records of a small input, and a file of many.
_ALLOWED_RECORDS = 10
_ALLOWED_BYTES = 0.05
_MAX_FILES_NAMED = 100
_MAX_UNKNOWN_FRACTION = 0.01  # of the tokens; a vocabulary of a language has far less in its own texts
_MAX_MARK_FRACTION = 0.1  # of the tokens that are one mark
_MANY_TOO_SHORT = 0.5  # of the documents; the text may not be what its format says


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
            if isinstance(value, Counter):
                getattr(self, name).update(value)
            elif not name.startswith("faulty"):
                setattr(self, name, getattr(self, name) + value)
        for reason, named in other.faulty_records.items():
            self.faulty_records[reason] = sorted([*self.faulty_records.get(reason, []), *named])[:NUM_NAMED]
        for path, (*fault, num_bytes) in other.faulty_files.items():
            *earlier, num_earlier = self.faulty_files.get(path, [*fault, 0])
            self.faulty_files[path] = [*min(fault, earlier), num_bytes + num_earlier]

    def leave_out(self, reason: str, path: str, offset: int | None, description: str) -> None:
        """Counts a faulty record, and names it if it is one of the first. Its control characters are escaped."""
        text = DROPPED_CHARACTERS.sub(lambda control: repr(control[0])[1:-1], " ".join(description.split()))
        record = [path, offset, text]
        self.add(ReadCounts(num_documents_skipped=Counter({reason: 1}), faulty_records={reason: [record]}))

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


def named_faults(counts: ReadCounts, files: Sequence["SourceFile"] = ()) -> dict[str, tuple[str, ...]]:
    """Names the first faulty records and files of each reason; with `files`, fewer, by their names, without advice."""
    named: dict[str, tuple[str, ...]] = {
        reason: tuple(
            f"{_name(path, files)}{'' if offset is None else f' at offset {offset}'}: {text}"
            for path, offset, text in records
        )
        for reason, records in counts.faulty_records.items()
    }
    for path, (_, reason, description, *_) in sorted(counts.faulty_files.items()):
        text = f"{_name(path, files)} {description.partition('; ')[0] if files else description}"
        named[reason] = (*named.get(reason, ()), text)[: NUM_NAMED if files else _MAX_FILES_NAMED]
    return dict(sorted(named.items()))


def _name(path: str, files: Sequence["SourceFile"]) -> str:
    return next((each.name + path[len(each.path) :] for each in files if path.startswith(each.path)), path)


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
            f"{message}; more than {' and '.join(exceeded)}, the limit with --max_skipped={max_skipped}: correct or"
            " remove them, or raise --max_skipped to leave them out"
        )
    _logger.warning("warning: %s; they are left out, files from the fault on", message)


def join_faults(named: Mapping[str, Iterable[str]]) -> str:
    """Writes the result of `named_faults` as a line."""
    return "; ".join(f"{reason}: {', '.join(names)}" for reason, names in named.items())


def require_text(settings: "BuildSettings", counts: ReadCounts, num_bytes: int) -> None:
    """Checks that the input could be read, and that documents to train on are left.

    Args:
        counts: the sum over all work units.
        num_bytes: the size of all files.
    Raises: ReadError: too much is faulty. UserError: no document is left, all are held out, or most tokens are dropped.
    """
    require_few_faults(counts, settings.max_skipped, num_bytes)
    if counts.num_unknown_tokens > _MAX_UNKNOWN_FRACTION * counts.num_tokens_read:
        _logger.warning(
            "%.1f %% of the tokens are [UNK]: the vocabulary or its settings (case, accents) do not fit this text",
            100 * counts.num_unknown_tokens / counts.num_tokens_read,
        )
    if counts.num_documents_too_short > _MANY_TOO_SHORT * counts.num_documents_read:
        _logger.warning(
            "warning: %d of %d documents are shorter than --min_document_characters=%d; in the format text a blank line"
            " ends a document: if one follows every line or paragraph, give --input=sentences:GLOB or book:GLOB",
            counts.num_documents_too_short,
            counts.num_documents_read,
            settings.min_document_characters,
        )
    num_train, num_held_out = (counts.split_documents[split] for split in (TRAIN_SPLIT, HELD_OUT_SPLIT))
    if not num_train + num_held_out:
        too_short = f"shorter than --min_document_characters={settings.min_document_characters}"
        reasons = left_out(counts, too_short) or "it holds no text"
        raise UserError(
            f"no document is left of {counts.num_bytes} bytes of input: {reasons}; give other files or change these"
            " settings"
        )
    if not num_train:
        raise UserError(
            f"all {num_held_out} documents were held out; lower --held_out_fraction={settings.held_out_fraction}"
            " or change --seed"
        )
    num_kept = counts.num_tokens_read - counts.num_tokens_dropped
    if 2 * num_kept < counts.num_tokens_read:
        raise UserError(
            f"only {num_kept} of {counts.num_tokens_read} tokens fit into examples, and --examples={settings.examples}"
            " drops what exceeds one; give --examples=carry, which keeps all tokens"
        )


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
