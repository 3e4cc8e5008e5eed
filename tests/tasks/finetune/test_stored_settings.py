"""What a seed stores: config.yaml with what the user said, which runs again, and resolved.yaml with what followed."""

import operator
import shutil

import pytest
import yaml

from electra_tf.config.errors import UserError
from electra_tf.config.loader import read_values
from electra_tf.data.tables import Table
from electra_tf.finetuning.seeds import run_seeds
from electra_tf.tasks.finetune.datasets import read_task
from electra_tf.train.run_directory import RunDirectory
from electra_tf.weights.source import load_trained

PAIRS = {"question": ["w5", "w6 w7", "w8"], "answer": ["w9", "w5", "w6"]}
TEXTS = {"text": [f"w{5 + number}" for number in range(7)]}
FILES = ("config", "resolved")
LABELLED = TEXTS | {"label": ["a", "b", "c", "a", "b", "c", "a"]}


def test_a_seeds_config_has_the_users_settings_alone_and_resolved_has_all(three_seeds, own_files, tiny_encoder):
    stored = {name: yaml.safe_load((three_seeds[0] / "seed_2" / f"{name}.yaml").read_text()) for name in FILES}
    train = {"num_epochs": 2, "batch_size": 4, "log_every_steps": 2, "fused_ops": False, "keep": "all", "seed": 2}
    assert stored["config"] == {
        "data": {**own_files, "max_seq_length": 12},
        "optimizer": {"learning_rate": 0.01},
        "train": train,
        "name": "classification",
        "init_from": tiny_encoder.origin,
    }
    resolved = stored["resolved"]
    assert (resolved["train"]["num_steps"], resolved["evaluation"]["every_steps"]) == (6, 3)
    assert resolved["task"]["labels"] == ["even", "odd"] and resolved["train"]["seed"] == 2


def test_a_seed_of_an_early_0_3_with_config_alone_is_read_and_continued(three_seeds, job_in, tmp_path):
    shutil.copytree(three_seeds[0] / "seed_1", tmp_path / "seed_1")
    (tmp_path / "seed_1/resolved.yaml").replace(tmp_path / "seed_1/config.yaml")
    former, today = (load_trained(place / "seed_1").finetuned for place in (tmp_path, three_seeds[0]))
    assert former == today
    run_seeds(job_in(tmp_path, keep="all"), (1,))  # finished: nothing to do
    (tmp_path / "seed_1/result.json").unlink()
    run_seeds(job_in(tmp_path, keep="all"), (1,))
    results = [(place / "seed_1/result.json").read_text() for place in (tmp_path, three_seeds[0])]
    assert results[0] == results[1]


@pytest.fixture
def again(tmp_path, tiny_encoder):
    """`again(task, first, second, settings, overrides)`: the configuration of a task by the config.yaml of a first one.

    `first` and `second` are the data of both; `encoder` changes the sizes of the second encoder.
    """

    def build(task, first, second, settings=(), overrides=(), **encoder):
        def read(values, columns, sizes):
            table = Table("pairs", columns, range(len(columns["text" if "text" in columns else "question"])))
            tables = {"train": table, "validation": table}
            return read_task(task, values, "a test", sizes, "RUN", tables)

        texts = {} if task == "classification" else {"task.text_columns": ["question", "answer"]}
        given = read(read_values(None, [*texts.items(), *settings])[0], first, tiny_encoder.encoder)
        run = RunDirectory(tmp_path / "seed_0")
        run.create()
        run.write_config(given.config_for(5), given.given)
        values, _ = read_values(run.config_file, overrides)
        other = read(values, second, tiny_encoder.encoder.model_copy(update=encoder))
        return other.config_for(500)

    return build


@pytest.mark.parametrize(
    ("overrides", "encoder", "place", "expected"),
    [
        ([], {}, "optimizer.warmup_fraction", 0.1),
        (["optimizer.warmup_fraction=0.25"], {}, "optimizer.warmup_fraction", 0.25),
        (["optimizer.warmup_steps=4"], {}, "optimizer.warmup_fraction", 0.0),
        (["train.num_epochs=2"], {}, "train.num_steps", 32),  # 16 steps an epoch
        (["train.num_steps=7"], {}, "train.num_epochs", None),
        (["train.num_epochs=null"], {}, "train.num_steps", 48),  # the task's default
        (["train.batch_size=50"], {}, "evaluation.every_steps", 10),
        ([], {"num_layers": 5}, "encoder.num_layers", 5),
        (["encoder.num_layers=null"], {"num_layers": 5}, "encoder.num_layers", 5),
        (["optimizer.learning_rate=null"], {}, "optimizer.learning_rate", 3e-4),
        ([], {"hidden_size": 512}, "optimizer.learning_rate", 1e-4),
        ([], {"max_position_embeddings": 64}, "data.max_seq_length", 64),
        ([], {}, "task.labels", ("a", "b", "c")),
        (["task.class_weights=balanced"], {}, "task.class_weights", pytest.approx((7 / 9, 7 / 6, 7 / 6))),
        (["evaluation.best_metric=accuracy"], {}, "train.keep", "best"),
    ],
)
def test_what_followed_from_data_and_encoder_follows_anew(again, overrides, encoder, place, expected):
    config = again("classification", TEXTS | {"label": list("xyxyxyx")}, LABELLED, [], overrides, **encoder)
    assert operator.attrgetter(place)(config) == expected


@pytest.mark.parametrize(("first", "second"), [({}, {"label": [1.5, 4.0, 2.0]}), ({"label": [1.5, 4.0, 2.0]}, {})])
def test_whether_pairs_have_scores_follows_from_the_new_file(again, first, second):
    task = again("similarity", PAIRS | first, PAIRS | second).task
    assert (task.is_contrastive, task.max_value) == ((False, 4.0) if second else (True, 1.0))


@pytest.mark.parametrize("override", ["train.seed=null", "train.num_epoch=null"])
def test_a_null_for_what_follows_from_nothing_is_refused(again, override):
    with pytest.raises(UserError, match=override.removesuffix("=null")):
        again("classification", LABELLED, LABELLED, [], [override])


def test_weights_of_classes_and_layers_that_the_user_gave_stay(again):
    settings = ["task.class_weights={a: 2, b: 3}", "encoder.num_layers=1", "task.labels=[c, b, a]"]
    config = again("classification", LABELLED, LABELLED, settings, num_layers=4)
    assert (config.task.class_weights, config.task.labels) == ((1.0, 3.0, 2.0), ("c", "b", "a"))
    assert config.encoder.num_layers == 1
