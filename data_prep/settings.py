"""The settings of the two dataset commands, and their flags.

A setting is one field: in `DatasetSettings` if it changes the data set, else here. Its flag, its entry in the manifest
and the comparison with an earlier build are derived from the field.
"""

import argparse
import hashlib
import importlib.util
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin

import pydantic
from pydantic import Field

from data_prep.documents import identified_code, language_identifier
from data_prep.wikitext.names import parsed_names
from electra_tf.config.errors import UserError, did_you_mean
from electra_tf.data.manifest import DatasetSettings
from electra_tf.files import is_remote, open_binary, store_errors
from electra_tf.text.vocabulary import BERT_TEXT, SentencePieceVocabulary, TextSettings
from electra_tf.text.vocabulary_settings import settings_file

BUILD_DIR = ".electra_tf_build"

# Of the extra `clean`, by the setting that needs them.
_PACKAGES = {"fix_mojibake": "ftfy", "drop_other_languages": "py3langid", "near_duplicates": "rensa"}

Settings = TypeVar("Settings", bound="CommandSettings")


def _vocabulary_setting(name: str, default: str = "as the vocabulary") -> Any:
    """A setting that must be that of the vocabulary: None, the default, takes it from there."""
    return Field(None, description=f"{DatasetSettings.model_fields[name].description} (default: {default})")


class CommandSettings(DatasetSettings):
    """The settings that both commands have. Raises: UserError: a value is out of range, or of another type."""

    def __init__(self, **values: Any):
        try:
            super().__init__(**values)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            if isinstance(reason := first.get("ctx", {}).get("error"), UserError):  # of a validator below
                raise reason from None
            name = first["loc"][0] if first["loc"] else ""
            problem = f"{name}={first['input']!r:.80}; {first['msg'][0].lower()}{first['msg'][1:]}"
            if first["type"] == "extra_forbidden":
                problem = f"{name} is not a setting{did_you_mean(str(name), type(self).model_fields)}"
            raise UserError(problem) from None

    lower_case: bool | None = _vocabulary_setting("lower_case")
    strip_accents: bool | None = _vocabulary_setting("strip_accents")
    isolate_cjk: bool | None = _vocabulary_setting("isolate_cjk")
    unicode: Literal[11, 18] | None = _vocabulary_setting("unicode")
    format_characters: bool | None = _vocabulary_setting("format_characters")
    inputs: tuple[str, ...] = Field(description="text to read; repeatable; quote the glob (required)")
    max_skipped: float = Field(
        0.001,
        ge=0,
        le=1,
        description="fraction of the records, or in whole files of the bytes, that may be left out because they are"
        " faulty; with 0 nothing, otherwise always ten records, and files with 5 %% of the bytes",
    )
    num_processes: int = Field(1, ge=1, description="processes to use; any number gives the same bytes")
    overwrite: bool = Field(False, description="replace the files of an earlier run and no others")

    @pydantic.field_validator("wikipedia_names")
    @classmethod
    def _content_of_names(cls, path: str) -> str:
        if not path or "\n" in path:  # the content, in a copy of settings
            return path
        with store_errors(f"wikipedia_names={path}", "cannot be read"), open_binary(path) as file:
            content = file.read().decode() + "\n"
        parsed_names(content, f"wikipedia_names={path}")
        return content

    @pydantic.model_validator(mode="after")
    def _check(self: Settings) -> Settings:
        for name, package in _PACKAGES.items():
            if getattr(self, name) and importlib.util.find_spec(package) is None:
                raise UserError(f'{name} needs the package {package}: pip install "electra-tf[clean]"')
        if 0 < self.near_duplicates < 0.5:
            raise UserError(f"near_duplicates={self.near_duplicates}; expected a similarity from 0.5 to 1, or 0")
        if self.near_duplicates and not self.drop_duplicates:
            raise UserError("near_duplicates needs drop_duplicates, as copies are near-copies; remove one of them")
        if self.drop_other_languages and identified_code(self.language) not in language_identifier().labels:
            known = ", ".join(language_identifier().labels)
            raise UserError(f"language={self.language}; drop_other_languages takes one of {known}")
        return self

    @property
    def text_flags(self) -> dict[str, bool | int | None]:
        """The settings of `TextSettings` that the user gives; None: not given."""
        return {name: getattr(self, name) for name in BERT_TEXT._fields}

    @property
    def text_settings(self) -> TextSettings:
        """The given settings, and BERT's for the others."""
        return TextSettings.of_flags(self.text_flags)

    @property
    def segmenter(self) -> str:
        """The program that cuts lines into words; "" if none does."""
        return "" if self.is_segmented else self.text_settings.segment


