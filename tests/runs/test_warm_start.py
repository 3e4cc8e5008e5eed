"""Weights from elsewhere: runs of ours, their milestones, and the authors' checkpoints; strictly."""

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
from electra_tf.export.load import load_run
from electra_tf.runs.checkpoints import Checkpoints, steps_in
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.warm_start import initialize_from
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train.step import compile_task

TABLE = "electra/embeddings/position_embeddings"


def build(config, number: int):
    """An objective whose every variable has values of its own."""
    objective = build_objective(config)
    for index, variable in enumerate(objective.trainable_variables):
        variable.assign(tf.random.stateless_uniform(variable.shape, [number, index]))
    return objective


@pytest.fixture(scope="module")
def source(tiny_config):
    return compile_task(build(tiny_config(), 1))


@pytest.fixture
def target(tiny_config):
    """`target(**changes)`: an objective that is to get other weights."""
    return lambda **changes: build(tiny_config(**changes), 2)


def run_of(objective, directory, steps=(7,)) -> RunDirectory:
    """A run's directory with checkpoints of an objective, and a milestone of the last."""
    run = RunDirectory(directory)
    if objective.optimizer is None:
        compile_task(objective)
    window = tf.Module()
    window.sums = tf.Variable([1.0, 2.0])
    checkpoints = Checkpoints(objective, run, chief=True, keep=9, metrics=window)
    for step in steps:
        objective.optimizer.iterations.assign(step)
        checkpoints.save(step)
    checkpoints.save_milestone(steps[-1])
    Path(run.config_file).write_text(config_to_yaml(objective.config), encoding="utf-8")
    return run


def authors_checkpoint(directory: Path, tensors: dict) -> str:
    """The prefix of a checkpoint as TensorFlow 1 writes it."""
    prefix = str(directory / "model.ckpt")
    names, values = list(tensors), [tf.convert_to_tensor(value) for value in tensors.values()]
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)
    return prefix


def named_values(objective) -> dict[str, np.ndarray]:
    return {name: variable.numpy() for name, variable in tf1_variables(objective).items()}


def assert_same_weights(objective, expected: dict[str, np.ndarray]) -> None:
    found = named_values(objective)
    assert [name for name, value in found.items() if not np.array_equal(value, expected[name])] == []


def refusal(objective, path) -> str:
    before = named_values(objective)
    with pytest.raises(UserError) as caught:
        initialize_from(objective, path)
    assert_same_weights(objective, before)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def source_run(source, tmp_path_factory):
    return run_of(source, tmp_path_factory.mktemp("source") / "run", steps=(5, 7))


@pytest.mark.parametrize("place", ["", "checkpoints/step-5", "milestones/step-7", "checkpoints/step-7.index"])
def test_a_run_gives_its_weights_and_not_its_optimizer(source, source_run, target, place):
    objective = compile_task(target())
    lines = initialize_from(objective, os.path.join(source_run.path, place))
    assert_same_weights(objective, named_values(source))
    assert int(objective.optimizer.iterations) == 0
    prefix = os.path.join(source_run.path, (place or "checkpoints/step-7").removesuffix(".index"))
    count = len(objective.trainable_variables)
    assert lines[0].startswith(f"weights from {prefix}, of a run of this program: {count} variables; the optimizer")
    assert len(lines) == 1


def test_of_a_run_the_newest_whole_checkpoint_is_taken_and_a_named_damaged_one_refused(
    source, target, tmp_path, caplog
):
    run = run_of(source, tmp_path, steps=(7, 9))
    os.remove(f"{run.checkpoints}/step-9.data-00000-of-00001")
    objective = target()
    assert "checkpoints/step-7," in initialize_from(objective, run.path)[0]
    assert "step-9 is damaged: " in caplog.text
    assert "step-9 is no readable TensorFlow checkpoint: " in refusal(objective, f"{run.checkpoints}/step-9")


def test_every_replica_gets_the_weights(source, source_run, target, two_replicas):
    with two_replicas.scope():
        objective = target()
    initialize_from(objective, source_run.path)
    copies = two_replicas.experimental_local_results(objective.encoder.embeddings.word_embeddings)
    expected = named_values(source)["electra/embeddings/word_embeddings"]
    assert [np.array_equal(copy.numpy(), expected) for copy in copies] == [True, True]


