"""Fixtures of several tests: files of examples, refusals, and three finished seeds."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.tables import Table
from electra_tf.finetuning.run import prepared_job
from electra_tf.finetuning.seeds import Job, run_seeds
from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.datasets import TaskToTrain, read_task
from electra_tf.tasks.finetune.examples import Examples
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.weights.source import load_pretrained
from electra_tf.weights.stored_model import StoredModel
from tests.toy import toy_finetuning_config

SETTINGS = {
    "data": {"max_seq_length": 12},
    "optimizer": {"learning_rate": 1e-2},
    "train": {"num_epochs": 2, "batch_size": 4, "log_every_steps": 2, "fused_ops": False},
}


@pytest.fixture
def write(tmp_path) -> Callable[[str, str | list[dict]], str]:
    """`write("GLUE/train.tsv", content)`: writes a file, of a list JSON lines, and returns its path."""

    def write_file(name: str, content: str | list[dict]) -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        text = content if isinstance(content, str) else "".join(f"{json.dumps(row)}\n" for row in content)
        path.write_bytes(text.encode())
        return str(path)

    return write_file


@pytest.fixture
def write_parquet(tmp_path) -> Callable[..., str]:
    """`write_parquet(name, columns, label=feature)`: writes a file as the `datasets` library does; returns its path.

    The ending may be stream.arrow or file.arrow, too.
    """

    def write_file(name: str, columns: dict, **features) -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        table = pyarrow.table(columns)
        if any(features.values()):
            table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        if name.endswith(".parquet"):
            pyarrow.parquet.write_table(table, path)
        else:
            kind = pyarrow.ipc.new_stream if name.endswith("stream.arrow") else pyarrow.ipc.new_file
            with kind(str(path), table.schema) as file:
                file.write_table(table)
        return str(path)

    return write_file


@pytest.fixture
def refusal() -> Callable[..., str]:
    """`refusal(function, *arguments)`: the message of the UserError that the call raises, one line."""

    def message_of(function: Callable, *arguments, **options) -> str:
        with pytest.raises(UserError) as caught:
            function(*arguments, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return message_of


@pytest.fixture(scope="session")
def own_files(tmp_path_factory) -> dict[str, str]:
    """Ten texts of two labels, one of them too long for 12 tokens, and six to evaluate."""
    directory = tmp_path_factory.mktemp("own")
    texts = [
        f"w{5 + number} w{6 + number} {'w9 ' * (12 if number == 7 else number % 4)}".strip() for number in range(16)
    ]
    rows = [f"{text},{'even' if number % 2 == 0 else 'odd'}" for number, text in enumerate(texts)]
    for name, lines in (("train.csv", rows[:10]), ("dev.csv", rows[10:])):
        (directory / name).write_text("\n".join(["text,label", *lines, ""]))
    return {"train_file": str(directory / "train.csv"), "validation_file": str(directory / "dev.csv")}


@pytest.fixture(scope="session")
def tiny_encoder(tiny_pretrained) -> StoredModel:
    return load_pretrained(tiny_pretrained)


@pytest.fixture(scope="session")
def task_of(tiny_encoder) -> Callable[..., TaskToTrain]:
    """`task_of("classification", train={"text": [...], "label": [...]})`: a task on tables.

    Without `validation`, the dev set is the training split. Args: sizes: other ones of the encoder.
    """

    def read(name: str, settings: dict | None = None, sizes: dict | None = None, **columns: dict) -> TaskToTrain:
        columns = {"validation": columns["train"], **columns}
        rows = {split: range(2, 2 + len(next(iter(each.values())))) for split, each in columns.items()}
        tables = {split: Table(f"{split}.csv", each, rows[split]) for split, each in columns.items()}
        encoder = tiny_encoder.encoder.model_copy(update=sizes or {})
        return read_task(name, settings or {}, "test", encoder, tiny_encoder.origin, tables)

    return read


@pytest.fixture(scope="session")
def data_of(tiny_encoder) -> Callable[..., TaskData]:
    """`data_of(task, (texts, more), labels)`: examples "a", "b", ..., evaluated as `dev` and also trained on."""

    def build(task: dict, inputs: tuple, labels: list | None, is_train: bool = True, **data) -> TaskData:
        ids = list("abcdefgh"[: len(inputs[0])])
        examples = Examples(inputs, labels, ids, "dev.csv", range(2, 2 + len(ids)))
        config = toy_finetuning_config(task, data=data)
        return TaskData(config, tiny_encoder.tokenizer, examples if is_train else None, {"dev": examples})

    return build


@pytest.fixture(scope="session")
def job_in(tiny_encoder, own_files) -> Callable[..., Job]:
    """`job_in(output_dir, keep="all", train={...})`: classification of `own_files`, 3 steps an epoch."""

    def build(output_dir, keep=None, strategy=None, **changes) -> Job:
        values = {name: {**SETTINGS.get(name, {}), **changes.get(name, {})} for name in {**SETTINGS, **changes}}
        values["data"] = own_files | values["data"]
        values["train"] |= {"keep": keep} if keep else {}
        task = read_task("classification", values, "test", tiny_encoder.encoder, tiny_encoder.origin)
        return prepared_job(task, tiny_encoder, str(output_dir), strategy or tf.distribute.OneDeviceStrategy("CPU:0"))

    return build


@pytest.fixture(scope="session")
def three_seeds(job_in, tmp_path_factory) -> tuple[Path, list[str]]:
    """The directory of seeds 0, 1 and 2 with all checkpoints, and each trace of a part of the model."""
    directory, traces = tmp_path_factory.mktemp("three") / "out", []

    def counted(method: Callable) -> Callable:
        def call(*arguments):
            if not tf.executing_eagerly():  # as when variables are created
                traces.append(method.__name__)
            return method(*arguments)

        return call

    with pytest.MonkeyPatch.context() as patched:
        for method in (FinetuningTask.training_terms, FinetuningTask.example_outputs):
            patched.setattr(FinetuningTask, method.__name__, counted(method))
        run_seeds(job_in(directory, keep="all"), (0, 1, 2))
    return directory, traces