class BuildSettings(CommandSettings):
    """The settings of electra-tf build-data."""

    vocab_file: str = Field(description="the vocabulary, a vocab.txt, spm.model or tokenizer.json (required)")
    layout: Literal["join", "keep"] | None = _vocabulary_setting("layout", "keep if the vocabulary can")
    output_dir: str = Field(description="directory for shards, vocabulary and manifest, local or a URL (required)")
    work_dir: str = Field(
        "", description="local directory for intermediate files; by default they are inside output_dir"
    )

    machine: str = Field(
        "",
        description="I/N: do part I (0 to N-1) of the work, as one of N machines with equal other flags and a shared"
        " work_dir; the last one to finish writes the shards",
    )

    @pydantic.model_validator(mode="after")
    def _check_machine(self) -> "BuildSettings":
        if self.part[0] >= self.part[1] or self.machine and (self.overwrite or not self.work_dir):
            raise UserError(
                f"machine={self.machine}; expected I/N with I from 0 to N-1, such as 0/3, 1/3 and 2/3, a"
                " work_dir=DIRECTORY that all machines share, and no overwrite, as they do not begin together"
            )
        return self

    @property
    def part(self) -> tuple[int, int]:
        """The number of this machine and the number of all machines; (1, 0) if `machine` is not I/N."""
        match = re.fullmatch(r"(\d+)/(\d+)", self.machine or "0/1", re.ASCII)
        return (int(match[1]), int(match[2])) if match else (1, 0)

    @property
    def build_dir(self) -> Path:
        """The directory of the intermediate files; in a `work_dir`, one for each output directory."""
        if not self.work_dir:
            return Path(self.output_dir) / BUILD_DIR
        output_dir = self.output_dir if is_remote(self.output_dir) else os.path.realpath(self.output_dir)
        name = hashlib.sha256(output_dir.rstrip("/").encode()).hexdigest()[:16]
        return Path(self.work_dir) / f"{BUILD_DIR}-{name}"

    def shaping(self) -> dict[str, Any]:
        """Returns the settings that change the data set, except inputs and vocabulary."""
        return {name: getattr(self, name) for name in DatasetSettings.model_fields}


