"""What is left out because it is faulty: records, and whole files. The rest of a build goes on without them.

A record is a page, a line, an article. A file, or a file in an archive, is left out as a whole if it is damaged, not
UTF-8 or in another format: what can be read of it may be rubble. It may be read in parts by several processes, so the
fault of one part must undo the others: the sum over the units of a build (`total_of`) leaves out all its units.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from data_prep.archives import ReadError
from data_prep.readers.documents import NUM_NAMED, ReadCounts
from data_prep.source_files import SourceFile

_logger = logging.getLogger(__name__)

# Allowed unless --max_skipped is 0: some records of a small input, and a file of many.
_ALLOWED_RECORDS = 10
_ALLOWED_BYTES = 0.05
_MAX_FILES_NAMED = 100


def total_of(counts_of_units: Sequence[ReadCounts]) -> ReadCounts:
    """Adds up the counts of units, without the units of files that are left out."""
    total = ReadCounts()
    for counts in counts_of_units:
        of_all = ("num_bytes", "faulty_files", "unpacked_bytes")
        total.add(ReadCounts(**{name: getattr(counts, name) for name in of_all}))
    for counts in counts_of_units:
        if is_kept(counts.sources, total):
            total.add(replace(counts, num_bytes=0, unpacked_bytes=Counter()))
    total.num_documents_skipped += Counter(reason for _, reason, *_ in total.faulty_files.values())
    return total


def is_kept(sources: Iterable[str], total: ReadCounts) -> bool:
    """Whether no source of a unit is a file that is left out."""
    return total.faulty_files.keys().isdisjoint(sources)


def named_faults(counts: ReadCounts, files: Sequence[SourceFile] = ()) -> dict[str, tuple[str, ...]]:
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


def _name(path: str, files: Sequence[SourceFile]) -> str:
    return next((each.name + path[len(each.path) :] for each in files if path.startswith(each.path)), path)


def require_few_faults(counts: ReadCounts, max_skipped: float, num_bytes: int) -> None:
    """Logs a warning with the faulty records and files that are left out, and one with texts that look damaged.

    Args:
        counts: of the whole input, of `num_bytes`.
    Raises: ReadError: more records than 10 and than the fraction `max_skipped` are left out (a file counts as one), or
        files with more than 5 % and than this fraction of the bytes.
    """
    if damaged := sorted(counts.c1_controls):
        _logger.warning(
            "warning: %d C1 control characters, in %s: perhaps a text in Windows-1252 was converted as if it were"
            " Latin-1; then its quotes and dashes are lost",
            counts.c1_controls.total(),
            ", ".join(damaged[:NUM_NAMED]),
        )
    if not (named := named_faults(counts)):
        return
    number = sum(counts.num_documents_skipped[reason] for reason in counts.faulty_records)
    num_documents = counts.num_documents_read + number
    num_files = len(counts.faulty_files)
    num_faulty_bytes = sum(_stored_bytes(fault, counts) for fault in counts.faulty_files.values())
    parts = [f"{number} of {num_documents} documents"] if number else []
    if num_files:
        parts.append(f"{num_files} files with {100 * num_faulty_bytes / num_bytes:.3g} % of the bytes")
    numbered = {f"{counts.num_documents_skipped[key] or len(names)} {key}": names for key, names in named.items()}
    message = f"{' and '.join(parts)} cannot be read: {joined(numbered)}"
    max_number = max(_ALLOWED_RECORDS, max_skipped * num_documents) if max_skipped else 0
    max_bytes = max(_ALLOWED_BYTES, max_skipped) * num_bytes if max_skipped else 0
    exceeded = [f"{int(max_number)} records"] if number + num_files > max_number else []
    exceeded += [f"{100 * max_bytes / num_bytes:g} % of the bytes"] if num_faulty_bytes > max_bytes else []
    if exceeded:
        raise ReadError(
            f"{message}; more than {' and '.join(exceeded)}, the limit with --max_skipped={max_skipped}: correct or"
            " remove them, or raise --max_skipped to leave them out"
        )
    _logger.warning("warning: %s; they are left out", message)


def _stored_bytes(fault: list, counts: ReadCounts) -> float:
    """The size of a faulty file as stored. One in an archive has its share of it, by the sizes of the files in it."""
    num_bytes, *in_archive = fault[3:]
    if not in_archive:
        return num_bytes
    archive, size = in_archive
    return 0 if archive in counts.faulty_files else num_bytes * size / counts.unpacked_bytes[archive]


def joined(named: Mapping[str, Iterable[str]]) -> str:
    """Writes the result of `named_faults` as a line."""
    return "; ".join(f"{reason}: {', '.join(names)}" for reason, names in named.items())
