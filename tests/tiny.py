"""Fixtures for the tests of several packages: two CPU devices, a tiny configuration, a batch and a data set for it.

All sizes of the tiny configuration differ, so that a mix-up of two axes fails: B 4, S 10, M 3, V 47, E 12, H 16, A 2,
D 8, F 20, G 6, generator A 3, D 2 and F 14, 13 positions.
"""

import gc
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.loader import merge
from electra_tf.data import manifest, records
from electra_tf.data.masking import MaskingVocabulary, mask_batch
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import INHERITED, PretrainingConfig, parse_config
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.train.checkpoints import Checkpoints
from electra_tf.train.distribution import mirrored
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.step import compile_task
from tests.toy import ENCODER, EQUAL_SIZES, VOCAB_SIZE, VOCABULARY

gc.set_threshold(20_000, 20, 20)  # tracing makes many objects that stay
# Before anything runs on a device. Tolerances are those of float32 on a CPU; a GPU multiplies in TF32, so it is hidden.
tf.config.set_visible_devices([], "GPU")
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
# As `build_strategy` does for the rest of a process: graphs made before and after the first command round alike.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

PAD, UNK, CLS, SEP, MASK, FIRST_WORD = 0, 1, 2, 3, 4, 5

_TINY = {
    "encoder": ENCODER,
    "objective": {
        "name": "electra",
        "generator": {"size_fraction": 0.375, "num_heads": 3, "intermediate_size": 14},
    },
    "masking": {"masked_fraction": 0.3},
    "data": {"max_seq_length": 10},
    "optimizer": {"learning_rate": 1e-2, "warmup_steps": 0},
    "train": {"num_steps": 8, "batch_size": 4, "fused_ops": False},
}
# By the name of an objective. Where weights are random, nothing reads `auxiliary`.
_REQUIRED = {
    "two_stage": {"objective": {"generator": EQUAL_SIZES}},
    "fast_electra": {"objective": {"auxiliary": "a path"}},
    "teams": {"objective": {"generator": EQUAL_SIZES}, "encoder": {"num_layers": 2}},  # one of the layers is shared
}


@pytest.fixture(scope="session")
def tiny_config() -> Callable[..., PretrainingConfig]:
    """`tiny_config(train={"batch_size": 6})`: the tiny configuration with what its objective needs, and changes."""

    def build(**changes) -> PretrainingConfig:
        name = changes.get("objective", {}).get("name")
        required = merge({"objective": {"name": name}}, _REQUIRED[name], INHERITED) if name in _REQUIRED else {}
        return parse_config(merge(merge(_TINY, required, INHERITED), changes, INHERITED), source="tiny")

    return build


@pytest.fixture(scope="session")
def masking_vocabulary() -> MaskingVocabulary:
    losses = np.linspace(1.25, 6.75, VOCAB_SIZE, dtype=np.float32)
    return MaskingVocabulary(cls_id=CLS, sep_id=SEP, mask_id=MASK, vocab_size=VOCAB_SIZE, unigram_losses=losses)


@pytest.fixture(scope="session")
def tiny_batch(masking_vocabulary) -> Callable[..., dict[str, tf.Tensor]]:
    """`tiny_batch(config, lengths)`: a masked batch, one row `[CLS] ... [SEP] ... [SEP]` of each length (from 5)."""

    def build(config: PretrainingConfig, lengths: Sequence[int], seed: int = 0) -> dict[str, tf.Tensor]:
        words = np.random.default_rng(seed)
        batch = {name: np.zeros([len(lengths), config.data.max_seq_length], np.int32) for name in _ROWS}
        for row, length in enumerate(lengths):
            first = length // 2
            batch["input_ids"][row, :length] = words.integers(FIRST_WORD, config.encoder.vocab_size, length)
            batch["input_ids"][row, [0, first, length - 1]] = [CLS, SEP, SEP]
            batch["input_mask"][row, :length] = 1
            batch["segment_ids"][row, first + 1 : length] = 1
        tensors = {name: tf.constant(rows) for name, rows in batch.items()}
        return mask_batch(tensors, config.masking, masking_vocabulary, RandomStream(seed, 0, 0))

    return build


_ROWS = ("input_ids", "input_mask", "segment_ids")


@pytest.fixture(scope="session")
def two_replicas() -> tf.distribute.Strategy:
    """Two replicas on the two logical CPU devices."""
    return mirrored()


@pytest.fixture(scope="session")
def numbered_examples() -> Callable[[int, int], list[list[int]]]:
    """`numbered_examples(first, count)`: `[CLS] high low ... [SEP]` of 4 to 9 tokens, no two alike."""

    def build(first: int, count: int) -> list[list[int]]:
        base = VOCAB_SIZE - FIRST_WORD
        return [
            [CLS, FIRST_WORD + number // base, FIRST_WORD + number % base, *[7] * (number % 6), SEP]
            for number in range(first, first + count)
        ]

    return build


@pytest.fixture(scope="session")
def write_data(numbered_examples) -> Callable[..., Path]:
    """`write_data(directory, train=(5, 3), held_out=(7,))`: a data set with shards of these many numbered examples."""

    def build(directory: Path, train: Sequence[int] = (5, 3, 4), held_out: Sequence[int] = (7,)) -> Path:
        directory.mkdir(parents=True)
        (directory / "vocab.txt").write_bytes(VOCABULARY)
        splits, first = {}, 0
        for name, counts in ((manifest.TRAIN_SPLIT, train), (manifest.HELD_OUT_SPLIT, held_out)):
            shards = []
            for index, count in enumerate(counts):
                path = directory / f"{name}-{index:05d}-of-{len(counts):05d}.tfrecord"
                with tf.io.TFRecordWriter(str(path)) as writer:
                    for ids in numbered_examples(first, count):
                        writer.write(records.ExampleSerializer()(ids, [len(ids)]))
                first, content = first + count, path.read_bytes()
                digest = hashlib.sha256(content).hexdigest()
                shard = {"file": path.name, "num_examples": count, "num_bytes": len(content), "sha256": digest}
                shards.append(manifest.Shard(**shard))
            if shards:
                totals = {"num_documents": 1, "num_examples": sum(counts), "num_tokens": 0}
                splits[name] = manifest.Split(**totals, shards=tuple(shards))
        counts = np.bincount([i for ids in numbered_examples(0, sum(train)) for i in ids], minlength=VOCAB_SIZE)
        described = manifest.Manifest(
            schema_version=manifest.SCHEMA_VERSION,
            max_seq_length=10,
            vocab_size=VOCAB_SIZE,
            vocab_sha256=hashlib.sha256(VOCABULARY).hexdigest(),
            inputs=(),
            counts=manifest.Counts(**{**dict.fromkeys(manifest.Counts.model_fields, 0), "num_documents_skipped": {}}),
            splits=splits,
            token_counts=tuple(counts.tolist()),
        )
        (directory / manifest.MANIFEST_FILE).write_text(described.to_json(), encoding="utf-8")
        return directory

    return build


@pytest.fixture(scope="session")
def tiny_pretrained(tiny_config, tmp_path_factory) -> str:
    """A run of the tiny configuration, with 20 positions and a checkpoint of step 3: its directory."""
    config = tiny_config(encoder={"max_position_embeddings": 20})
    run = RunDirectory(tmp_path_factory.mktemp("pretrained") / "run")
    run.create()
    run.write_config(config)
    run.write_tokenizer(StoredTokenizer(VOCABULARY))
    keras.utils.set_random_seed(5)
    objective = compile_task(build_objective(config))
    Checkpoints(objective, run, chief=True, keep=1).save(3)
    return run.path
