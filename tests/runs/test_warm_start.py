"""Weights from elsewhere: the authors' checkpoints and runs of ours, strictly."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.convert.names import tf1_variables
from electra_tf.runs.checkpoint import Checkpoints
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.warm_start import initialize_from
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import parse_config
from electra_tf.train.step import compile_task

UNTIED = {"objective": {"tying": "none"}}
GOLDEN = os.environ.get("ELECTRA_TF_GOLDEN_DIR")


@pytest.fixture(scope="module")
def build(tiny_config):
    """`build(number, **changes)`: a compiled objective whose every variable has values of its own."""

    def filled(number: int, **changes):
        objective = compile_task(build_objective(tiny_config(**changes)))
        for index, variable in enumerate(objective.trainable_variables):
            variable.assign(tf.random.stateless_uniform(variable.shape, [number, index]))
        return objective

    return filled


@pytest.fixture
def run_of(tmp_path):
    """`run_of(objective, steps)`: a run's directory with checkpoints of the objective, and a milestone of the last."""

    def save(objective, steps=(7,)) -> RunDirectory:
        run = RunDirectory(tmp_path / "source")
        checkpoints = Checkpoints(objective, run, chief=True, keep=9, window=tf.Variable([1.0, 2.0]))
        for step in steps:
            objective.optimizer.iterations.assign(step)
            checkpoints.save(step)
        checkpoints.write_milestone(steps[-1])
        run.config_file.write_text(config_to_yaml(objective.config), encoding="utf-8")
        return run

    return save


@pytest.fixture
def authors_checkpoint(tmp_path):
    """`authors_checkpoint(tensors)`: the prefix of a checkpoint as TensorFlow 1 writes it."""

    def write(tensors: dict[str, tf.Tensor]) -> str:
        prefix = str(tmp_path / "model.ckpt")
        names, values = list(tensors), [tf.convert_to_tensor(value) for value in tensors.values()]
        tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)
        return prefix

    return write


def named_values(objective) -> dict[str, np.ndarray]:
    return {name: variable.numpy() for name, variable in tf1_variables(objective).items()}


def assert_same_weights(objective, expected: dict[str, np.ndarray]) -> None:
    found = named_values(objective)
    assert set(found) <= set(expected)
    for name, value in found.items():
        assert np.array_equal(value, expected[name]), name


def refusal(objective, path) -> str:
    before = named_values(objective)
    with pytest.raises(UserError) as caught:
        initialize_from(objective, path)
    assert_same_weights(objective, before)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    "changes", [{}, UNTIED, {"train": {"precision": "bfloat16"}}], ids=["tied", "untied", "bfloat16"]
)
@pytest.mark.parametrize(
    "place",
    ["", "checkpoints/step-7", "milestones/step-7", "checkpoints/step-7.index"],
    ids=["run", "checkpoint", "milestone", "file"],
)
def test_a_run_gives_its_weights_and_not_its_step(build, run_of, changes, place):
    source = build(1, **changes)
    source.optimizer.variables[-1].assign(tf.ones_like(source.optimizer.variables[-1]))
    run, objective = run_of(source), build(2, **changes)
    lines = initialize_from(objective, run.path / place)
    assert_same_weights(objective, named_values(source))
    assert int(objective.optimizer.iterations.numpy()) == 0
    assert tf.reduce_all(objective.optimizer.variables[-1] == 0.0)
    assert len(lines) == 1
    folder = "milestones" if place.startswith("m") else "checkpoints"
    count = len(objective.trainable_variables)
    assert lines[0].startswith(
        f"weights from {run.path}/{folder}/step-7, of a run of this program: {count} variables; "
    )


def test_an_objective_without_an_optimizer_takes_weights_too(build, run_of, tiny_config):
    source = build(1)
    objective = build_objective(tiny_config())
    initialize_from(objective, run_of(source).path)
    assert_same_weights(objective, named_values(source))


