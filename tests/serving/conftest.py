"""A small model of each kind with random weights, its export, and texts that are hard to serve.

The weights are large and a head's outputs are centred, so that labels and spans differ between texts.
V 32, E 6, H 8, A 2, F 12, L 2, 40 positions, C 3 or 2.
"""

import functools
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.finetuning.predict import outputs_of
from electra_tf.serving.saved_model import export_saved_model
from electra_tf.serving.text_encoder import TextEncoder
from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.examples import Examples
from electra_tf.tasks.finetune.kinds import KINDS, build_finetuning_task
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.served import ServedModel, ServingShapes
from electra_tf.text.vocabulary import SPECIAL_TOKENS, StoredTokenizer, Vocabulary, WordPieceVocabulary
from electra_tf.text.wordpiece import BertTokenizer
from electra_tf.weights.stored_model import StoredModel
from tests.byte_level import byte_level
from tests.sentence_pieces import train
from tests.toy import toy_finetuning_config

WORDS = (*"abcdefghi?().,", "##a", "##b", "who", "sea", "##side", "old", "##s", "σ", "ς", "東", "京", "é", "-", "!")

_QUESTIONS = {
    **{"kind": "question_answering", "version_2": True, "head_size": 6, "beam_size": 4},
    **{"doc_stride": 5, "max_query_length": 5, "max_answer_length": 4, "n_best_size": 6},
}
TASKS = {
    "classification": {"kind": "classification", "labels": ("no", "maybe", "ja"), "text_columns": ("text",)},
    "pairs": {"kind": "classification", "labels": ("no", "yes"), "text_columns": ("first", "second")},
    "windows": {"kind": "classification", "labels": ("no", "maybe", "yes"), "stride": 4},
    "multi_label": {"kind": "multi_label", "labels": ("x", "y", "z"), "head": "huggingface"},
    "regression": {"kind": "regression", "min_value": 1.0, "max_value": 5.0},
    "tagging": {"kind": "tagging", "labels": ("B-X", "I-X", "O")},
    "tag windows": {"kind": "tagging", "labels": ("B-X", "I-X", "O"), "stride": 4},
    "choices": {"kind": "multiple_choice"},
    "squad_v1": {**_QUESTIONS, "version_2": False, "answerable_classifier": False},
    "squad_v2": _QUESTIONS,
    "independent": {**_QUESTIONS, "joint_prediction": False, "answerable_classifier": False},
}
OF_PIECES, OF_BYTES, OF_OTHER_BYTES = " of pieces", " of bytes", " of other bytes"
MAX_SEQ_LENGTH = 16
SHAPES = ServingShapes(MAX_SEQ_LENGTH)


@pytest.fixture(scope="session")
def word_tokenizer() -> BertTokenizer:
    return BertTokenizer(WordPieceVocabulary.from_tokens((*SPECIAL_TOKENS, *WORDS)))


@pytest.fixture(scope="session")
def finetuned(word_tokenizer) -> Callable[[str], StoredModel]:
    """`finetuned("pairs")`: the model of a task of `TASKS`, built once. "pairs of pieces": with SentencePiece."""

    @functools.cache
    def build(name: str) -> StoredModel:
        contents = {"": word_tokenizer.vocabulary.content, OF_PIECES: train("bpe"), OF_BYTES: byte_level()}
        contents[OF_OTHER_BYTES] = byte_level(prefix_space=True)
        kind, of, tokens = name.partition(" of ")
        content = contents[of + tokens]
        sizes = {"embedding_size": 6, "hidden_size": 8, "intermediate_size": 12, "num_layers": 2}
        sizes |= {"vocab_size": Vocabulary.from_bytes(content, "a test").size, "max_position_embeddings": 40}
        config = toy_finetuning_config(TASKS[kind], encoder=sizes, data={"max_seq_length": MAX_SEQ_LENGTH})
        keras.utils.set_random_seed(3)
        task = build_finetuning_task(config)
        _draw_weights(task, np.random.default_rng(11))
        text = StoredTokenizer.of(content, word_tokenizer.settings)
        return StoredModel("a test", config.encoder, None, {}, text, finetuned=config, task=task)

    return build


def _draw_weights(task: FinetuningTask, draw: np.random.Generator) -> None:
    for variable in task.trainable_variables:
        scale = 0.3 if variable.path.startswith("electra/") else 1.5
        variable.assign_add(draw.normal(size=variable.shape, scale=scale).astype(np.float32))
    if hasattr(task, "output_layer"):
        ids = draw.integers(5, task.config.encoder.vocab_size, size=[64, 9]).astype(np.int32)
        ids[:, 0] = 2
        ids = ids[:, np.newaxis] if task.text_axes == "CS" else ids
        logits = task({"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)})
        task.output_layer.bias.assign_sub(np.mean(logits, axis=tuple(range(logits.shape.rank - 1))))


@pytest.fixture(scope="session")
def served(finetuned, tiny_config) -> Callable[..., ServedModel]:
    """`served("pairs")`: the served model of a task of `TASKS`, or of "pretraining", built once for each shape."""

    @functools.cache
    def build(name: str, shapes: ServingShapes = SHAPES) -> ServedModel:
        if name == "pretraining":
            tokenizer = finetuned("regression").tokenizer
            sizes = {"vocab_size": tokenizer.vocabulary.size, "max_position_embeddings": 20}
            keras.utils.set_random_seed(4)
            return TextEncoder(build_objective(tiny_config(encoder=sizes)), tokenizer, shapes)
        model = finetuned(name)
        return KINDS[model.finetuned.task.kind].served(model.task, model.tokenizer, shapes)

    return build


@pytest.fixture(scope="session")
def exported(served, tmp_path_factory) -> Callable[[str], str]:
    """`exported("pairs")`: the version directory of its export, written once."""
    return functools.cache(lambda name: export_saved_model(served(name), tmp_path_factory.mktemp(name) / "model"))


# Mixed scripts, empty and blank texts, invalid UTF-8, control characters, a long word and a long text.
HARD_TEXTS = [
    "The old seaside (sea) who?",
    "ΣΙΣ σ é E\u0301 東京 d. İ",
    "",
    " \t\n ",
    b"a \xff\xfe b\x80",
    b"\xff",
    "a\u0000b \u200b c\u00a0d",
    "old " + "x" * 300 + " sea",
    "sea? d. " * 30,
]
LONG_TEXTS = ["sea, " * 20_000, "x" * 100_000]


def predicted(model: StoredModel, *columns: list, values: list | tuple = ()):
    """The rows and the table that --predict writes for new examples."""
    examples = Examples(columns, None, [str(number) for number in range(len(columns[0]))], "a test", values)
    data = TaskData(model.finetuned, model.tokenizer, None, {"input": examples})
    return data.evaluated(outputs_of(model, data, tf.distribute.OneDeviceStrategy("CPU:0")))


def predicted_cells(model: StoredModel, *columns: list, values: list | tuple = ()) -> list[list[str]]:
    """The cells after the id of each row of the table."""
    lines = predicted(model, *columns, values=values).table.decode().splitlines()
    return [line.split("\t")[1:] for line in lines[1:]]


def call(model: ServedModel, name: str, *texts: list) -> dict[str, np.ndarray]:
    """The outputs of a served function for lists of texts."""
    outputs = getattr(model, name)(*(tf.constant(each, tf.string) for each in texts))
    return {key: value.numpy() for key, value in outputs.items()}
