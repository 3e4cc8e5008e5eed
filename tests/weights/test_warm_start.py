"""Initial weights from other models: runs, milestones and TensorFlow 1 checkpoints, all of them or none."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.runs.checkpoints import Checkpoints
from electra_tf.runs.directory import RunDirectory
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train.step import compile_task
from electra_tf.weights.names import named_variables
from electra_tf.weights.run import load_objective
from electra_tf.weights.warm_start import initialize_from

VOCABULARY = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n" + b"".join(b"w%d\n" % index for index in range(5, 47))
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
    run.adopt_tokenizer(VOCABULARY, True, False, is_started=False)
    return run


def authors_checkpoint(directory: Path, tensors: dict) -> str:
    """The prefix of a checkpoint as TensorFlow 1 writes it."""
    prefix = str(directory / "model.ckpt")
    names, values = list(tensors), [tf.convert_to_tensor(value) for value in tensors.values()]
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)
    return prefix


def named_values(objective) -> dict[str, np.ndarray]:
    return {name: variable.numpy() for name, variable in named_variables(objective).items()}


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
    step, count = (5 if "step-5" in place else 7), len(objective.trainable_variables)
    assert lines[0].startswith(f"weights from step {step} of {source_run.path}: {count} variables; the optimizer")
    assert len(lines) == 1


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
    assert lines[1].startswith("ignored: 5 variables, generator/embeddings/")


def test_the_authors_checkpoint_gives_both_networks(source, target, tmp_path):
    objective, tensors = target(), named_values(source)
    slots = {f"{name}/{slot}": value for name, value in tensors.items() for slot in ("adam_m", "adam_v")}
    extra = {"global_step": np.int64(8), "task_head/kernel": np.zeros([2, 3], np.float32)}
    authors_checkpoint(tmp_path, tensors | slots | extra)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt"\n')
    lines = initialize_from(objective, tmp_path)  # the directory, by TensorFlow's file `checkpoint`
    assert_same_weights(objective, tensors)
    assert f"model.ckpt: {len(tensors)} variables; " in lines[0]
    assert lines[1:] == [f"{tmp_path}/model.ckpt: not read: task_head/kernel"]


def test_missing_variables_are_named_with_what_to_do(source, target, tmp_path):
    objective, tensors = target(), named_values(source)
    discriminator = {name: value for name, value in tensors.items() if not name.startswith("generator")}
    message = refusal(objective, authors_checkpoint(tmp_path, discriminator))
    assert "holds no variable generator_predictions/output_bias, " in message
    assert "and 17 more; give both networks" in message and "--fresh_generator" in message
    del tensors["electra/encoder/layer_0/output/LayerNorm/beta"]
    message = refusal(objective, authors_checkpoint(tmp_path, tensors))
    assert "there is no electra/encoder/layer_0/output/LayerNorm/beta" in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": {"num_layers": 2}}, "holds no variable electra/encoder/layer_1/intermediate/dense/kernel"),
        ({"encoder": {"vocab_size": 48}}, "word_embeddings has shape [47, 12], the model's is [48, 12]: the vocabular"),
        (
            {"encoder": {"max_position_embeddings": 17}},
            "position_embeddings has shape [13, 12], the model's is [17, 12]: set encoder.max_",
        ),
    ],
)
def test_a_run_of_other_sizes_is_refused_naming_what_differs(source_run, target, changes, message):
    assert message in refusal(target(**changes), source_run.path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": {"num_heads": 4}}, ": num_heads of its encoder is 2, encoder.num_heads is 4; set it to 2"),
        ({"objective": {"generator": {"num_heads": 1}}}, "is 3, objective.generator.num_heads is 1; set it to 3"),
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
    initialize_from(target(), prefix, vocabulary_file=b"a\r\nb")
    with pytest.raises(UserError, match="model.ckpt has another vocabulary than the data"):
        initialize_from(target(), prefix, vocabulary_file=b"a\nc\n")


@pytest.mark.parametrize("place", ["", "best/step-7"])
def test_a_fine_tuned_seed_is_refused_naming_what_it_came_from(source, target, tmp_path, place):
    run = run_of(source, tmp_path)
    shutil.copytree(run.checkpoints, run.best)
    Path(run.config_file).write_text("task: {kind: classification}\ninit_from: runs/small\n")
    assert refusal(target(), tmp_path / place).endswith(
        "is a fine-tuned model, without pre-training's heads; give runs/small"
    )


@pytest.mark.parametrize("place", ["", "checkpoints/step-5", "milestones/step-7"])
def test_a_run_is_loaded_from_each_of_its_checkpoints(source, source_run, place):
    loaded = load_objective(os.path.join(source_run.path, place))
    expected = named_values(source)["electra/embeddings/word_embeddings"]
    assert np.array_equal(loaded.encoder.embeddings.word_embeddings, expected)


def test_a_directory_without_a_run_is_refused(source_run):
    with pytest.raises(UserError, match="holds no config.yaml; give the directory of a run"):
        load_objective(os.path.dirname(source_run.path))


def test_weights_of_differences_are_kept_and_go_to_other_objectives_as_sums(target, tmp_path):
    disentangled = target(objective={"tying": "gradient_disentangled"})
    run = run_of(disentangled, tmp_path)
    same, plain = (target(objective={"tying": tying}) for tying in ("gradient_disentangled", "none"))
    for variable in same.trainable_variables:
        variable.assign(tf.zeros_like(variable))
    initialize_from(same, run.path)
    assert_same_weights(same, named_values(disentangled))
    initialize_from(plain, run.path)
    table = disentangled.encoder.embeddings.word_embeddings.numpy()
    assert np.array_equal(plain.encoder.embeddings.word_embeddings.numpy(), table)


@pytest.mark.parametrize(
    "name", ["contrastive", "electric", "hard_mlm", "replace_mlm", "all_tokens_mlm", "adversarial"]
)
def test_an_objective_of_ours_starts_from_its_own_run(target, tmp_path, name):
    started, source = target(objective={"name": name}), target(objective={"name": name})
    for variable in started.trainable_variables:
        variable.assign(tf.zeros_like(variable))
    assert len(initialize_from(started, run_of(source, tmp_path).path)) == 1
    assert_same_weights(started, named_values(source))


def test_electra_starts_from_a_run_with_another_head(target, tmp_path):
    source, started = target(objective={"name": "contrastive"}), target()
    lines = initialize_from(started, run_of(source, tmp_path).path)
    assert_same_weights(started, named_values(source))
    assert lines[1:] == ["ignored: 2 variables, corrupted_input_head/bias, corrupted_input_head/kernel"]


@pytest.mark.parametrize(
    ("text", "name"), [({"lower_case": False}, "lower_case"), ({"strip_accents": True}, "strip_accents")]
)
def test_text_that_was_prepared_otherwise_is_refused(source_run, target, text, name):
    with pytest.raises(UserError, match=f"{source_run.path} was trained with {name} "):
        initialize_from(target(), source_run.path, text=text)
