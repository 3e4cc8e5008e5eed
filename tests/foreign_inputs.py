"""Small good inputs of every kind that comes from elsewhere, and how the program reads them."""

import json
import os
import shutil
from pathlib import Path

import h5py
import pyarrow
import safetensors.numpy
import tensorflow as tf

import electra_tf
from data_prep.inputs import require_readable
from data_prep.settings import BuildSettings
from data_prep.sources import find_files
from electra_tf.config.networks import EncoderConfig
from electra_tf.data.corpus import damaged_data_reported, open_data
from electra_tf.tasks.finetune.datasets import read_task
from electra_tf.tasks.finetune.kinds.squad import read_squad
from electra_tf.tasks.pretrain.config import load_config
from electra_tf.text.vocabulary import BERT_TEXT, StoredTokenizer
from tests.byte_level import byte_level
from tests.data_prep.reading import read_files
from tests.data_prep.texts import content_of, packings, table_of
from tests.toy import ENCODER, MODERN
from tests.weights.conftest import random_objective, write_run_of
from tests.weights.hugging_face.test_torch_file import archive, program, tensor

MODELS = ("run", "hugging_face", "sentence_transformers", "tf1", "byte_level", "h5", "torch")
KINDS = (*MODELS, "data", *("texts", "tables", "config", "texts", "tables", "texts", "tables"))
FORMATS = ("wikipedia", "wikiextractor", "cirrus", "jsonl", "csv", "tsv", "parquet", "arrow", "text", "book")
TAGGED = {"words": ["w5", "w6"], "tags": ["O", "B-x"]}
CHOICE = {"text": "w5 w6", "context": "w7", "choices": ["w8", "w9"]}
ROWS = [TAGGED | CHOICE | {"label": "AB"[i % 2], "labels": ["a", "b"][: 1 + i % 2], "score": i / 4} for i in range(4)]
QUESTION = {"id": "1", "question": "w5?", "answers": [{"text": "w6", "answer_start": 3}]}
TABLES = {  # by file; its name begins with that of the task
    "classification.tsv": b"text\tlabel\nw5\tA\nw6\tB\n",
    "classification.csv": b'text,label\n"w5, w6",A\nw7,B\n',
    **{f"classification.{kind}": table_of(kind, pyarrow.Table.from_pylist(ROWS)) for kind in ("parquet", "arrow")},
    **{f"{task}.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS).encode()
       for task in ("classification", "regression", "multi_label", "tagging", "multiple_choice")},
    "tagging.conll": b"w5 O\nw6 B-x\n\nw7 O\nw8 I-x\n",
    "squad.json": json.dumps({"data": [{"paragraphs": [{"context": "w5 w6", "qas": [QUESTION]}]}]}).encode(),
}  # fmt: skip


def write_good_inputs(good: Path, run: str, tiny_config, write_data) -> None:
    """Writes a folder for each of `KINDS`."""
    shutil.copytree(run, good / "run")
    for form in ("hugging_face", "sentence_transformers", "tf1"):
        electra_tf.convert(run, form, good / form)
    config = tiny_config(encoder=MODERN | {"vocab_size": 273, "embedding_size": 16}, objective={"name": "bert_mlm"})
    own = write_run_of(random_objective(config, seed=1), good.parent / "own")
    os.remove(good.parent / "own" / "vocab.txt")
    own.write_tokenizer(StoredTokenizer(byte_level(), BERT_TEXT))
    electra_tf.convert(own.path, "hugging_face", good / "byte_level")
    tensors = safetensors.numpy.load_file(good / "hugging_face" / "discriminator" / "model.safetensors")
    for name in ("h5", "torch"):
        shutil.copytree(good / "hugging_face" / "discriminator", good / name)
        (good / name / "model.safetensors").unlink()
    with h5py.File(good / "h5" / "tf_model.h5", "w") as file:
        for name, values in tensors.items():
            is_kernel = values.ndim == 2 and "_embeddings" not in name
            path = f"model/{name.replace('.', '/')}:0"
            file[path.replace("weight:0", "kernel:0") if is_kernel else path] = values.T if is_kernel else values
    stored = {f"data/{index}": values.tobytes() for index, values in enumerate(tensors.values())}
    pickled = {
        name: tensor(key=str(index), size=each.size, shape=each.shape, strides=tuple(n // 4 for n in each.strides))
        for index, (name, each) in enumerate(tensors.items())
    }
    (good / "torch" / "pytorch_model.bin").write_bytes(archive(program(pickled), stored))
    write_data(good / "data")
    texts = {f"{form}.{how}": text for form in FORMATS for how, text in packings(content_of(form)).items()}
    config = {"base.yaml": (good / "run" / "config.yaml").read_bytes(), "child.yaml": b"base: base.yaml\nmasking: {}\n"}
    for kind, files in {"texts": texts, "tables": TABLES, "config": config}.items():
        (good / kind).mkdir()
        for name, content in files.items():
            (good / kind / name).write_bytes(content)


def read_input(kind: str, folder: Path, file: str, place: Path) -> None:
    """Reads an input as the program does. Args: file: the attacked one."""
    task = file.partition(".")[0]
    if kind == "config":
        load_config(folder / "child.yaml")
    elif kind == "data":
        corpus = open_data(folder, load_config(place / "good" / "run" / "config.yaml")).train
        with damaged_data_reported():
            for shard in range(len(corpus.files)):
                corpus.parse(corpus.records(tf.constant(shard)))
    elif kind == "texts":
        inputs = (f"{task}:{folder / file}",)
        require_readable(find_files(inputs), BuildSettings(inputs=inputs, vocab_file="", output_dir=""))
        read_files(*inputs, unit_bytes=10_000)
    elif task == "squad":
        read_squad(folder / file)
    elif kind == "tables":
        column = {"regression": {"label_column": "score"}, "multi_label": {"label_column": "labels"}}.get(task, {})
        data = dict.fromkeys(("train_file", "validation_file"), str(folder / file))
        read_task(task, {"data": data, "task": column}, "test", EncoderConfig(**ENCODER), None)
    else:
        electra_tf.load(folder).encode(["w5 the cat"])
        electra_tf.convert(folder, "hugging_face", place / "out" / "model")
