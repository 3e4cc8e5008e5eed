"""The settings and the data set that several tests of the builder use."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import HfFileSystem

from data_prep.build import build
from data_prep.settings import BuildSettings
from electra_tf.text.vocabulary import SPECIAL_TOKENS
from tests.data_prep.reading import contents
from tests.data_prep.texts import inputs_of, write_source
from tests.hub import Hub, hub_on_loopback


@pytest.fixture(scope="session")
def vocab_file(tmp_path_factory) -> str:
    """A vocabulary of w0 to w39; word i has id 5 + i."""
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in (*SPECIAL_TOKENS, *(f"w{i}" for i in range(40)))))
    return str(path)


@pytest.fixture(scope="session")
def build_settings(vocab_file) -> Callable[..., BuildSettings]:
    """`build_settings(inputs, output_dir, **changes)`: settings of a small build that drops and changes no document."""

    def make(inputs, output_dir, **changes) -> BuildSettings:
        defaults = {
            "inputs": tuple(inputs),
            "vocab_file": vocab_file,
            "output_dir": str(output_dir),
            "max_seq_length": 16,
            "seed": 1,
            "held_out_fraction": 0.25,
            "sentences": "line",
            "lines_per_document": 3,
            "min_document_characters": 0,
            "num_shards": 3,
        }
        return BuildSettings(**{**defaults, **changes})

    return make


@pytest.fixture
def text_settings(build_settings, tmp_path) -> Callable[..., BuildSettings]:
    """`text_settings(text, **changes)`: of a data set of this text, in `a.txt`, of which no document is held out."""

    def make(text: str, **changes) -> BuildSettings:
        (tmp_path / "a.txt").write_text(text)
        return build_settings([f"text:{tmp_path}/a.txt"], tmp_path / "data", **{"held_out_fraction": 0.0, **changes})

    return make


@pytest.fixture(scope="session")
def build_command() -> Callable[[BuildSettings], list[str]]:
    """`build_command(settings)`: the command with these settings."""

    def command(settings: BuildSettings) -> list[str]:
        values = settings.model_dump(exclude_defaults=True)
        flags = [*(f"--input={text}" for text in values.pop("inputs")), *(f"--{n}={v}" for n, v in values.items())]
        return [sys.executable, str(Path(__file__).parents[2] / "build_pretraining_dataset.py"), *flags]

    return command


@pytest.fixture(scope="session")
def source(tmp_path_factory) -> Path:
    """The files of `write_source`."""
    return write_source(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="session")
def source_settings(build_settings, source) -> Callable[..., BuildSettings]:
    """`source_settings(output_dir, **changes)`: of a data set of `source`, or of the same files in another place."""

    def make(output_dir, source=source, **changes) -> BuildSettings:
        changes = {
            "inputs": tuple(inputs_of(source)),
            "sentences": "auto",
            "max_skipped": 0.5,
            "num_shards": 20,
        } | changes
        return build_settings(changes.pop("inputs"), output_dir, **changes)

    return make


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory, source_settings) -> Path:
    """The data set of `source`, which has a shard without an example."""
    output_dir = tmp_path_factory.mktemp("built") / "data"
    manifest = build(source_settings(output_dir))
    assert 0 in [shard.num_examples for shard in manifest.splits["train"].shards]
    return output_dir


@pytest.fixture(scope="session")
def expected(data_dir) -> dict[str, bytes]:
    return contents(data_dir)


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[Hub]:
    with hub_on_loopback(monkeypatch, tmp_path / "cache") as server:
        HfFileSystem.clear_instance_cache()
        yield server
    HfFileSystem.clear_instance_cache()
