"""`manifest.json` describes a pre-training data set: the builder writes it last, the trainer checks it first.

It has no field for the machine, the time or the number of processes: equal inputs and settings give equal bytes.
"""

import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import pydantic
from pydantic import Field

from electra_tf.config.errors import UserError
from electra_tf.data.tables import read_existing
from electra_tf.text.vocabulary import TextSettings, Vocabulary

SCHEMA_VERSION = 4
READER_VERSION = 3  # greater after each change by which equal files give other text or examples
MANIFEST_FILE = "manifest.json"
TRAIN_SPLIT = "train"
HELD_OUT_SPLIT = "held_out"

_CLEANING = {"fix_mojibake", "unicode_normalization", "drop_control_characters"}
_HOLD_OUT = {"reader_version", "seed", "held_out_fraction", "layout", "is_segmented"} | _CLEANING
_HOLD_OUT_OF_FORMAT = {"lines_per_document": "sentences", "wikipedia_names": "wikipedia"}
_CHECKSUM_FIELD = "sha256"
_FIRST_FIELDS = ("schema_version", "max_seq_length", "vocab_size", "vocab_sha256")  # in the file
_BUILD_AGAIN = "build the data set again with electra-tf build-data"


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


class Shard(_Model):
    """One TFRecord file of a split; `sha256` is the hex digest of the whole file."""

    file: str = Field(pattern="^[^/.][^/]*$")  # in the folder of the manifest
    num_examples: int
    num_bytes: int
    sha256: str


class Split(_Model):
    """A subset of the documents: no document has examples in two splits."""

    num_documents: int
    num_examples: int
    num_tokens: int  # with [CLS] and [SEP]; without padding
    shards: tuple[Shard, ...]


class InputFile(_Model):
    """A text file that was read; `name` is relative to the last directory of the glob before its first wildcard."""

    format: str
    compression: str  # "" if there is none
    name: str
    num_bytes: int


class Counts(_Model):
    """Totals over all splits. Tokens are word pieces, without [CLS] and [SEP].

    `num_documents` is `num_documents_read` less those too short, in other languages or without a token, and the
    duplicates and near-duplicates.
    """

    # By reason, e.g. "redirects"; not included in num_documents_read. A faulty file counts as one.
    num_documents_skipped: dict[str, int]
    num_documents_cut: int  # cuts in documents longer than the limit; each cut makes one more document
    num_documents_read: int
    num_documents_mojibake_fixed: int = 0
    num_documents_normalized: int  # changed by Unicode normalization
    num_control_characters_dropped: int
    num_documents_too_short: int
    num_documents_in_other_languages: int = 0
    num_documents_without_tokens: int
    num_documents_duplicate: int
    num_documents_near_duplicate: int = 0
    num_documents: int
    num_tokens_read: int  # before duplicates were dropped
    num_unknown_tokens: int  # of those read
    num_tokens_dropped: int  # exceeded the length of an example
    num_tokens_kept: int  # the rest were dropped or in duplicates


class DatasetSettings(_Model):
    """The settings that shape a data set, except inputs and vocabulary.

    Each is a field of the manifest, and a flag of electra-tf build-data with this default and description.
    """

    max_seq_length: int = Field(128, ge=8, description="tokens of the longest example, at least 8")
    lower_case: bool = Field(True, description="convert letters to lower case")
    strip_accents: bool = Field(True, description="strip accents; as in BERT, only with --lower_case")
    isolate_cjk: bool = Field(True, description="make each CJK ideograph a word, as in BERT")
    unicode: Literal[11, 18] = Field(11, description="Unicode of WordPiece; 11 drops later characters, as in BERT")
    format_characters: bool = Field(
        False, description="make U+200B a space and keep the joiners that spell; in BERT all format characters go"
    )
    segment: str = Field(
        "",
        description="program that reads lines and writes them with spaces between words, such as 'mecab -Owakati';"
        " none: the text has them. WordPiece only; turns --isolate_cjk off",
    )
    is_segmented: bool = Field(False, description="the text came segmented: --segment=none")
    seed: int = Field(0, description="seed of the shuffle, the segments and the choice of held-out documents")
    held_out_fraction: float = Field(0.005, ge=0, lt=1, description="fraction of the documents to hold out")
    num_shards: int = Field(0, ge=0, description="training shards; 0: one for about 8 MiB of records")
    examples: Literal["carry", "pack", "authors"] = Field(
        "carry",
        description="what becomes of tokens that exceed an example: carry: they begin the next one; pack: so they do,"
        " and short sequences share an example; authors: they are dropped, as in the authors' builder",
    )
    sentences: Literal["auto", "line", "split"] = Field(
        "auto",
        description="how lines are split into sentences: line: each line is one, as in the authors' builder; split: all"
        " lines are split; auto: lines are split if the format has paragraphs",
    )
    layout: Literal["join", "keep"] = Field(
        "join",
        description="white space in text, documents, jsonl, csv, tsv, parquet and arrow: join: lines are stripped, and"
        " joined by spaces; keep: indentation, tabs and line ends stay",
    )
    language: str = Field(
        "en",
        pattern="^([a-z]{2,3}([-_][a-z0-9]+)*|simple)$",
        description="language for splitting sentences: the code of a Wikipedia such as en",
    )
    drop_other_languages: bool = Field(False, description="keep only documents in --language, as py3langid finds")
    fix_mojibake: bool = Field(False, description="repair text that was decoded as another encoding, with ftfy")
    unicode_normalization: Literal["NFC", "none"] = Field("NFC", description="Unicode normal form of all text")
    drop_control_characters: bool = Field(True, description="drop control characters from the text")
    min_document_characters: int = Field(50, ge=0, description="characters of the shortest document that is kept")
    drop_duplicates: bool = Field(True, description="keep only one of several documents with equal text")
    near_duplicates: float = Field(
        0.0,
        ge=0,
        le=1,
        description="keep only one of several documents whose sets of five-token sequences have at least this Jaccard"
        " similarity, 0.5 to 1, by rensa's MinHash; 0 keeps all",
    )
    text_field: str = Field(
        "text", description="field or column that holds the text, for jsonl, csv, tsv, parquet and arrow"
    )
    lines_per_document: int = Field(1000, ge=1, description="number of lines in a document of the format sentences")
    keep_disambiguation_pages: bool = Field(False, description="keep the disambiguation pages of a Wikipedia")
    # The content of the file that the flag names: it shapes the data set, its place does not.
    wikipedia_names: str = Field(
        "",
        description="file with names of a wiki's templates, namespaces and sections that add to or replace those of"
        " data_prep/wikitext/wikipedia_names.yaml, in the same form",
    )


