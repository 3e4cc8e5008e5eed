"""The table of kinds: each kind of the folder has a row, and each row all its parts; and data without a task."""

import importlib
import inspect
import pkgutil
from typing import get_args

import pytest

from electra_tf.data.tables import Table
from electra_tf.tasks.finetune import kinds
from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.datasets import read_task
from electra_tf.tasks.finetune.kind import Kind
from electra_tf.tasks.finetune.kinds import KINDS


def test_every_kind_in_the_folder_has_a_row():
    modules = [
        importlib.import_module(f"{kinds.__name__}.{each.name}") for each in pkgutil.iter_modules(kinds.__path__)
    ]
    classes = {each for module in modules for each in vars(module).values() if inspect.isclass(each)}
    found = {each for each in classes if issubclass(each, Kind) and not inspect.isabstract(each)}
    assert found == set(map(type, KINDS.values()))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_kind_has_all_parts_of_the_interface(kind):
    assert [part for part in Kind.__annotations__ if not hasattr(kind, part)] == []
    assert kind.name in get_args(kind.settings.model_fields["kind"].annotation)


@pytest.mark.parametrize(
    "kind", [each for each in KINDS.values() if each.transformers.layers], ids=lambda each: each.name
)
def test_a_head_for_transformers_has_a_class_of_each_family(kind):
    assert kind.transformers.layers.keys() == {"Electra", "Bert", "ModernBert"}
    assert kind.transformers.ending.startswith("For") and kind.transformers.description and kind.transformers.pipeline


@pytest.mark.parametrize(
    ("kind", "columns", "settings", "message"),
    [
        ("tagging", {"words": [["w5"], ["w6"]], "labels": [["O"], ["O"]]}, {}, "only the tag 'O'"),
        ("multiple_choice", {"context": ["w5"] * 2, "choices": [["w6"], ["w7"]], "label": [0, 0]}, {}, "one choice"),
        (
            "classification",
            {"text": ["w5", "w6"], "label": ["a", "b"]},
            {"labels": ["a", "a", "b"]},
            "different labels",
        ),
        ("regression", {"text": ["w5", "w6"], "label": [1, 2]}, {"min_value": 5, "max_value": 0}, "min_value 5"),
    ],
)
def test_a_task_without_anything_to_learn_is_refused(tiny_encoder, refusal, kind, columns, settings, message):
    table = Table("rows", columns, range(len(next(iter(columns.values())))))
    tables = {"train": table, "validation": table}

    def read() -> None:
        task = read_task(kind, {"task": settings}, "test", tiny_encoder.encoder, tiny_encoder.origin, tables)
        TaskData(task.config, tiny_encoder.tokenizer, task.train, task.evaluated)

    assert message in refusal(read)
