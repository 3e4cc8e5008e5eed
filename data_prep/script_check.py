"""Refuses, from a sample and before hours of work, settings that do not fit the text.

They are a format or field in which no record can be read, and BERT's default cleaning for scripts that it damages.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice

from data_prep.counts import ReadCounts, join_faults, named_faults, require_few_faults
from data_prep.readers.documents import Document
from data_prep.settings import CommandSettings
from data_prep.sources import SourceFile
from data_prep.units import plan_units, read_unit
from electra_tf.config.errors import UserError
from electra_tf.text.scripts import damages
from electra_tf.text.vocabulary import TextSettings

# The sample: the beginnings of some files.
_MAX_FILES = 16
_SAMPLE_CHARACTERS = 500_000
_UNIT_BYTES = 2**16  # read at once, except of a book or an archive
_MAX_UNITS = 32  # of a file


def require_readable(files: Sequence[SourceFile], settings: CommandSettings) -> None:
    """Checks that the beginnings of some files of each --input, and the first bytes of all, can be read.

    Raises: UserError: all records are faulty, as with a wrong --text_field; or see `require_few_faults`.
    """
    known = ReadCounts()
    for index, group in groupby(files, lambda file: file.input_index):
        counts, of_input = ReadCounts(), list(group)
        sample = [*(file for file in of_input if file.fault), *_chosen(of_input)]
        has_documents = any(document for file in sample for document in _first_documents(file, settings, counts))
        if counts.faulty_records and not has_documents:
            faulty = join_faults(named_faults(counts))
            raise UserError(f"--input={settings.inputs[index]}: nothing of a sample can be read: {faulty}")
        known.faulty_files |= counts.faulty_files
    require_few_faults(known, settings.max_skipped, sum(file.num_bytes for file in files))


def require_undamaged(files: Sequence[SourceFile], settings: CommandSettings, chosen: TextSettings) -> None:
    """Checks that defaults do no damage to a text. What the user gives is accepted.

    Args:
        settings: of the command: how the files are read, and which settings of the text the user gives.
        chosen: how the text will be normalized.
    Raises: UserError: a setting that is not given damages more than 1 % of the letters; see also `read_unit`.
    """
    is_given = {name: value is not None for name, value in settings.text_flags.items()}
    is_given["strip_accents"] |= is_given["lower_case"] and not chosen.lower_case
    in_question = chosen._replace(**{name: False for name in ("strip_accents", "isolate_cjk") if is_given[name]})
    if not (in_question.strip_accents or in_question.isolate_cjk):
        return
    if found := damages(_sample(files, settings), in_question):
        complaints = [
            f"{100 * damage.fraction:.1f} % of the letters are {damage.script}, which {damage.setting} damages (give "
            f"--no-{damage.setting}, or --{damage.setting} to accept it)"
            for damage in found
        ]
        raise UserError(f"--input={' '.join(settings.inputs)}: in a sample of the text, {', and '.join(complaints)}")


def _sample(files: Sequence[SourceFile], settings: CommandSettings) -> str:
    """The first documents of some files."""
    chosen = _chosen(files)
    return "\n".join(_begin_of(file, settings, _SAMPLE_CHARACTERS // len(chosen)) for file in chosen)


def _chosen(files: Sequence[SourceFile]) -> Sequence[SourceFile]:
    return [files[len(files) * index // _MAX_FILES] for index in range(_MAX_FILES)] if files[_MAX_FILES:] else files


def _begin_of(file: SourceFile, settings: CommandSettings, num_characters: int) -> str:
    text = ""
    for document in _first_documents(file, settings, ReadCounts()):
        text += "\n".join(document.lines)[: num_characters - len(text)] + "\n"
        if len(text) > num_characters:
            return text
    return text


def _first_documents(file: SourceFile, settings: CommandSettings, counts: ReadCounts) -> Iterator[Document]:
    for unit in islice(plan_units([file], _UNIT_BYTES, settings), _MAX_UNITS):
        yield from read_unit(unit, settings, counts)
