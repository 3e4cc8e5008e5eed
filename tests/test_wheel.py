"""The wheel, installed into an empty folder: a first day with its commands and in Python, and the day after."""

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
PLACES = {"configs": "electra_tf/configs", "data_prep": "electra_tf/bundled/data_prep", "electra_tf": "electra_tf"}
INSTALLED = os.environ.get("ELECTRA_TF_WHEEL_PYTHON")  # has the wheel and only what it requires
PYTHON = INSTALLED or sys.executable


def _build(source: Path, kind: str, folder: Path) -> Path:
    """Builds a `wheel` or an `sdist` as an installer does, without an environment of its own."""
    hook = f"from setuptools.build_meta import build_{kind} as build; print(build({str(folder)!r}))"
    answer = subprocess.run([sys.executable, "-c", hook], cwd=source, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr[-2000:]
    return folder / answer.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from the source distribution, of a copy of the project in which building leaves its files."""
    source, folder = (tmp_path_factory.mktemp(name) for name in ("source", "wheel"))
    for name in PLACES:
        shutil.copytree(PROJECT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for pattern in ("*.toml", "*.txt", "*.md", "MANIFEST.in", "LICENSE"):
        for path in PROJECT.glob(pattern):
            shutil.copy(path, source)
    (source / "tests").mkdir()
    (source / "tests" / "test_of_a_clone.py").touch()
    archive = _build(source, "sdist", folder)
    shutil.unpack_archive(archive, folder, filter="data")
    unpacked = folder / archive.name.removesuffix(".tar.gz")
    assert not (unpacked / "tests").exists()  # setuptools adds some of them, which need the rest of the clone
    return _build(unpacked, "wheel", folder)


@pytest.mark.slow
def test_the_wheel_has_all_files_and_no_top_level_module_but_its_own(wheel):
    expected = {
        f"{place}/{path.relative_to(PROJECT / name).as_posix()}"
        for name, place in PLACES.items()
        for path in (PROJECT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name} == expected


@pytest.fixture
def run(wheel, tmp_path):
    """`run(PYTHON, ...)`: runs a program where only the wheel is installed, beside another project's data_prep.

    Without ELECTRA_TF_WHEEL_PYTHON (.ci/wheel) it is in a folder of PYTHONPATH, and the rest in this environment.
    """
    (tmp_path / "data_prep").mkdir()
    (tmp_path / "data_prep" / "__init__.py").write_text("raise ImportError('the data_prep of another project')\n")
    environment, program = dict(os.environ), Path(PYTHON).parent / "electra-tf"
    if not INSTALLED:
        site = tmp_path / "site"
        command = [PYTHON, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel]
        subprocess.run(command, check=True, capture_output=True)
        environment["PYTHONPATH"], program = str(site), site / "bin" / "electra-tf"

    def program_run(*arguments: str, status: int = 0) -> str:
        command = [PYTHON, program, *arguments[1:]] if arguments[0] == "electra-tf" else arguments
        options = {"cwd": tmp_path, "env": environment, "stdin": subprocess.DEVNULL}
        answer = subprocess.run(command, capture_output=True, text=True, **options)
        assert answer.returncode == status, answer.stderr[-3000:]
        return answer.stdout if status == 0 else answer.stderr

    return program_run


COMMANDS = """
build-vocab --input=TEXT --vocab_size=600 --output=vocab.txt --num_processes=2
build-data --input=TEXT --vocab_file=vocab.txt --held_out_fraction=0.2 --max_seq_length=32 --output_dir=data
pretrain --config=mine.yaml --data_dir=data --model_dir=run
finetune --task=classification --train_file=train.csv --validation_file=train.csv --init_from=run --output_dir=ft \
  --config=authors
finetune --predict --model_dir=ft/seed_0 --input_file=new.jsonl --output_file=out.tsv
"""
# Does the same, and trains a model of Keras on the encoders of two models.
DAY = """
import sys
import electra_tf

assert "tensorflow" not in sys.modules
electra_tf.build_vocab("TEXT", "vocab2.txt", vocab_size=600, num_processes=2)
settings = {"max_seq_length": 32, "held_out_fraction": 0.2}
electra_tf.build_dataset("TEXT", "vocab2.txt", "data2", num_processes=2, **settings)
model = electra_tf.pretrain("mine.yaml", "data2", "run2").model()
(filled,), scores = model.fill_mask("a good [MASK]", top_k=2), model.detect("a good day")
assert len(filled) == 2 and len(scores) == 5 and model.encode(["a good day"]).shape == (1, 128)
table = {"text": ["good day", "bad day"] * 8, "label": ["yes", "no"] * 8}
result = electra_tf.finetune("classification", table, table, init_from="run2", output_dir="ft2", config="authors")
(row,) = result.model().predict(["a good day"])
shares = [f"{row[name]:.6f}" for name in ("probability_no", "probability_yes")]
print("\\t".join([row["id"], row["prediction"], *shares]))
print(electra_tf.load("run2").save("folder"))

import keras
import numpy as np

ids = keras.Input([None], dtype="int32")
vectors = [electra_tf.load("folder").encoder(ids).pooled_output for _ in range(2)]
own = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Concatenate()(vectors)))
own.compile(keras.optimizers.SGD(1e-3), "mse", metrics=["mae"])
rows = np.array([[2, 5, 6, 3], [2, 7, 3, 0]])
assert {"loss", "mae"} <= set(own.fit(rows, np.array([[3.0], [0.0]]), verbose=0).history)
own.save("own.keras")
own.export("exported", verbose=False)
np.save("expected.npy", own.predict(rows, verbose=0))
"""
NEXT_DAY = """
import os, keras, electra_tf
import numpy as np
import tensorflow as tf