def test_tied_weights_serve_an_untied_generator_and_the_other_way_round(source, source_run, target, tmp_path):
    untied = target(objective={"tying": "none"})
    initialize_from(untied, source_run.path)
    found, word_table = named_values(untied), "embeddings/word_embeddings"
    assert np.array_equal(found[f"electra/{word_table}"], found[f"generator/{word_table}"])
    assert np.array_equal(found[f"electra/{word_table}"], named_values(source)[f"electra/{word_table}"])
    found[f"generator/{word_table}"] += 1.0
    untied.generator.encoder.embeddings.word_embeddings.assign(found[f"generator/{word_table}"])
    tied = target()
    lines = initialize_from(tied, run_of(untied, tmp_path).path)
    assert_same_weights(tied, found)
    assert lines[1].startswith("ignored: 5 variables, generator/encoder/embeddings/")


def test_the_authors_checkpoint_gives_both_networks(source, target, tmp_path):
    objective, tensors = target(), named_values(source)
    slots = {f"{name}/{slot}": value for name, value in tensors.items() for slot in ("adam_m", "adam_v")}
    extra = {"global_step": np.int64(8), "task_head/kernel": np.zeros([2, 3], np.float32)}
    authors_checkpoint(tmp_path, tensors | slots | extra)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt"\n')
    lines = initialize_from(objective, tmp_path)  # the directory, by TensorFlow's file `checkpoint`
    assert_same_weights(objective, tensors)
    assert f"of the authors' code: {len(tensors)} variables; " in lines[0]
    assert f" {2 * len(tensors) + 1} entries of its state " in lines[0]
    assert lines[1:] == ["ignored: 1 variables, task_head/kernel"]


def test_missing_variables_are_named_with_what_to_do(source, target, tmp_path):
    objective, tensors = target(), named_values(source)
    discriminator = {name: value for name, value in tensors.items() if not name.startswith("generator")}
    message = refusal(objective, authors_checkpoint(tmp_path, discriminator))
    assert "holds no variable generator/embeddings_project/kernel, generator/embeddings_project/bias, " in message
    assert "and 17 more; a discriminator alone cannot go on with ELECTRA's training" in message
    del tensors["electra/encoder/layer_0/output/LayerNorm/beta"]
    message = refusal(objective, authors_checkpoint(tmp_path, tensors))
    assert "holds no variable electra/encoder/layer_0/output/LayerNorm/beta; is it of another objective" in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": {"num_layers": 2}}, "layer_1/attention_self/query/kernel"),
        ({"encoder": {"vocab_size": 48}}, "word_embeddings has shape [47, 12], the model's is [48, 12]: the vocabular"),
        (
            {"encoder": {"max_position_embeddings": 17}},
            "position_embeddings has shape [13, 12], the model's is [17, 12]: too few positions; set encoder.max_",
        ),
    ],
)
def test_a_run_of_other_sizes_is_refused_naming_what_differs(source_run, target, changes, message):
    assert message in refusal(target(**changes), source_run.path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": {"num_heads": 4}}, ": num_heads of its encoder is 2, encoder.num_heads is 4; set it to 2"),
        (
            {"objective": {"generator": {"num_heads": 1}}},
            ": num_heads of its generator is 3, objective.generator.num_heads is 1; set it to 3",
        ),
        ({"encoder": {"layer_norm_epsilon": 1e-6}}, ": layer_norm_epsilon of its encoder is 1e-12, encoder.layer_norm"),
    ],
)
def test_a_run_that_computes_otherwise_is_refused(source_run, target, changes, message):
    assert message in refusal(target(**changes), source_run.path)


@pytest.mark.parametrize("kind", ["ours", "authors"])
def test_the_first_rows_of_a_longer_position_table_are_taken(source, source_run, target, tmp_path, kind):
    objective = target(encoder={"max_position_embeddings": 11})
    path = source_run.path if kind == "ours" else authors_checkpoint(tmp_path, named_values(source))
    lines = initialize_from(objective, path)
    expected = named_values(source)
    assert_same_weights(objective, {**expected, TABLE: expected[TABLE][:11]})
    assert lines[1].endswith("embeddings/position_embeddings: the first 11 of 13 positions")