def test_every_replica_gets_the_weights(build, run_of, two_replicas):
    source = build(1)
    with two_replicas.scope():
        objective = build(2)
    initialize_from(objective, run_of(source).path)
    expected = named_values(source)["electra/embeddings/word_embeddings"]
    copies = two_replicas.experimental_local_results(objective.encoder.embeddings.word_embeddings)
    assert [np.array_equal(copy.numpy(), expected) for copy in copies] == [True, True]


def test_of_a_run_the_newest_whole_checkpoint_is_taken(build, run_of, caplog):
    source = build(1)
    run = run_of(source, steps=(7, 9))
    (run.checkpoints / "step-9.index").unlink()
    lines = initialize_from(build(2), run.path)
    assert "checkpoints/step-7," in lines[0]
    assert "step-9.index is missing; step-7 is used instead" in caplog.text


def test_a_damaged_checkpoint_that_was_named_is_refused(build, run_of):
    run = run_of(build(1), steps=(7, 9))
    (run.checkpoints / "step-9.index").unlink()
    assert "step-9 is no whole checkpoint: step-9.index is missing" in refusal(build(2), run.checkpoints / "step-9")


def test_a_checkpoint_without_its_run_and_its_description_serves_too(build, run_of, tmp_path):
    source = build(1)
    run = run_of(source)
    for file in run.checkpoints.glob("step-7.[di]*"):
        shutil.copy(file, tmp_path / file.name.replace("step-7", "mine"))
    objective = build(2)
    initialize_from(objective, tmp_path / "mine")
    assert_same_weights(objective, named_values(source))


def test_tied_weights_serve_an_untied_generator(build, run_of):
    source, objective = build(1), build(2, **UNTIED)
    initialize_from(objective, run_of(source).path)
    found, expected = named_values(objective), named_values(source)
    for scope in ("electra", "generator"):
        assert np.array_equal(
            found[f"{scope}/embeddings/word_embeddings"], expected["electra/embeddings/word_embeddings"]
        )


def test_of_untied_weights_a_tied_generator_takes_the_discriminators(build, run_of):
    source, objective = build(1, **UNTIED), build(2)
    lines = initialize_from(objective, run_of(source).path)
    assert_same_weights(objective, named_values(source))
    assert lines[1].startswith("left aside: 5 variables, generator/encoder/embeddings/")


def test_the_authors_checkpoint_gives_both_networks(build, authors_checkpoint):
    source, objective = build(1), build(2)
    tensors = named_values(source)
    slots = {f"{name}/{slot}": value for name, value in tensors.items() for slot in ("adam_m", "adam_v")}
    extra = {"global_step": np.int64(8), "task_head/kernel": np.zeros([2, 3], np.float32)}
    lines = initialize_from(objective, authors_checkpoint(tensors | slots | extra))
    assert_same_weights(objective, tensors)
    assert int(objective.optimizer.iterations.numpy()) == 0
    assert f"of the authors' code: {len(tensors)} variables; " in lines[0]
    assert f" {2 * len(tensors) + 1} entries of its state " in lines[0]
    assert lines[1:] == ["left aside: 1 variables, task_head/kernel"]


def test_a_folder_with_tensorflow_s_checkpoint_file_serves(build, authors_checkpoint, tmp_path):
    source, objective = build(1), build(2)
    authors_checkpoint(named_values(source))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt"\n')
    initialize_from(objective, tmp_path)
    assert_same_weights(objective, named_values(source))


def test_a_discriminator_alone_is_refused_with_what_to_do(build, authors_checkpoint):
    tensors = {name: value for name, value in named_values(build(1)).items() if not name.startswith("generator")}
    message = refusal(build(2), authors_checkpoint(tensors))
    assert "holds no variable generator/embeddings_project/kernel, generator/embeddings_project/bias, " in message
    assert "and 17 more; a discriminator alone cannot go on with ELECTRA's training" in message


def test_a_single_missing_variable_is_named(build, authors_checkpoint):
    tensors = named_values(build(1))
    del tensors["electra/encoder/layer_0/output/LayerNorm/beta"]
    message = refusal(build(2), authors_checkpoint(tensors))
    assert "holds no variable electra/encoder/layer_0/output/LayerNorm/beta; is it of another objective" in message


