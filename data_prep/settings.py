"""What to build: the flags of build_pretraining_dataset.py, checked."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from data_prep import storage
from data_prep.examples import ExampleSettings
from data_prep.hygiene import HygieneOptions
from data_prep.readers.documents import ReaderOptions
from data_prep.segments import MIN_MAX_SEQ_LENGTH
from data_prep.sentences import SentenceSplitter
from electra_tf.config.errors import UserError
from electra_tf.text.vocabulary import Vocabulary

BUILD_DIR = ".electra_tf_build"


@dataclass(frozen=True)
class BuildSettings:
    """What to build, where, and with what.

    Attributes:
        inputs: each `FORMAT:GLOB` or `GLOB`.
        output_dir: a local path or a URL.
        work_dir: a local directory for intermediate files; "" for one in `output_dir`, which is local then.
        max_seq_length: S, most tokens in an example, [CLS] and [SEP] included.
        held_out_fraction: part of the documents, in [0, 1), that goes to the held-out split.
        num_shards: of the training split; 0 derives it from the size of the records.
        drop_duplicates: of documents with equal text, one stays.
        allow_truncated: a file that is cut off is no error.
    Raises: UserError: a value out of range.
    """

    inputs: tuple[str, ...]
    vocab_file: str
    output_dir: str
    work_dir: str
    max_seq_length: int
    seed: int
    held_out_fraction: float
    lower_case: bool
    strip_accents: bool
    sentences: str
    language: str
    reader: ReaderOptions
    hygiene: HygieneOptions
    drop_duplicates: bool
    num_shards: int
    num_processes: int
    allow_truncated: bool
    overwrite: bool

    def __post_init__(self) -> None:
        SentenceSplitter(self.sentences, self.language)  # for its checks
        if not 0 <= self.held_out_fraction < 1:
            raise UserError(f"--held_out_fraction={self.held_out_fraction}; expected a fraction in [0, 1), e.g. 0.005")
        for name, value, least in (
            ("max_seq_length", self.max_seq_length, MIN_MAX_SEQ_LENGTH),
            ("num_processes", self.num_processes, 1),
            ("num_shards", self.num_shards, 0),
            ("lines_per_document", self.reader.lines_per_document, 1),
        ):
            if value < least:
                raise UserError(f"--{name}={value}; expected at least {least}")
        if storage.is_remote(self.work_dir):
            raise UserError(f"--work_dir={self.work_dir} is a URL; expected a local directory")

    def require_work_dir(self) -> None:
        """Raises: UserError: `output_dir` is a URL, where intermediate files cannot lie."""
        if storage.is_remote(self.output_dir) and not self.work_dir:
            raise UserError(
                f"--output_dir={self.output_dir} needs --work_dir=DIRECTORY, a local one for intermediate files of"
                " about the size of the data set"
            )

    @property
    def build_dir(self) -> Path:
        """Where the intermediate files lie."""
        return Path(self.work_dir or self.output_dir) / BUILD_DIR

    def example_settings(self, vocabulary: Vocabulary) -> ExampleSettings:
        """What the worker processes need to know."""
        return ExampleSettings(
            vocabulary=vocabulary,
            lower_case=self.lower_case,
            strip_accents=self.strip_accents,
            max_seq_length=self.max_seq_length,
            seed=self.seed,
            held_out_fraction=self.held_out_fraction,
            reader=self.reader,
            hygiene=self.hygiene,
            sentences=self.sentences,
            language=self.language,
        )

    def shaping(self) -> dict[str, Any]:
        """What shapes the data set, apart from inputs and vocabulary, by the names that the manifest has for it."""
        names = ("max_seq_length", "seed", "held_out_fraction", "lower_case", "strip_accents", "sentences", "language")
        return {
            **{name: getattr(self, name) for name in names},
            **asdict(self.reader),
            **asdict(self.hygiene),
            "drop_duplicates": self.drop_duplicates,
            "num_shards": self.num_shards,
        }
