"""Parity of fine-tuning with the authors' code: which differences count, and the exit status."""

import json
import lzma
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.parity import __main__ as parity
from benchmarks.parity import finetuning, training
from benchmarks.parity.golden import encoder_settings, load_arrays
from benchmarks.parity.outputs import beam_differences
from benchmarks.parity.text import _as_they_read, _has_one_reading
from electra_tf.config.networks import EncoderConfig
from electra_tf.tasks.finetune.config import resolve
from electra_tf.tasks.finetune.question_answering import QuestionAnsweringTask
from electra_tf.train.step import summed_gradients
from electra_tf.weights.names import finetuned_variables

NUMBERS = {
    "vocab_size": 9,
    "embedding_size": 6,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 5,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_seq_length": 14,
    "batch_size": 3,
    "learning_rate": 1e-2,
    "weight_decay_rate": 0.01,
    "layerwise_lr_decay": 0.5,
    "warmup_proportion": 0.1,
    "num_train_steps": 7,
    "clip_global_norm": 1.0,
    "max_query_length": 5,
    "doc_stride": 4,
    "answerable_weight": 0.5,
    "beam_size": 4,
}
OPTIMIZER = {
    "beta_1": 0.9,
    "beta_2": 0.999,
    "epsilon": 1e-6,
    "exclude_from_weight_decay_regexes": ["LayerNorm", "layer_norm", "bias"],
}


@pytest.fixture(scope="module")
def golden_set(tmp_path_factory) -> Path:
    """A made-up set of question answering with the numbers of our own model."""
    directory = tmp_path_factory.mktemp("golden") / "made_up"
    directory.mkdir()
    rng = np.random.default_rng(3)
    variables = {name: list(v.shape) for name, v in made_up_variables().items()}
    trainable = {
        name: {"weight_decay": not name.endswith(("bias", "gamma", "beta")), "lr_key": "all"} for name in variables
    }
    settings = {
        "task": "squad",
        **NUMBERS,
        "optimizer": OPTIMIZER,
        "trainable_variables": trainable,
        "lr_keys": ["all"],
    }
    (directory / "config.json").write_text(json.dumps(settings))
    weights = [tf.constant(rng.normal(0.0, 0.3, shape), tf.float32) for shape in variables.values()]
    tf.raw_ops.SaveV2(
        prefix=str(directory / "init.ckpt"),
        tensor_names=[*variables],
        shape_and_slices=[""] * len(variables),
        tensors=weights,
    )
    lengths = np.array([[14], [9], [0]])
    mask = np.int32(np.arange(14) < lengths)[np.newaxis]
    arrays = {"input_ids": mask * rng.integers(5, 9, [1, 3, 14], np.int32), "input_mask": mask}
    arrays |= {"segment_ids": mask * np.int32(np.arange(14) > 4), "task_id": np.int32([[0, 0, 1]])}
    arrays |= {"squad_start_positions": np.int32([[6, 0, 0]]), "squad_end_positions": np.int32([[8, 0, 0]])}
    np.savez(directory / "batches.npz", **arrays, squad_is_impossible=np.int32([[0, 1, 0]]))
    write_vocabulary_and_features(directory)
    write_numbers(directory)
    return directory


def made_up_variables() -> dict[str, tf.Variable]:
    task = {"kind": "question_answering", "version_2": True, "head_size": 7}
    sizes = {"num_epochs": 1, "max_seq_length": 14, "num_rows": 1}
    config = resolve(
        {}, "", name="squad", task=task, encoder=EncoderConfig(**encoder_settings(NUMBERS)), init_from=None, **sizes
    )
    built = QuestionAnsweringTask(config)
    built.create_variables()
    return finetuned_variables(built, "squad")