class VocabularySettings(CommandSettings):
    """The settings of electra-tf build-vocab. It only uses the `DatasetSettings` in `USED`."""

    CLEANING: ClassVar = ("fix_mojibake", "unicode_normalization", "drop_control_characters")
    USED: ClassVar = (*BERT_TEXT._fields, *CLEANING, "text_field", "wikipedia_names")

    # The settings that a kind of vocabulary does not have.
    _ONLY_WORDPIECE: ClassVar = (*BERT_TEXT._fields, "num_unused_tokens", "max_num_characters")
    _UNUSED: ClassVar = {"wordpiece": ("byte_fallback",), "bpe": _ONLY_WORDPIECE, "unigram": _ONLY_WORDPIECE}

    output: str = Field(description="the vocabulary file, such as vocab.txt or spm.model; may be a URL (required)")
    model: Literal["wordpiece", "bpe", "unigram"] = Field(
        "wordpiece",
        description="wordpiece: BERT's, a token per line; bpe, unigram: a SentencePiece model (prefer bpe: the ids of"
        " unigram depend on rounding)",
    )
    coverage_inputs: tuple[str, ...] = Field(
        (), description="text to measure the fit on (default: --input); repeatable"
    )
    vocab_size: int = Field(30522, ge=1, description="number of tokens, the special and unused ones included")
    num_unused_tokens: int = Field(0, ge=0, description="[unused...] slots for tokens of your own")
    max_num_characters: int = Field(
        0,
        ge=0,
        description="number of different characters in tokens: the most frequent ones; words with other characters are"
        " left out. 0: 1,000, or enough for 99.99 %% of the text, at most a third of the vocabulary",
    )
    byte_fallback: bool = Field(
        False, description="spell characters that are not in the vocabulary with 256 tokens for bytes, not as [UNK]"
    )
    lower_case: bool | None = _vocabulary_setting("lower_case", "True")
    strip_accents: bool | None = _vocabulary_setting("strip_accents", "True")
    isolate_cjk: bool | None = _vocabulary_setting("isolate_cjk", "True")
    unicode: Literal[11, 18] = Field(18, description=DatasetSettings.model_fields["unicode"].description)
    format_characters: bool = Field(True, description=DatasetSettings.model_fields["format_characters"].description)
    # The length of documents does not matter to a vocabulary.
    min_document_characters: int = 0

    @pydantic.model_validator(mode="after")
    def _check_kind(self) -> "VocabularySettings":
        for name in self._UNUSED[self.model]:
            if getattr(self, name) != self.__class__.model_fields[name].default:
                raise UserError(f"{name} has no effect with model={self.model}; remove it")
        return self

    @property
    def text_settings(self) -> TextSettings:
        return super().text_settings if self.model == "wordpiece" else SentencePieceVocabulary.text_settings

    def reported(self) -> dict[str, Any]:
        """The settings of this kind of vocabulary, for the report."""
        names = ("model", "vocab_size", "num_unused_tokens", "max_num_characters", "byte_fallback")
        kept = [name for name in names if name not in self._UNUSED[self.model]]
        return {**self.text_settings._asdict(), **{name: getattr(self, name) for name in kept}}

    @property
    def report_file(self) -> str:
        return settings_file(self.output)


def add_setting_flags(
    parser: argparse.ArgumentParser,
    model: type[CommandSettings],
    unused: Iterable[str] = (),
    are_required: bool = True,
) -> None:
    """Adds a flag for each field of `model` except those in `unused`; fields without a default must be given."""
    own_first = sorted(model.model_fields, key=lambda name: name in DatasetSettings.model_fields)
    for name in own_first:
        field = model.model_fields[name]
        if name in unused:
            continue
        options: dict[str, Any] = {"type": field.annotation, "default": field.default}
        kind = next((each for each in get_args(field.annotation) if get_origin(each) is Literal), field.annotation)
        if field.annotation in (bool, bool | None):
            has_negation = name in DatasetSettings.model_fields
            action = argparse.BooleanOptionalAction if has_negation else "store_true"
            options = {"action": action, "default": field.default}
        elif get_origin(kind) is Literal:
            options["choices"] = get_args(kind)
            options["type"] = type(options["choices"][0])
        elif get_origin(field.annotation) is tuple:
            options = {"action": "append", "metavar": "FORMAT:GLOB", "default": argparse.SUPPRESS}
        if field.is_required():
            options |= {"default": argparse.SUPPRESS, "required": are_required}
        flag = f"--{name.removesuffix('s') if name.endswith('inputs') else name}"
        parser.add_argument(flag, dest=name, help=field.description, **options)


def settings_of(flags: argparse.Namespace, model: type[Settings]) -> Settings:
    """Converts parsed flags to settings. Raises: UserError: a value is out of range."""
    values = {name: value for name, value in vars(flags).items() if name in model.model_fields}
    return model(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