class Manifest(DatasetSettings):
    """The whole data set: its settings, inputs, counts and shards."""

    schema_version: int
    reader_version: int = 1  # that of builders that did not write it
    vocab_size: int
    vocab_sha256: str  # hex, of the vocabulary file's bytes
    inputs: tuple[InputFile, ...]
    counts: Counts
    # The ten most frequent templates dropped inside lines of Wikipedia dumps; empty if an older builder wrote the data
    templates_dropped: dict[str, int] = {}
    first_faulty: dict[str, tuple[str, ...]] = {}  # the first records and files that were skipped for each fault
    splits: dict[str, Split]
    # Occurrences of each vocabulary entry in the training split, by id, [CLS] and [SEP] included; they add up to the
    # split's num_tokens.
    token_counts: tuple[int, ...]

    @property
    def hold_out(self) -> dict[str, Any]:
        """The settings that decide, with a document's text, whether it is held out."""
        formats = {file.format for file in self.inputs}
        return self.model_dump(include=_HOLD_OUT | {name for name, of in _HOLD_OUT_OF_FORMAT.items() if of in formats})

    @property
    def text_settings(self) -> TextSettings:
        return TextSettings(**{name: getattr(self, name) for name in TextSettings._fields})

    @classmethod
    def load(cls, data_dir: str | os.PathLike[str]) -> "Manifest":
        """Reads the manifest of a directory or URL.

        Raises: UserError: the file is missing, damaged, edited, or of another schema version.
        """
        path = os.path.join(data_dir, MANIFEST_FILE)
        return cls.from_bytes(read_existing(path), path)

    @classmethod
    def from_bytes(cls, content: bytes, path: str) -> "Manifest":
        """Reads the content of `manifest.json`; see `load`. `path` names the file in messages."""
        try:
            version = (fields := json.loads(content))["schema_version"]
        except (ValueError, TypeError, KeyError, RecursionError):
            version = None
        if version != SCHEMA_VERSION:
            problem = f"is damaged, or has another schema_version than {SCHEMA_VERSION}: {version}"
            raise UserError(f"{path} {problem}; {_BUILD_AGAIN}")
        if fields.pop(_CHECKSUM_FIELD, None) != _checksum(fields):
            raise UserError(f"{path} was edited or damaged: its sha256 is wrong; copy it again or {_BUILD_AGAIN}")
        try:
            return cls.model_validate_json(json.dumps(fields))
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise UserError(f"{path}: {place} is {first['input']!r:.100}; {first['msg']}; {_BUILD_AGAIN}") from None

    def to_json(self) -> str:
        """The text of `manifest.json`, including its checksum; equal manifests give equal bytes."""
        fields = self.model_dump(mode="json")
        fields = {name: fields[name] for name in _FIRST_FIELDS} | fields
        text = json.dumps({**fields, _CHECKSUM_FIELD: _checksum(fields)}, indent=1) + "\n"
        # The token counts are written on one line. (No string in JSON contains a line break.)
        return re.sub(r"\[\n([\d,\s]+)\]", lambda numbers: f"[{' '.join(numbers[1].split())}]", text)


def _checksum(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def check_matches(manifest: Manifest, *, vocabulary: Vocabulary, max_seq_length: int) -> None:
    """Raises: UserError: a run has another vocabulary or sequence length than its data set; names both values."""
    for name, in_data, in_run in (
        ("vocab_size", manifest.vocab_size, vocabulary.size),
        ("vocab_sha256", manifest.vocab_sha256, vocabulary.sha256),
        ("max_seq_length", manifest.max_seq_length, max_seq_length),
    ):
        if in_data != in_run:
            raise UserError(
                f"the data set has {name} {in_data}, the run has {in_run}; change the run's setting, or {_BUILD_AGAIN}"
            )


def seen_held_out_text(data: Iterable[tuple[str, Mapping[str, Any] | None]]) -> str | None:
    """Explains how held-out text of a data set can be training text of one that is read before it; None if it cannot.

    Args:
        data: the name and the `hold_out` (None: unknown) of each data set, in the order of training.
    """
    for (earlier, trained), (later, held_out) in itertools.combinations(data, 2):
        if not trained or not held_out or held_out.get("held_out_fraction") == 0:
            continue
        differ = []
        for name, value in held_out.items():
            other = trained.get(name, value)
            # A smaller fraction holds out some of the documents of a larger one, and no others.
            if other < value if name == "held_out_fraction" else other != value:
                differ.append(f"{name} {' and '.join(' '.join(str(each).split())[:40] for each in (other, value))}")
        if differ:
            return (
                f"held-out text of {later} may be training text of {earlier}, as the data was built with "
                f"{', '.join(differ)}; build it with the same settings (held_out_fraction may be smaller)"
            )
    return None
