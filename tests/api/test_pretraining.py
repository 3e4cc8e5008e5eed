"""`build_vocab` and `build_dataset`; `pretrain`, `build_model` and `pretraining_batches`.

(tests/test_wheel.py: they do the same as the commands.)
"""

import logging
import signal
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import electra_tf
from electra_tf.api.pretraining import describe
from electra_tf.config.loader import config_to_yaml
from electra_tf.weights.names import generator_variables
from electra_tf.weights.source import load_trained
from tests.toy import EQUAL_SIZES

PROJECT = Path(__file__).resolve().parents[2]
STEPS = 4
FAST = {"name": "fast_electra", "generator": {"size_fraction": 0.375, "num_heads": 3, "intermediate_size": 14}}
FAST |= {"tying": "none", "masked_lm_loss_weight": 0.0}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory, write_data) -> dict[Path, float]:
    """A mixture."""
    root = tmp_path_factory.mktemp("data")
    return {write_data(root / "wiki"): 7, write_data(root / "books", train=[7, 4], held_out=[5]): 3}


@pytest.fixture(scope="module")
def config(tmp_path_factory, tiny_config) -> Path:
    """The tiny configuration of 4 steps, which reports and evaluates every second step."""
    train = {"num_steps": STEPS, "log_every_steps": 2, "save_every_steps": 3, "keep_checkpoints": 2}
    path = tmp_path_factory.mktemp("config") / "tiny.yaml"
    path.write_text(config_to_yaml(tiny_config(train=train, evaluation={"every_steps": 2})))
    return path


@pytest.fixture(scope="module")
def whole(config, data_dir, tmp_path_factory) -> electra_tf.PretrainingResult:
    return electra_tf.pretrain(config, data_dir, tmp_path_factory.mktemp("run") / "python")


def test_a_result_has_history_evaluation_and_model(whole):
    assert [report["step"] for report in whole.history] == [1, 2, 4]
    assert whole.history[-1]["loss"] < whole.history[0]["loss"] * 2
    assert {"masked_lm_loss", "wiki/masked_lm_loss", "books/replaced_token_auc"} < whole.evaluation.keys()
    assert repr(whole).endswith(f"python: step 4, {len(whole.evaluation)} held-out metrics>")
    assert whole.model().encode("w5").shape == (16,)


@pytest.mark.parametrize(("seed", "is_warned"), [(0, True), (5, False)])
def test_a_run_that_would_read_the_batches_of_its_source_again_is_warned_of(
    whole, config, data_dir, tmp_path, caplog, seed, is_warned
):
    caplog.set_level(logging.WARNING)
    settings = {"train.seed": seed}
    describe(config, data_dir, tmp_path / "run", settings=settings, init_from=whole.model_dir)
    assert ("for others give train.seed=1" in caplog.text) == is_warned


@pytest.mark.slow
def test_ctrl_c_ends_after_a_checkpoint_and_the_same_call_continues(
    whole, config, data_dir, tmp_path, caplog, monkeypatch
):
    def press(record: logging.LogRecord) -> None:
        if record.getMessage().startswith("step 1: took"):
            signal.raise_signal(signal.SIGINT)

    caplog.set_level(logging.INFO)
    handler, before = logging.Handler(), signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(handler, "emit", press)
    monkeypatch.setattr(logging.getLogger("electra_tf"), "handlers", [handler])
    with pytest.raises(KeyboardInterrupt):
        electra_tf.pretrain(config, data_dir, tmp_path / "run")
    assert signal.getsignal(signal.SIGINT) is before
    assert "checkpoint written; the same command continues the run" in caplog.text
    result = electra_tf.pretrain(config, data_dir, tmp_path / "run")
    assert [report["step"] for report in result.history] == [1, 2, 4]
    np.testing.assert_equal(result.evaluation, whole.evaluation)


@pytest.mark.slow
def test_fit_trains_as_a_run_does_and_takes_callbacks(whole, config, data_dir):
    assert electra_tf.build_model(config, settings={"train.num_steps": np.int64(3)}, seed=7).config.train.seed == 7
    model = electra_tf.build_model(config, data_dir)
    batches = electra_tf.pretraining_batches(data_dir, model.config)
    stop = keras.callbacks.EarlyStopping(monitor="loss", patience=1, min_delta=1e9)
    options = {"steps_per_epoch": 2, "epochs": 5, "validation_data": batches.take(2), "callbacks": [stop]}
    history = model.fit(batches, verbose=0, **options).history
    assert history["val_loss"][0] != history["val_loss"][1] > 1.0
    assert len(history["loss"]) == 2  # stopped after 4 steps
    trained = load_trained(whole.model_dir).build_task()
    tables = [each.encoder.embeddings.word_embeddings.numpy() for each in (model, trained)]
    np.testing.assert_array_equal(*tables)
    again = electra_tf.pretraining_batches(data_dir, config, first_step=3)
    skipped = next(iter(batches.skip(3)))
    assert all(np.array_equal(values, skipped[name]) for name, values in next(iter(again)).items())


