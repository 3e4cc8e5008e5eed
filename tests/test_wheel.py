"""The wheel, installed into an empty folder: its commands, its configurations, and what it leaves alone."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import electra_tf
from electra_tf.cli.commands import SUBCOMMANDS
from electra_tf.train.run_directory import RATES

PROJECT = Path(__file__).resolve().parents[1]
SOURCES = ("electra_tf", "data_prep", "configs")
INSTALLED = os.environ.get("ELECTRA_TF_WHEEL_PYTHON")
PYTHON = INSTALLED or sys.executable


def _build(source: Path, kind: str, folder: Path) -> Path:
    """Builds a `wheel` or an `sdist` as an installer does, without an environment of its own."""
    hook = f"from setuptools.build_meta import build_{kind} as build; print(build({str(folder)!r}))"
    answer = subprocess.run([sys.executable, "-c", hook], cwd=source, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr[-2000:]
    return folder / answer.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A copy of what the wheel is made of, in which building leaves its files."""
    copy = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        shutil.copytree(PROJECT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in [*PROJECT.glob("*.toml"), *PROJECT.glob("*.txt"), *PROJECT.glob("*.md"), PROJECT / "MANIFEST.in"]:
        shutil.copy(path, copy)
    shutil.copy(PROJECT / "LICENSE", copy)
    return copy


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory) -> Path:
    return _build(source, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory) -> Path | None:
    """A folder for PYTHONPATH that has only the installed wheel; its requirements are those of this environment.

    None: ELECTRA_TF_WHEEL_PYTHON names a Python that has the wheel installed, and only what it requires (.ci/wheel).
    """
    if INSTALLED:
        return None
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(command, check=True, capture_output=True)
    return site