def test_a_run_with_fewer_layers_is_refused_naming_what_it_lacks(build, run_of):
    message = refusal(build(2, encoder={"num_layers": 2}), run_of(build(1)).path)
    assert "layer_1/attention_self/query/kernel" in message
    assert message.endswith("is it of another objective or of fewer layers?")


def test_a_run_of_another_objective_is_refused(build, run_of, tiny_config):
    masked_lm = {**tiny_config().model_dump(mode="json"), "objective": {"name": "bert_mlm"}}
    objective = compile_task(build_objective(parse_config(masked_lm, source="masked_lm")))
    assert "is it of another objective" in refusal(objective, run_of(build(1)).path)


@pytest.mark.parametrize("kind", ["ours", "authors"])
def test_the_first_rows_of_a_longer_position_table_are_taken(build, run_of, authors_checkpoint, kind):
    source, objective = build(1, encoder={"max_position_embeddings": 17}), build(2)
    path = run_of(source).path if kind == "ours" else authors_checkpoint(named_values(source))
    lines = initialize_from(objective, path)
    expected = named_values(source)
    expected["electra/embeddings/position_embeddings"] = expected["electra/embeddings/position_embeddings"][:13]
    assert_same_weights(objective, expected)
    assert len(lines) == 2
    assert lines[1].endswith("embeddings/position_embeddings: the first 13 of 17 positions")


@pytest.mark.parametrize("kind", ["ours", "authors"])
def test_a_shorter_position_table_is_refused(build, run_of, authors_checkpoint, kind):
    source = build(1, encoder={"max_position_embeddings": 11})
    path = run_of(source).path if kind == "ours" else authors_checkpoint(named_values(source))
    message = refusal(build(2), path)
    assert "position_embeddings has shape [11, 12], the model's is [13, 12]: too few positions; " in message
    assert message.endswith("set encoder.max_position_embeddings to 11 or less")


def test_a_vocabulary_of_another_size_is_refused_naming_every_shape(build, run_of):
    message = refusal(build(2), run_of(build(1, encoder={"vocab_size": 46})).path)
    assert "word_embeddings has shape [46, 12], the model's is [47, 12]: the vocabularies differ in size; " in message
    assert "generator/head/output_bias has shape [46], the model's is [47]" in message


@pytest.mark.parametrize("name", ["nothing", "nothing/at/all"])
def test_what_is_not_there_is_said_so(build, tmp_path, name):
    assert "there is neither a run nor a checkpoint; expected" in refusal(build(2), tmp_path / name)


def test_a_folder_without_a_checkpoint_is_said_so(build, tmp_path):
    assert "holds neither a run (config.yaml) nor TensorFlow's file `checkpoint`" in refusal(build(2), tmp_path)


def test_a_run_without_a_checkpoint_is_said_so(build, tmp_path):
    (tmp_path / "config.yaml").write_text("train: {}\n")
    assert "is a run without a checkpoint yet" in refusal(build(2), tmp_path)


@pytest.mark.parametrize("length", [0, 100])
def test_a_checkpoint_of_others_that_was_cut_short_is_said_so(build, authors_checkpoint, length):
    prefix = authors_checkpoint(named_values(build(1)))
    index = Path(f"{prefix}.index")
    index.write_bytes(index.read_bytes()[:length])
    assert "is no readable TensorFlow checkpoint" in refusal(build(2), prefix)


@pytest.mark.skipif(not GOLDEN, reason="ELECTRA_TF_GOLDEN_DIR is not set")
@pytest.mark.parametrize("name", ["small_like", "base_like", "bert_like"])
def test_real_checkpoints_of_the_authors_code_load_to_the_last_variable(name):
    from benchmarks.parity.model import config_of

    directory = Path(GOLDEN) / name
    settings = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    objective = compile_task(build_objective(config_of(settings)))
    lines = initialize_from(objective, directory / "final.ckpt")
    assert len(lines) == 1
    reader = tf.train.load_checkpoint(str(directory / "final.ckpt"))
    for variable_name, variable in tf1_variables(objective).items():
        assert np.array_equal(variable.numpy(), reader.get_tensor(variable_name)), variable_name
