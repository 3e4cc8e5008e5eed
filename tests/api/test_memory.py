"""What a training leaves behind in its process: no weights, no graph, and the settings of the process as they were."""

import gc
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import electra_tf
from electra_tf.config.loader import config_to_yaml
from electra_tf.serving.saved_model import export_saved_model, load_served_model
from tests.toy import collect_garbage

pytestmark = pytest.mark.slow

TRAIN = {"text": ["w5 w6", "w7", "w5", "w7 w8"], "label": ["a", "b", "a", "b"]}


@pytest.fixture
def finetune(tiny_pretrained, tmp_path) -> Callable[..., electra_tf.FinetuningResult]:
    """`finetune({"train.xla": True}, strategy="mirrored")`: one step of a tiny encoder, in a new directory."""

    def run(settings: dict | None = None, **options) -> electra_tf.FinetuningResult:
        values = {"data.max_seq_length": 12, "train.num_steps": 1, "train.batch_size": 2, **(settings or {})}
        options |= {"output_dir": tmp_path / str(len(list(tmp_path.iterdir()))), "settings": values}
        return electra_tf.finetune("classification", TRAIN, TRAIN, init_from=tiny_pretrained, **options)

    return run


def live() -> tuple[int, int]:
    """The numbers of variables and of traced graphs in this process."""
    collect_garbage()
    objects = gc.get_objects()
    graphs = sum(type(each).__name__ == "FuncGraph" for each in objects)
    # By the type: some objects of libraries have no `__class__`, for which `isinstance` asks.
    return sum(issubclass(type(each), tf.Variable) for each in objects), graphs


def test_fine_tuning_and_predicting_leave_a_process_as_it_was(finetune):
    def state() -> tuple:
        random_states = random.getstate(), np.random.get_state()[1].tolist()
        tensorflow = context.context()
        return *random_states, tensorflow._seed, tensorflow._rng, tf.config.optimizer.get_experimental_options()

    options = tf.config.optimizer.get_experimental_options()
    try:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
        before, (variables, _) = state(), live()
        finetune().model().predict(TRAIN["text"])
        assert state() == before and live()[0] == variables
    finally:
        tf.config.optimizer.set_experimental_options(options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        *({"settings": {f"train.{name}": True}} for name in ("rematerialize", "xla")),
        {"settings": {"train.gradient_accumulation_steps": 2, "train.precision": "bfloat16"}},
        {"seeds": [0, 1], "keep": "best"},
        {"strategy": "mirrored"},
    ],
    ids=str,
)
def test_the_second_fine_tuning_leaves_nothing(finetune, options):
    finetune(**options)  # compiles programs that all trainings share
    before = live()
    finetune(**options)
    assert live() == before


def test_exports_leave_nothing(finetune, tiny_pretrained, tmp_path):
    seed = Path(finetune().output_dir) / "seed_0"
    counts = []
    for number, source in enumerate([seed, tiny_pretrained] * 2):
        export_saved_model(load_served_model(source), tmp_path / f"served_{number}")
        counts.append(live())
    assert counts[1] == counts[3]


@pytest.mark.parametrize("name", ["electra", "bert_mlm", "all_tokens_mlm"])
def test_the_second_pre_training_leaves_nothing(write_data, tiny_config, tmp_path, name):
    config = tiny_config(objective={"name": name}, train={"num_steps": 2, "fused_ops": True})
    (tmp_path / "config.yaml").write_text(config_to_yaml(config))
    data_dir, counts = write_data(tmp_path / "data"), []
    for number in range(2):
        electra_tf.pretrain(tmp_path / "config.yaml", data_dir, tmp_path / str(number))
        counts.append(live())
    assert counts[0] == counts[1]
