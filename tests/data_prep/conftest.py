"""What the tests of whole builds share."""

from collections.abc import Callable

import pytest

from data_prep.hygiene import HygieneOptions
from data_prep.readers.documents import ReaderOptions
from data_prep.settings import BuildSettings

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
NUM_WORDS = 40


@pytest.fixture(scope="session")
def vocab_file(tmp_path_factory) -> str:
    """A vocabulary of w0 to w39; word i has id 5 + i."""
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in (*SPECIAL_TOKENS, *(f"w{i}" for i in range(NUM_WORDS)))))
    return str(path)


@pytest.fixture(scope="session")
def build_settings(vocab_file) -> Callable[..., BuildSettings]:
    """Settings of a small build that leaves every document as it is; any of them can be given."""

    def make(inputs, output_dir, **changes) -> BuildSettings:
        defaults = {
            "inputs": tuple(inputs),
            "vocab_file": vocab_file,
            "output_dir": str(output_dir),
            "work_dir": "",
            "max_seq_length": 16,
            "seed": 1,
            "held_out_fraction": 0.25,
            "lower_case": True,
            "strip_accents": True,
            "sentences": "line",
            "language": "en",
            "reader": ReaderOptions(text_field="text", lines_per_document=3, keep_disambiguation_pages=False),
            "hygiene": HygieneOptions("NFC", drop_control_characters=True, min_document_characters=0),
            "drop_duplicates": True,
            "num_shards": 3,
            "num_processes": 1,
            "allow_truncated": False,
            "overwrite": False,
        }
        return BuildSettings(**{**defaults, **changes})

    return make
