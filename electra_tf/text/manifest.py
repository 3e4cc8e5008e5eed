"""What a pre-training data set is: `manifest.json`, written last by the builder and checked first by the trainer.

It holds nothing of the machine, the time or the number of processes: equal inputs and settings give equal bytes.
"""

import hashlib
import json
import os
import re
from typing import Any, Protocol

import pydantic

from electra_tf.config.errors import UserError
from electra_tf.config.files import read_bytes

SCHEMA_VERSION = 3
# Version 2 has no token counts and is otherwise the same.
READABLE_VERSIONS = (2, 3)
MANIFEST_FILE = "manifest.json"
VOCAB_FILE = "vocab.txt"
TRAIN_SPLIT = "train"
HELD_OUT_SPLIT = "held_out"

_CHECKSUM_FIELD = "sha256"
_BUILD_ANEW = "build the data set with build_pretraining_dataset.py"


class VocabularyIdentity(Protocol):
    """What `check_matches` needs of a vocabulary (`electra_tf.text.vocabulary.Vocabulary` has it)."""

    @property
    def size(self) -> int: ...

    @property
    def sha256(self) -> str: ...


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


class Shard(_Model):
    """One TFRecord file of a split; `sha256` is of the whole file, in hex."""

    file: str
    num_examples: int
    num_bytes: int
    sha256: str


class Split(_Model):
    """A part of the documents, whole: no document gives examples to two splits."""

    num_documents: int
    num_examples: int
    num_tokens: int  # with [CLS] and [SEP]; without padding
    shards: tuple[Shard, ...]


class InputFile(_Model):
    """A text file that was read; `name` is relative to the fixed part of the glob that found it."""

    format: str
    compression: str  # "" if there is none
    name: str
    num_bytes: int


class Counts(_Model):
    """Totals over all splits. Tokens are word pieces, without [CLS] and [SEP].

    Of `num_documents_read`, those too short, without a token and duplicate were left out; `num_documents` are the rest.
    """

    num_documents_skipped: dict[str, int]  # by readers, before they count as read: the reason, e.g. "redirects"
    num_documents_cut: int  # cuts through documents longer than a reader holds: each makes one more document
    num_documents_read: int
    num_documents_normalized: int  # changed by Unicode normalisation
    num_control_characters_dropped: int
    num_documents_too_short: int
    num_documents_without_tokens: int
    num_documents_duplicate: int
    num_documents: int
    num_tokens_read: int  # before duplicates were dropped
    num_unknown_tokens: int  # of those read
    num_tokens_kept: int  # the rest were duplicate, or overflowed an example's length
    num_truncated_inputs: int  # files that were cut off, and read up to there


class Manifest(_Model):
    """The whole data set. Of the settings, only what shapes the output is here: see the flags of the same names."""

    schema_version: int
    max_seq_length: int
    vocab_size: int
    vocab_sha256: str  # hex, of the vocabulary file's bytes
    lower_case: bool
    strip_accents: bool
    seed: int
    held_out_fraction: float
    num_shards: int  # as asked for; 0: by the size of the text
    sentences: str
    language: str
    unicode_normalization: str
    drop_control_characters: bool
    min_document_characters: int
    drop_duplicates: bool
    text_field: str
    lines_per_document: int
    keep_disambiguation_pages: bool
    inputs: tuple[InputFile, ...]
    counts: Counts
    splits: dict[str, Split]
    # How often each vocabulary entry stands in the training split, [CLS] and [SEP] included; by id, and adding up to
    # the split's tokens. None in data sets of version 2.
    token_counts: tuple[int, ...] | None = None

    @pydantic.model_validator(mode="after")
    def _counts_are_of_the_vocabulary(self) -> "Manifest":
        expected = 0 if self.schema_version == 2 else self.vocab_size
        if len(self.token_counts or ()) != expected:
            raise ValueError(f"{len(self.token_counts or ())} entries, expected {expected}")
        return self

    @classmethod
    def load(cls, data_dir: str | os.PathLike) -> "Manifest":
        """Reads `manifest.json` of a data directory, local or by URL.

        Raises: UserError: if it is missing, broken, edited, or of another schema version.
        """
        path = f"{str(data_dir).rstrip('/')}/{MANIFEST_FILE}"
        try:
            content = read_bytes(path)
        except FileNotFoundError:
            raise UserError(
                f"{path} does not exist: {data_dir} is no data set, or its build did not end; {_BUILD_ANEW}"
            ) from None
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror or error}; {_BUILD_ANEW}") from None
        return cls.from_bytes(content, path)

    @classmethod
    def from_bytes(cls, content: bytes, path: str) -> "Manifest":
        """The manifest that a file holds; `path` only names it in messages.

        Raises: UserError: if it is broken, edited, or of another schema version.
        """
        try:
            fields = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} is not JSON ({error}); {_BUILD_ANEW}") from None
        found = fields.get("schema_version") if isinstance(fields, dict) else None
        if found not in READABLE_VERSIONS:
            readable = " and ".join(map(str, READABLE_VERSIONS))
            raise UserError(f"{path} has schema_version {found}; this version reads {readable}; {_BUILD_ANEW}")
        stated = fields.pop(_CHECKSUM_FIELD, None)
        if stated != (actual := _checksum(fields)):
            raise UserError(
                f"{path} was edited or damaged: its own sha256 is {stated}, that of its content {actual}; copy it again"
                f" or {_BUILD_ANEW}"
            )
        try:
            return cls.model_validate_json(json.dumps(fields))
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "token_counts"
            raise UserError(f"{path} is broken at {where}: {first['msg']}; {_BUILD_ANEW}") from None

    def to_json(self) -> str:
        """The text of `manifest.json`, with a checksum of itself: equal manifests give equal bytes."""
        fields = self.model_dump(mode="json")
        if self.schema_version == 2:
            del fields["token_counts"]
        text = json.dumps({**fields, _CHECKSUM_FIELD: _checksum(fields)}, indent=1) + "\n"
        # The counts on one line: somebody may want to read the rest. (No text in JSON has a line break in it.)
        return re.sub(r"\[\n([\d,\s]+)\]", lambda numbers: f"[{' '.join(numbers[1].split())}]", text)


def _checksum(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def check_matches(manifest: Manifest, *, vocabulary: VocabularyIdentity, max_seq_length: int) -> None:
    """Refuses a data set that a run's model could not read as it was written.

    Args:
        max_seq_length: the run's; it must equal the data set's, since examples were cut for that length.
    Raises: UserError: naming both values, if vocabulary size or hash, or sequence length differ.
    """
    for name, in_data, in_run in (
        ("vocab_size", manifest.vocab_size, vocabulary.size),
        ("vocab_sha256", manifest.vocab_sha256, vocabulary.sha256),
        ("max_seq_length", manifest.max_seq_length, max_seq_length),
    ):
        if in_data != in_run:
            raise UserError(
                f"the data set has {name} {in_data}, the run has {in_run}; change the run's setting to the data set's,"
                f" or {_BUILD_ANEW} for this run"
            )