def test_the_vocabulary_beside_an_authors_checkpoint_is_compared(source, target, tmp_path):
    prefix = authors_checkpoint(tmp_path, named_values(source))
    (tmp_path / "vocab.txt").write_bytes(b"a\nb\n")
    (tmp_path / "same.txt").write_bytes(b"a\r\nb")
    (tmp_path / "other.txt").write_bytes(b"a\nc\n")
    initialize_from(target(), prefix, vocab_file=str(tmp_path / "same.txt"))
    with pytest.raises(UserError, match="model.ckpt has another vocabulary than the data"):
        initialize_from(target(), prefix, vocab_file=str(tmp_path / "other.txt"))


@pytest.mark.parametrize("place", ["", "best/step-7"])
def test_a_fine_tuned_seed_is_refused_naming_what_it_came_from(source, target, tmp_path, place):
    run = run_of(source, tmp_path)
    shutil.copytree(run.checkpoints, run.best)
    Path(run.config_file).write_text("task: {kind: classification}\ninit_from: runs/small\n")
    message = refusal(target(), tmp_path / place)
    assert message.endswith(
        " is a fine-tuned model, without pre-training's heads; give what it was fine-tuned from, runs/small"
    )


def test_what_is_no_checkpoint_is_said_so(source, target, tmp_path):
    objective = target()
    for name in ("nothing", "nothing/at/all"):
        assert "there is neither a run nor a checkpoint; expected" in refusal(objective, tmp_path / name)
    assert "it holds neither a run (config.yaml) nor TensorFlow's file `checkpoint`" in refusal(objective, tmp_path)
    prefix = authors_checkpoint(tmp_path, named_values(source))
    Path(f"{prefix}.index").write_bytes(Path(f"{prefix}.index").read_bytes()[:100])
    assert "is no readable TensorFlow checkpoint: " in refusal(objective, prefix)
    (tmp_path / "config.yaml").write_text("train: {}\n")
    assert "is a run without a checkpoint yet" in refusal(objective, tmp_path)


def test_a_run_starts_from_another_and_remembers_it(whole, train_toy, tensors, tmp_path):
    train_toy(tmp_path, init_from=whole[0], stop_at_step=2)
    started, source = (tensors(path) for path in (tmp_path / "checkpoints/step-0", f"{whole[0]}/checkpoints/step-8"))
    weights = [name for name in source if name.startswith("task/")]
    assert len(weights) == 4 and all(np.array_equal(started[name], source[name]) for name in weights)
    assert json.loads((tmp_path / "warm_start.json").read_text())["init_from"] == whole[0]
    with pytest.raises(UserError, match=rf"--init_from=elsewhere: the run in .* was started from {whole[0]}"):
        train_toy(tmp_path, init_from="elsewhere")
    train_toy(tmp_path, init_from=whole[0])  # the same source may be named again
    assert steps_in(f"{tmp_path}/checkpoints")[-1] == 8


def test_a_run_killed_before_its_first_checkpoint_starts_from_its_source_again(train_toy, whole, tmp_path):
    (tmp_path / "config.yaml").write_text(Path(whole[0], "config.yaml").read_text())
    (tmp_path / "warm_start.json").write_text(json.dumps({"init_from": whole[0], "report": []}))
    train_toy(tmp_path, stop_at_step=1)
    assert steps_in(f"{tmp_path}/checkpoints") == [0, 1]


def test_weights_are_not_put_into_a_run_that_has_begun(copied, whole, train_toy):
    with pytest.raises(UserError, match="was started without --init_from; leave the flag out to continue it"):
        train_toy(copied, init_from=whole[0])


def test_a_run_is_loaded_at_the_step_that_is_asked_for(source, source_run):
    expected = named_values(source)["electra/embeddings/word_embeddings"]
    for step in (None, 5, 7):
        loaded = load_run(source_run.path, step)
        assert np.array_equal(loaded.encoder.embeddings.word_embeddings, expected)
    with pytest.raises(UserError, match=r"has no checkpoint of step 6; it has those of 5, 7$"):
        load_run(source_run.path, 6)
    with pytest.raises(UserError, match="holds no config.yaml; give the directory of a run"):
        load_run(os.path.dirname(source_run.path))