def _run(site: Path | None, folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, **({} if site is None else {"PYTHONPATH": str(site)})}
    return subprocess.run(
        arguments, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def _electra_tf(site: Path | None, folder: Path, *arguments: str) -> str:
    program = Path(PYTHON).parent / "electra-tf" if site is None else site / "bin" / "electra-tf"
    answer = _run(site, folder, PYTHON, str(program), *arguments)
    assert answer.returncode == 0, answer.stderr[-3000:]
    return answer.stdout


def test_the_list_of_packages_is_complete():
    listed = set(re.findall(r'^    "(electra_tf[\w.]*)",$', (PROJECT / "pyproject.toml").read_text(), re.MULTILINE))
    folders = {file.parent.relative_to(PROJECT) for name in SOURCES for file in (PROJECT / name).rglob("__init__.py")}
    names = {".".join(folder.parts) for folder in folders}
    bundled = {f"electra_tf.bundled.{name}" for name in names if name.startswith("data_prep")}
    assert listed == {name for name in names if name.startswith("electra_tf")} | bundled | {"electra_tf.configs"}


@pytest.mark.slow
def test_the_wheel_has_all_files_and_no_top_level_module_but_its_own(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"electra_tf"}
    files = [path for name in SOURCES for path in (PROJECT / name).rglob("*") if path.is_file()]
    places = {"configs": "electra_tf/configs", "data_prep": "electra_tf/bundled/data_prep", "electra_tf": "electra_tf"}
    expected = {
        f"{places[root]}/{'/'.join(parts)}"
        for root, *parts in (path.relative_to(PROJECT).parts for path in files)
        if "__pycache__" not in parts
    }
    assert {name for name in names if ".dist-info/" not in name} == expected


@pytest.mark.slow
def test_the_source_distribution_makes_the_same_wheel_and_has_no_tests(source, wheel, tmp_path):
    (source / "tests").mkdir()
    (source / "tests" / "test_of_a_clone.py").touch()
    archive = _build(source, "sdist", tmp_path)
    shutil.unpack_archive(archive, tmp_path, filter="data")
    unpacked = tmp_path / archive.name.removesuffix(".tar.gz")
    assert not (unpacked / "tests").exists()  # setuptools adds some of them, which need the rest of the clone
    again = _build(unpacked, "wheel", tmp_path)
    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(wheel).namelist()


# The first day: what the commands of the next test do.
DAY = """
import electra_tf

electra_tf.build_vocab(TEXT, "vocab2.txt", vocab_size=600, num_processes=2)
settings = {"max_seq_length": 32, "held_out_fraction": 0.2}
electra_tf.build_dataset(TEXT, "vocab2.txt", "data2", num_processes=2, **settings)
model = electra_tf.pretrain("mine.yaml", "data2", "run2").model()
(filled,), scores = model.fill_mask("a good [MASK]", top_k=2), model.detect("a good day")
assert len(filled) == 2 and len(scores) == 5 and model.encode(["a good day"]).shape == (1, 128)
table = {"text": ["good day", "bad day"] * 8, "label": ["yes", "no"] * 8}
result = electra_tf.finetune(
    "classification", table, table, init_from="run2", output_dir="ft2", config="authors"
)
(row,) = result.model().predict(["a good day"])
shares = [f"{row[name]:.6f}" for name in ("probability_no", "probability_yes")]
print("\\t".join([row["id"], row["prediction"], *shares]))
print(electra_tf.load("run2").save("folder"))
"""


def _content(run: Path) -> dict[str, object]:
    """The files of a run that do not depend on the machine's speed, by name."""
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    files = {path.name: path.read_bytes() for path in (run / "checkpoints").glob("step-*")}
    return {**files, "metrics": [{key: line[key] for key in line if key not in RATES} for line in metrics]}


@pytest.mark.slow
def test_installed_commands_lead_from_text_to_predictions_also_beside_another_data_prep(site, tmp_path):
    (tmp_path / "data_prep").mkdir()
    (tmp_path / "data_prep" / "__init__.py").write_text("raise ImportError('the data_prep of another project')\n")
    inputs = f"--input=book:{PROJECT}/sample/novel/chapter_0*.txt"
    (tmp_path / "train.csv").write_text("text,label\n" + "good day,yes\nbad day,no\n" * 8)
    (tmp_path / "new.jsonl").write_text('{"text": "a good day"}\n')
    _electra_tf(site, tmp_path, "build-vocab", inputs, "--vocab_size=600", "--output=vocab.txt", "--num_processes=2")
    build = ("build-data", inputs, "--vocab_file=vocab.txt", "--held_out_fraction=0.2", "--max_seq_length=32")
    _electra_tf(site, tmp_path, *build, "--output_dir=data", "--num_processes=2")
    (tmp_path / "mine.yaml").write_text(
        "base: tiny\nencoder: {num_layers: 1, vocab_size: 600}\n"
        "data: {max_seq_length: 32}\ntrain: {num_steps: 2, batch_size: 8}\n"
    )
    _electra_tf(site, tmp_path, "pretrain", "--config=mine.yaml", "--data_dir=data", "--model_dir=run")
    files = ("--train_file=train.csv", "--validation_file=train.csv")
    finetune = ("finetune", "--task=classification", *files, "--init_from=run", "--output_dir=ft", "--config=authors")
    _electra_tf(site, tmp_path, *finetune)
    predict = ("finetune", "--predict", "--model_dir=ft/seed_0", "--input_file=new.jsonl", "--output_file=out.tsv")
    _electra_tf(site, tmp_path, *predict)
    _, row = (tmp_path / "out.tsv").read_text().splitlines()
    # Python does the same: to the byte, but for speeds.
    script = DAY.replace("TEXT", repr(inputs.removeprefix("--input=")))
    answer = _run(site, tmp_path, PYTHON, "-c", script)
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert answer.stdout.splitlines()[-2:] == [row, "folder"]
    assert (tmp_path / "vocab2.txt").read_bytes() == (tmp_path / "vocab.txt").read_bytes()
    shards = [path.name for path in (tmp_path / "data").iterdir() if path.is_file()]
    assert [(tmp_path / "data2" / name).read_bytes() for name in shards] == [
        (tmp_path / "data" / name).read_bytes() for name in shards
    ]
    assert _content(tmp_path / "run2") == _content(tmp_path / "run")
    assert _content(tmp_path / "ft2" / "seed_0") == _content(tmp_path / "ft" / "seed_0")


# A model of one's own on the encoders of two models, in processes that have never seen the project's tests.
MORNING = """
import sys
import numpy as np
import keras, electra_tf

ids = keras.Input([None], dtype="int32")
vectors = [electra_tf.load(sys.argv[1]).encoder(ids).pooled_output for _ in range(2)]
own = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Concatenate()(vectors)))
own.compile(keras.optimizers.SGD(1e-3), "mse", metrics=["mae"])
rows = np.array([[2, 5, 6, 3], [2, 7, 3, 0]])
assert {"loss", "mae"} <= set(own.fit(rows, np.array([[3.0], [0.0]]), epochs=2, verbose=0).history)
own.save("own.keras")
own.export("exported", verbose=False)
np.save("expected.npy", own.predict(rows, verbose=0))
"""
NEXT_DAY = """
import os
import electra_tf, keras
import numpy as np
import tensorflow as tf

assert electra_tf.load and "TF_USE_LEGACY_KERAS" not in os.environ
rows, expected = np.array([[2, 5, 6, 3], [2, 7, 3, 0]], np.int32), np.load("expected.npy")
own = keras.models.load_model("own.keras", custom_objects={"EncoderLayer": electra_tf.EncoderLayer})
np.testing.assert_allclose(own.predict(rows, verbose=0), expected, atol=1e-6)
np.testing.assert_allclose(tf.saved_model.load("exported").serve(rows), expected, atol=1e-6)
"""


@pytest.mark.slow
def test_a_model_of_keras_trains_the_encoder_and_is_saved_loaded_and_exported(site, tmp_path, tiny_pretrained):
    for code in (MORNING, NEXT_DAY):
        answer = _run(site, tmp_path, PYTHON, "-c", code, tiny_pretrained)
        assert answer.returncode == 0, answer.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_help_names_the_installed_command_and_no_script(site, tmp_path, subcommand):
    text = _electra_tf(site, tmp_path, subcommand, "--help")
    assert text.startswith(f"usage: electra-tf {subcommand} ")
    assert re.findall(r"\w+\.py\b|setup\.sh", text) == []


@pytest.mark.slow
def test_an_error_names_presets_and_installed_commands(site, tmp_path):
    command = [PYTHON, "-m", "electra_tf", "pretrain", "--model_dir=run"]
    unknown = _run(site, tmp_path, *command, "--config=configs/pretrain/smal.yaml", "--dry_run")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    assert "did you mean small?" in unknown.stderr
    without_data = _run(site, tmp_path, *command, "--config=tiny", "--data_dir=data")
    assert "electra-tf build-data" in without_data.stderr


@pytest.mark.slow
def test_importing_the_package_is_fast_and_makes_no_other_module_importable(site, tmp_path):
    code = (
        "import importlib.util, sys, electra_tf; "
        "print(electra_tf.__version__, 'tensorflow' in sys.modules, importlib.util.find_spec('data_prep'))"
    )
    assert _run(site, tmp_path, PYTHON, "-c", code).stdout == f"{electra_tf.__version__} False None\n"