assert electra_tf.load and "TF_USE_LEGACY_KERAS" not in os.environ
rows, expected = np.array([[2, 5, 6, 3], [2, 7, 3, 0]], np.int32), np.load("expected.npy")
own = keras.models.load_model("own.keras", custom_objects={"EncoderLayer": electra_tf.EncoderLayer})
np.testing.assert_allclose(own.predict(rows, verbose=0), expected, atol=1e-6)
exported = tf.saved_model.load("exported")
np.testing.assert_allclose(exported.serve(rows), expected, atol=1e-6)
"""


def _content(run: Path) -> dict[str, object]:
    """The files of a run that do not depend on the machine's speed, by name."""
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    files = {path.name: path.read_bytes() for path in (run / "checkpoints").glob("step-*")}
    return {**files, "metrics": [{key: line[key] for key in line if key not in RATES} for line in metrics]}


@pytest.mark.slow
def test_installed_commands_lead_from_text_to_predictions_and_python_does_the_same_to_the_byte(run, tmp_path):
    text = f"book:{PROJECT}/sample/novel/chapter_0*.txt"
    (tmp_path / "train.csv").write_text("text,label\n" + "good day,yes\nbad day,no\n" * 8)
    (tmp_path / "new.jsonl").write_text('{"text": "a good day"}\n')
    sizes = "encoder: {num_layers: 1, vocab_size: 600}\ndata: {max_seq_length: 32}\n"
    (tmp_path / "mine.yaml").write_text(f"base: tiny\n{sizes}train: {{num_steps: 2, batch_size: 8}}\n")
    for line in COMMANDS.split("\n")[1:-1]:
        run("electra-tf", *line.replace("TEXT", text).split())
    _, row = (tmp_path / "out.tsv").read_text().splitlines()
    assert run(PYTHON, "-c", DAY.replace("TEXT", text)).splitlines()[-2:] == [row, "folder"]
    assert (tmp_path / "vocab2.txt").read_bytes() == (tmp_path / "vocab.txt").read_bytes()
    for path in (path for path in (tmp_path / "data").iterdir() if path.is_file()):
        assert (tmp_path / "data2" / path.name).read_bytes() == path.read_bytes()
    for name in ("run", "ft"):
        ours, theirs = (tmp_path / folder / ("seed_0" if name == "ft" else "") for folder in (name, f"{name}2"))
        assert _content(ours) == _content(theirs)
    run(PYTHON, "-c", NEXT_DAY)


@pytest.mark.slow
def test_help_and_errors_name_installed_commands_and_presets_and_no_script(run):
    for subcommand in SUBCOMMANDS:
        text = run("electra-tf", subcommand, "--help")
        assert text.startswith(f"usage: electra-tf {subcommand} ") and not re.search(r"\w+\.py\b|setup\.sh", text)
    pretrain = (PYTHON, "-m", "electra_tf", "pretrain", "--model_dir=run")
    unknown = run(*pretrain, "--config=configs/pretrain/smal.yaml", "--dry_run", status=2)
    assert unknown.count("\n") == 1 and "did you mean small?" in unknown
    assert "electra-tf build-data" in run(*pretrain, "--config=tiny", "--data_dir=data", status=2)
    assert run(PYTHON, "-c", "import electra_tf; print(electra_tf.__version__)") == f"{electra_tf.__version__}\n"