def write_vocabulary_and_features(directory: Path) -> None:
    """Writes a vocabulary, and features of one question with one window in each split."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "sings", "anna", "loud"]
    (directory.parent / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (directory.parent / "inputs").mkdir()
    answer = {"text": "Anna", "answer_start": 0}
    question = {"id": "q", "question": "who sings", "answers": [answer], "is_impossible": False}
    article = {"title": "t", "paragraphs": [{"context": "Anna sings loud", "qas": [question]}]}
    line = {"qas_id": "q", "eid": 0, "input_ids": [2, 5, 6, 3, 7, 6, 8, 3], "segment_ids": [0] * 4 + [1] * 4}
    line |= {"token_to_orig_map": {"4": 0, "5": 1, "6": 2}, "not_max_context": []}
    targets = {"start_position": 4, "end_position": 4, "is_impossible": False}
    lines = [{"split": "train", **line, **targets}, {"split": "dev", **line}]
    with lzma.open(directory / "features.jsonl.xz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    for split in ("train", "dev"):
        (directory.parent / "inputs" / f"squad_{split}.json").write_text(json.dumps({"data": [article]}))


def write_numbers(directory: Path) -> None:
    golden = finetuning.GoldenSet(directory)
    task = golden.build()
    variables, batch = golden.load(task, golden.weights), golden.batch(0)
    forward = finetuning.forward_tensors(task, batch)
    rows = {name: np.concatenate([values, values[:1]]) for name, values in forward.items()}  # the third row is padding
    np.savez(directory / "forward.npz", **rows, total_loss=forward["loss"].sum())
    _, gradients = summed_gradients(task, batch, tf.constant(0, tf.int64))
    by_variable = {id(v): gradient.numpy() for v, gradient in zip(task.trained_variables, gradients, strict=True)}
    dense, unmerged = training.norms_of(task, batch, gradients)
    named = {name: by_variable[id(v)] for name, v in variables.items()}
    np.savez(directory / "gradients.npz", **named, clip_norm_dense=dense, clip_norm_as_computed=unmerged)


def changed_copy(directory: Path, target: Path, file: str, name: str, factor: float) -> Path:
    shutil.copytree(directory.parent, target, copy_function=shutil.copyfile)
    path = target / directory.name / file
    arrays = load_arrays(path)
    np.savez(path, **{**arrays, name: arrays[name] * np.float32(factor)})
    return target


def failed(output: str) -> list[str]:
    return [line.split("  ")[0] for line in output.splitlines() if "  FAIL  " in line]


@pytest.mark.slow
def test_a_set_passes_alone_and_in_its_directory(golden_set, capsys):
    assert parity.main([str(golden_set)]) == 0
    assert parity.main([str(golden_set.parent)]) == 0
    of_one, of_directory = (part for part in capsys.readouterr().out.split("what ")[1:])
    assert of_one == of_directory and "6 of 6 hold" in of_one


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "name", "factor", "row"),
    [
        ("forward.npz", "total_loss", 1.0001, "made_up: forward"),
        ("forward.npz", "start_logits", np.nan, "made_up: forward"),
        ("gradients.npz", "task_specific/squad/dense_3/kernel", 1.0001, "made_up: gradients"),
        ("gradients.npz", "clip_norm_dense", 1.0001, "made_up: gradient norms"),
    ],
)
def test_a_changed_number_fails_in_its_row(golden_set, tmp_path, capsys, file, name, factor, row):
    directory = changed_copy(golden_set, tmp_path / "changed", file, name, factor)
    assert parity.main([str(directory / "made_up")]) == 1
    assert failed(capsys.readouterr().out) == [row]


# Two starts, the second of which is masked. The ends of the first, 7 and 6, have clearly different probabilities.
BEAM = {
    "start_top_log_probs": np.float32([[-0.5, -1000.0]]),
    "start_top_index": np.int32([[4, 0]]),
    "end_top_log_probs": np.float32([[[-0.1, -2.0], [-0.3, -1.4]]]),
    "end_top_index": np.int32([[[7, 6], [1, 2]]]),
}


def beam(**changes) -> dict[str, np.ndarray]:
    return {**BEAM, **{name: np.asarray(values, BEAM[name].dtype) for name, values in changes.items()}}


TIE = {"end_top_log_probs": [[[-0.70000, -0.70001], [-0.3, -1.4]]]}


@pytest.mark.parametrize(
    ("ours", "expected", "differing_ends"),
    [
        ({"end_top_index": [[[8, 6], [1, 2]]]}, {}, 1.0),
        ({"start_top_index": [[4, 3]], "end_top_index": [[[7, 6], [8, 9]]]}, {}, 0.0),  # masked on both sides
        ({**TIE, "end_top_index": [[[6, 7], [1, 2]]]}, TIE, 0.0),  # equally probable
    ],
)
def test_beam_entries_are_compared_if_they_are_not_masked_and_not_tied(ours, expected, differing_ends):
    differences, masked, entries = beam_differences(beam(**ours), beam(**expected))
    assert entries == {"start_top_index": 0.0, "end_top_index": differing_ends}
    assert set(differences.values()) == {0.0} and masked == {}


def test_a_position_that_only_one_side_masks_is_a_difference():
    differences, *_ = beam_differences(beam(start_top_log_probs=[[-0.5, -3.0]]), BEAM)
    assert differences["start_top_log_probs"] == np.inf


@pytest.mark.parametrize(
    ("tags", "read"),
    [
        ("B-A I-A O S-B", "B-A I-A O B-B"),
        ("I-A I-B", "B-B I-B"),  # a span has the type of its last tag
        ("B-A E-A I-A", "B-A I-A I-A"),  # E does not end a span
        ("I-A B-A", "B-A B-A"),
        ("E-A S-A E-B", "B-A B-B I-B"),
    ],
)
def test_tags_are_read_by_the_authors_rule(tags, read):
    assert _as_they_read(tags.split()) == read.split()


@pytest.mark.parametrize(
    ("tags", "has_one_reading"),
    [("B-A I-A E-A O I-B", True), ("I-A I-B", False), ("E-A I-A", False), ("S-A E-A", False)],
)
def test_ambiguous_tags_are_recognized(tags, has_one_reading):
    assert _has_one_reading(tags.split()) == has_one_reading
