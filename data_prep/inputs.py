"""The inputs of a command: its files and vocabulary, checked by a sample before hours of work.

The checks refuse a format or field in which no record can be read, and BERT's default cleaning for scripts that it
damages.
"""

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import Any

from data_prep.counts import ReadCounts, join_faults, left_out, named_faults, require_few_faults
from data_prep.documents import Document
from data_prep.settings import BuildSettings, CommandSettings
from data_prep.sources import SourceFile, find_files
from data_prep.units import TextLimit, plan_units, read_unit
from electra_tf.config.errors import UserError
from electra_tf.data.manifest import HELD_OUT_SPLIT, MANIFEST_FILE, TRAIN_SPLIT
from electra_tf.files import exists, read_bytes
from electra_tf.text.hugging_face import MAX_CHARACTERS_PER_WORD, hugging_face_tokenizer
from electra_tf.text.scripts import damages, merges
from electra_tf.text.segment import ALREADY_SEGMENTED, SegmentFault, program_to_run, segmented
from electra_tf.text.vocabulary import TextSettings, Vocabulary, WordPieceVocabulary, read_vocabulary_file
from electra_tf.text.vocabulary_settings import chosen_settings, stated_settings

_logger = logging.getLogger(__name__)

# Text in a unit: some seconds of work, and little of a process's memory. Very large inputs have larger units, so that a
# shard is not gathered from thousands of spills.
_MIN_UNIT_BYTES = 4 * 2**20
_MAX_UNIT_BYTES = 32 * 2**20
_USUAL_NUM_UNITS = 1024

# The sample: the beginnings of some files.
_MAX_FILES = 16
_SAMPLE_CHARACTERS = 500_000
_SAMPLE_UNIT_BYTES = 2**16  # read at once, except of a book or a compressed file
_MAX_UNITS = 32  # of a file
_MAX_TEXT_BYTES = _MAX_UNITS * _SAMPLE_UNIT_BYTES  # of a unit that is a whole big file
_MAX_NOT_SEGMENTED = 10  # lines; of more, the program is a wrong one, such as MeCab without -Owakati

_MANY_UNKNOWN, _MAX_UNKNOWN = 0.05, 0.5  # of the characters: a warning and an error
_MANY_UNKNOWN_TOKENS = 0.01  # of all tokens; a vocabulary of a language has far less in its own texts
_MANY_TOO_SHORT = 0.5  # of the documents; the text may not be what its format says