def test_a_built_model_has_the_frozen_generator_that_its_objective_names(whole, config, data_dir):
    settings = {"objective": {**FAST, "auxiliary": whole.model_dir}}
    models = [electra_tf.build_model(config, data, settings=settings) for data in (data_dir, None)]
    expected = generator_variables(load_trained(whole.model_dir).build_task().generator)
    for model in models:
        for name, variable in generator_variables(model.generator).items():
            np.testing.assert_array_equal(variable, expected[name])


def test_a_training_model_is_not_saved_as_one_of_keras(config, tmp_path):
    with pytest.raises(electra_tf.UserError, match="save_weights"):
        electra_tf.build_model(config).save(tmp_path / "model.keras")


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective", [{"name": "electra"}, {"name": "two_stage", "tying": "none", "generator": EQUAL_SIZES}]
)
def test_the_weights_of_a_model_of_fit_are_saved_and_loaded(config, tmp_path, objective):
    first, second = (electra_tf.build_model(config, settings={"objective": objective}, seed=seed) for seed in (1, 2))
    first.save_weights(path := tmp_path / "of.weights.h5")
    second.load_weights(path)
    pairs = zip(first.weights, second.weights, strict=True)
    assert all(np.array_equal(ours, theirs) for ours, theirs in pairs)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> str:
    place = tmp_path_factory.mktemp("text") / "a.txt"
    lines = [f"The {number}th sentence of this text has more than fifty characters in it." for number in range(40)]
    place.write_text("\n\n".join(lines))
    return f"text:{place}"


@pytest.fixture(scope="module")
def vocab_file(source, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    report = electra_tf.build_vocab(source, path, vocab_size=60, lower_case=False)
    assert (report["vocab_size"], report["lower_case"]) == (60, False)
    return path


def test_a_build_leaves_the_devices_and_threads_of_the_program(source, vocab_file, tmp_path):
    before = tf.config.get_visible_devices(), tf.config.threading.get_intra_op_parallelism_threads()
    path, main = list(sys.path), sys.modules["__main__"]
    manifest = electra_tf.build_dataset([source], vocab_file, tmp_path / "data", max_seq_length=16, seed=3)
    assert (manifest["counts"]["num_documents"], manifest["seed"]) == (40, 3)
    assert (tf.config.get_visible_devices(), tf.config.threading.get_intra_op_parallelism_threads()) == before
    assert sys.path == path and sys.modules["__main__"] is main


@pytest.mark.slow
def test_a_script_with_processes_needs_no_guard(source, vocab_file, tmp_path):
    call = f"electra_tf.build_dataset({source!r}, {str(vocab_file)!r}, 'data', max_seq_length=16, num_processes=2)"
    (tmp_path / "script.py").write_text(f"import electra_tf\nprint('once')\nprint({call}['max_seq_length'])\n")
    options = {"cwd": tmp_path, "env": {"PYTHONPATH": str(PROJECT), "PATH": "/usr/bin:/bin"}}
    answer = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, **options)
    assert (answer.returncode, answer.stdout) == (0, "once\n16\n"), answer.stderr[-2000:]


UNIGRAM = {"name": "electra", "generator": {"kind": "unigram"}}
STAGE = {"num_steps": STEPS, "batch_size": 4, "max_seq_length": 10}


@pytest.mark.parametrize(
    ("order", "changes", "message"),
    [
        ("pretrain", {"config": "smal"}, "did you mean small"),
        ("pretrain", {"settings": {"train.num_step": 3}}, "did you mean train.num_steps"),
        ("pretrain", {"stop_at_step": 0}, "stop_at_step is 0, expected 1 or more"),
        ("pretrain", {"with_optimizer": True}, "with_optimizer requires init_from"),
        ("pretrain", {"tpu": "mine"}, "tpu has no effect with strategy=one_device"),
        ("pretrain", {"data_dir": ["a", "b"]}, "data_dir is given 2 times, but the run has 1 stages"),
        ("build_model", {"settings": {"objective": UNIGRAM}}, "unigram needs .*; give data_dir"),
        ("build_model", {"settings": {"objective": {**FAST, "auxiliary": "none"}}}, "objective.auxiliary=none: there"),
        ("pretraining_batches", {"settings": {"stages": [STAGE]}}, "has stages"),
        ("build_dataset", {"max_seq_lengt": 9}, "^max_seq_lengt is not a setting; did you mean max_seq_length"),
        ("build_dataset", {"max_seq_length": "128"}, "^max_seq_length='128'; input should be a valid integer"),
        ("build_dataset", {"inputs": "text:/none/*.txt"}, "^inputs?='?text:/none/\\*.txt"),
    ],
)
def test_a_mistake_is_one_line_that_names_arguments(
    config, data_dir, source, vocab_file, tmp_path, order, changes, message
):
    of_run = {"config": config, "data_dir": data_dir}
    arguments = {
        "pretrain": {**of_run, "model_dir": tmp_path / "run"},
        "build_model": {"config": config},
        "pretraining_batches": of_run,
        "build_dataset": {"inputs": source, "vocab_file": vocab_file, "output_dir": tmp_path / "data"},
    }
    with pytest.raises(electra_tf.UserError, match=message) as caught:
        getattr(electra_tf, order)(**arguments[order] | changes)
    text = str(caught.value)
    assert "\n" not in text and ("--" in text) == ("see --help" in text) and isinstance(caught.value, ValueError)
