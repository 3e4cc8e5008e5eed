"""Two data sets in one run: held-out text that was trained on, and batches that a warm start repeats."""

import json
import re

import pytest

from electra_tf.config.errors import UserError
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.start import check_data
from tests import toy
from tests.toy import ToyStage, evaluate_toy, toy_config, toy_run
from tests.train.runs import lines, train_toy

HELD_OUT = {
    "seed": 0,
    "held_out_fraction": 0.01,
    "unicode_normalization": "NFC",
    "drop_control_characters": True,
    "lines_per_document": 1000,
}
OTHER = {**HELD_OUT, "seed": 1}


def two_stages(first: dict | None, second: dict | None) -> list[ToyStage]:
    config = toy_config()
    return [
        ToyStage(config, name="stages.0", source="first", last_step=4, hold_out=first),
        ToyStage(config, name="stages.1", source="second", first_step=4, hold_out=second, data_hash="toy-2"),
    ]


def test_a_run_records_what_chose_its_held_out_text(tmp_path):
    run = RunDirectory(tmp_path)
    for settings, recorded in (((None, None), {}), ((HELD_OUT, OTHER), {"hold_out": [HELD_OUT, OTHER]})):
        run.write_data(two_stages(*settings))
        assert json.loads((tmp_path / "data.json").read_text()) == {"data": ["toy-1", "toy-2"], **recorded}


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> str:
    """A run of two steps, of data with `HELD_OUT`, at seed 6; not to be changed."""
    config, path = toy_config(train={"seed": 6}), tmp_path_factory.mktemp("source") / "run"
    train_toy(path, config, ToyStage(config, hold_out=HELD_OUT), stop_at_step=2)
    return str(path)


SEEN, REPEATED = "held-out text of toy may be .* of {}, .* seed 0 and 1", r"those of {}, .*train\.seed=7"
ELSEWHERE = {"data_hash": "toy-2"}


@pytest.mark.parametrize(
    ("stage", "seed", "path", "message"),
    [
        (ELSEWHERE | {"hold_out": OTHER}, 6, "", SEEN),
        (ELSEWHERE | {"hold_out": OTHER}, None, "/checkpoints/step-2", SEEN),
        (ELSEWHERE | {"hold_out": HELD_OUT}, 6, "", None),
        (ELSEWHERE, 6, "", None),  # of the authors' builder
        ({"hold_out": HELD_OUT}, 6, "/checkpoints/step-2.index", REPEATED),
        ({}, 7, "", None),
        ({}, None, "", None),  # with the optimizer it goes on from the source's step
        ({}, 6, "/nothing", None),
    ],
)
def test_a_warm_start_warns_of_text_that_its_source_has_read(source, caplog, stage, seed, path, message):
    check_data([ToyStage(toy_config(), **stage)], f"{source}{path}", seed)
    assert len(caplog.messages) == (message is not None)
    assert message is None or re.search(message.format(source), caplog.messages[0])


def test_the_second_stage_of_a_source_has_another_order_than_a_first_one(tmp_path, caplog):
    run = RunDirectory(tmp_path)
    run.write_config(toy_config(train={"seed": 6}))
    run.write_data([ToyStage(toy_config(), data_hash="toy-2"), ToyStage(toy_config())])
    check_data([ToyStage(toy_config())], run.path, 6)
    assert caplog.messages == []


@pytest.mark.parametrize(("hold_out", "count"), [(HELD_OUT, 0), (None, 0), (OTHER, 1)])
def test_an_evaluation_on_other_data_warns_of_held_out_text_that_the_run_has_read(source, caplog, hold_out, count):
    config = toy_config(train={"seed": 6})
    evaluate_toy(toy_run(config, source), [ToyStage(config, hold_out=hold_out)])
    assert sum("held-out text of toy may be" in message for message in caplog.messages) == count


def test_a_smaller_fraction_in_a_later_stage_warns_of_nothing_during_the_first(tmp_path, caplog):
    config = toy_config()
    run = toy_run(config, tmp_path)
    stages = two_stages(HELD_OUT, {**HELD_OUT, "held_out_fraction": 0.001})
    toy.train_toy(run, stages, stop_at_step=2)
    evaluate_toy(run, stages)
    assert caplog.messages == []


class MixedToy(ToyStage):
    """A mixture of two sources, of which one held-out batch each is evaluated."""

    @property
    def sources(self):
        facts = {"num_evaluation_batches": 1, "num_evaluation_examples": 4}
        shares = {"wiki": 0.7, "books": 0.3}
        return [ToyStage(toy_config(), source_name=name, share=share, **facts) for name, share in shares.items()]


def test_the_sources_of_a_mixture_are_reported_and_recorded(tmp_path, caplog, capsys):
    caplog.set_level("INFO")
    config = toy_config(evaluation={"best_metric": "books/squared_error"})
    metrics = train_toy(tmp_path, config, MixedToy(config))
    assert list(metrics) == ["squared_error", "wiki/squared_error", "books/squared_error"]
    assert lines(tmp_path)[-1] == {"step": 8, "split": "held_out", **metrics}
    error = capsys.readouterr().err
    assert f"step 8 held out, books | squared_error {metrics['books/squared_error']:.3g}" in error.splitlines()
    assert "data, 0.7 wiki: 0.0224 passes over 1000 training examples (unknown tokens)" in caplog.messages
    recorded = {"data": ["toy-1"], "shares": [{"wiki": 0.7, "books": 0.3}]}
    assert json.loads((tmp_path / "data.json").read_text()) == recorded
    assert (tmp_path / "best").exists()
    with pytest.raises(UserError, match="another data set, or a mixture with other weights"):
        train_toy(tmp_path, config, MixedToy(config, data_hash="toy-2"))