@dataclass(frozen=True)
class BuildInputs:
    """The files that a build reads."""

    files: list[SourceFile]
    vocabulary: Vocabulary

    @classmethod
    def find(cls, settings: BuildSettings) -> "BuildInputs":
        """Finds the input files and reads the vocabulary.

        Raises: UserError: see `find_files`, `require_readable` and `Vocabulary.from_bytes`.
        """
        files = find_files(settings.inputs)
        require_readable(files, settings)
        content = read_vocabulary_file(settings.vocab_file)
        return cls(files, Vocabulary.from_bytes(content, settings.vocab_file))

    def with_text_settings(self, settings: BuildSettings) -> BuildSettings:
        """The settings with those of the vocabulary.

        Raises: UserError: a flag contradicts the vocabulary, or the vocabulary does not fit; see `chosen_settings`. Or
            the vocabulary states no settings, and a default damages the text; see `require_undamaged`. Or the
            vocabulary has no tokens for `layout`, or for most of a sample; see also `program_to_run`.
        """
        text_settings = chosen_settings(self.vocabulary, settings.vocab_file, read_bytes, settings.text_flags)
        program_to_run(text_settings.segment, settings.segment or None)
        can_keep = self.vocabulary.keeps_layout and settings.sentences != "split"
        if settings.layout == "keep" and not can_keep:
            raise UserError("layout=keep needs a byte-level BPE as vocab_file, and no sentences=split")
        further = {
            "layout": settings.layout or ("keep" if can_keep else "join"),
            "is_segmented": settings.segment == ALREADY_SEGMENTED,
        }
        complete = settings.model_copy(update={**text_settings._asdict(), **further})
        if settings.overwrite or not exists(os.path.join(settings.output_dir, MANIFEST_FILE)):
            is_stated = stated_settings(self.vocabulary, settings.vocab_file, read_bytes) is not None
            text = sample_text(self.files, complete)
            require_undamaged(text, settings, text_settings, is_stated)
            require_known(text, self.vocabulary, text_settings)
        return complete

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files)

    @property
    def unit_bytes(self) -> int:
        """The bytes of a unit. With others, a file with a fault would be read in other ranges, each up to its fault.

        A power of two, so that a changed file hardly ever changes the units of the others.
        """
        return min(max(_MIN_UNIT_BYTES, 1 << (self.num_bytes // _USUAL_NUM_UNITS).bit_length()), _MAX_UNIT_BYTES)

    def may_divide_twice(self, settings: BuildSettings) -> bool:
        """Whether equal texts may be divided into sentences in two ways, of which one is dropped."""
        are_sentences = {file.format in ("text", "sentences") for file in self.files}
        return settings.drop_duplicates and settings.sentences == "auto" and len(are_sentences) == 2

    def configuration(self, settings: BuildSettings) -> dict[str, Any]:
        """The settings and files that determine the output, as JSON. A build only continues one with the same."""
        names = ("format", "compression", "name", "num_bytes", "modified")
        inputs = [{name: getattr(file, name) for name in names} for file in self.files]
        return {**settings.shaping(), "vocab_sha256": self.vocabulary.sha256, "inputs": inputs}


def require_readable(files: Sequence[SourceFile], settings: CommandSettings) -> None:
    """Checks that the beginnings of some files of each --input, and the first bytes of all, can be read.

    Raises: UserError: all records are faulty, as with a wrong --text_field; or see `require_few_faults`.
    """
    known = ReadCounts()
    for index, group in groupby(files, lambda file: file.input_index):
        counts, of_input, has_documents = ReadCounts(), list(group), False
        sample = [file for file in of_input if file.fault]
        sample += _sample_files([file for file in of_input if not file.fault])
        for item in chain.from_iterable(_first_items(file, settings) for file in sample):
            if isinstance(item, Document):
                has_documents = True
                break
            counts.add(item)
        if counts.faulty_records and not has_documents:
            faults = join_faults(named_faults(counts))
            raise UserError(f"input={settings.inputs[index]}: nothing of a sample can be read: {faults}")
        known.faulty_files |= counts.faulty_files
    require_few_faults(known, settings.max_skipped, sum(file.num_bytes for file in files))


def require_undamaged(
    text: str, settings: CommandSettings, text_settings: TextSettings, is_stated: bool = False
) -> None:
    """Raises if a default, not a flag, would corrupt over 1 % of the letters of a sample; logs what words it merges.

    Args:
        text: the sample; see `sample_text`.
        settings: of the command: which settings of the text the user gives.
        text_settings: how the text will be normalized.
        is_stated: a vocabulary states them, so that a warning is all that helps.
    Raises: UserError: names the first damaging default.
    """
    is_given = {name: value is not None for name, value in settings.text_flags.items()}
    is_given["strip_accents"] |= is_given["lower_case"] and not text_settings.lower_case
    in_question = text_settings._replace(**{name: False for name in ("strip_accents", "isolate_cjk") if is_given[name]})
    for name, fraction in {} if is_stated else damages(text, in_question).items():
        raise UserError(
            f"input={' '.join(settings.inputs)}: {100 * fraction:.1f} % of the letters in a sample are of scripts "
            f"that {name} damages; give --no-{name}, or --{name} to accept it"
        )
    if text_settings.lower_case:
        num_before, num_after, merged = merges(text, text_settings)
        _logger.info("in a sample, %d distinct words are %d after normalization", num_before, num_after)
        for name, words in merged.items():
            if not is_given[name]:
                _logger.warning("warning: %s merges %s with others; --no-%s keeps them apart", name, words, name)


def require_known(text: str, vocabulary: Vocabulary, text_settings: TextSettings) -> None:
    """Logs a warning if over 5 % of the characters of a sample are [UNK]. Raises: UserError: more than half are."""
    # Without TensorFlow, which the workers are still importing.
    tokenize = hugging_face_tokenizer(vocabulary, text_settings).encode_batch
    lengths = [
        end - begin
        for line in tokenize(text.split("\n"), add_special_tokens=False)
        for index, (begin, end) in zip(line.ids, line.offsets, strict=True)
        if index == vocabulary.unk_id
    ]
    fraction, num_long = sum(lengths) / max(1, len(text)), sum(length > MAX_CHARACTERS_PER_WORD for length in lengths)
    if fraction <= _MANY_UNKNOWN:
        return
    cause = "the vocabulary or its settings (case, accents) do not fit this text"
    if num_long and isinstance(vocabulary, WordPieceVocabulary):
        cause = f"{num_long} words are longer than WordPiece takes; build a vocabulary with model=bpe"
    message = f"{100 * fraction:.1f} % of the characters of a sample are [UNK]: {cause}"
    if fraction > _MAX_UNKNOWN:
        raise UserError(message)
    _logger.warning("warning: %s", message)


def require_text(settings: BuildSettings, counts: ReadCounts, num_bytes: int) -> None:
    """Checks that the input could be read, and that documents to train on are left.

    Args:
        counts: the sum over all work units.
        num_bytes: the size of all files.
    Raises: ReadError: too much is faulty. UserError: no document is left, or most tokens are dropped.
    """
    require_few_faults(counts, settings.max_skipped, num_bytes)
    if counts.num_unknown_tokens > _MANY_UNKNOWN_TOKENS * counts.num_tokens_read:
        _logger.warning(
            "%.1f %% of the tokens are [UNK]: the vocabulary or its settings (case, accents) do not fit this text",
            100 * counts.num_unknown_tokens / counts.num_tokens_read,
        )
    if counts.num_documents_too_short > _MANY_TOO_SHORT * counts.num_documents_read:
        _logger.warning(
            "warning: %d of %d documents are shorter than min_document_characters=%d; in the format text a blank line"
            " ends a document: if one follows every line or paragraph, give input=sentences:GLOB or book:GLOB",
            counts.num_documents_too_short,
            counts.num_documents_read,
            settings.min_document_characters,
        )
    num_train, num_held_out = (counts.split_documents[split] for split in (TRAIN_SPLIT, HELD_OUT_SPLIT))
    if not num_train:
        reasons = left_out(counts, f"shorter than min_document_characters={settings.min_document_characters}")
        if num_held_out:
            reasons = f"{num_held_out} are held out, by held_out_fraction={settings.held_out_fraction}"
        raise UserError(
            f"no document is left of {counts.num_bytes} bytes of input: {reasons or 'it holds no text'}; give other"
            " files or change these settings"
        )
    num_kept = counts.num_tokens_read - counts.num_tokens_dropped
    if 2 * num_kept < counts.num_tokens_read:
        raise UserError(
            f"only {num_kept} of {counts.num_tokens_read} tokens fit into examples, and examples={settings.examples}"
            " drops what exceeds one; give examples=carry, which keeps all tokens"
        )


def sample_text(files: Sequence[SourceFile], settings: CommandSettings) -> str:
    """The beginnings of some files, cut into words; a few lines that are not segmented are left out.

    Raises: UserError: see `read_unit` and `segmented`.
    """
    sample, begins = _sample_files(files), []
    for file in sample:
        begin, num_characters = "", _SAMPLE_CHARACTERS // len(sample)
        for item in _first_items(file, settings):
            if not isinstance(item, Document):
                continue
            begin += "\n".join(item.lines)[: num_characters - len(begin)] + "\n"
            if len(begin) > num_characters:
                break
        begins.append(begin)
    lines = "\n".join(begins).split("\n")
    for _ in range(_MAX_NOT_SEGMENTED):
        try:
            return "\n".join(segmented(settings.segmenter, lines))
        except SegmentFault as fault:  # its document is left out and counted when it is read
            del lines[fault.index]
    return "\n".join(segmented(settings.segmenter, lines))


def _sample_files(files: Sequence[SourceFile]) -> Sequence[SourceFile]:
    return [files[len(files) * index // _MAX_FILES] for index in range(_MAX_FILES)] if files[_MAX_FILES:] else files


def _first_items(file: SourceFile, settings: CommandSettings) -> Iterator[Document | ReadCounts]:
    with contextlib.suppress(TextLimit):
        for unit in islice(plan_units([file], _SAMPLE_UNIT_BYTES, settings), _MAX_UNITS):
            yield from read_unit(unit, settings, _MAX_TEXT_BYTES)
