import json
from collections.abc import Callable
from pathlib import Path

import pytest

from electra_tf.cli import report
from electra_tf.config.loader import config_to_yaml
from electra_tf.flops.budget import RunCost
from electra_tf.tasks.finetune.summary import milestone_scores
from electra_tf.tasks.pretrain import Objective, build_objective
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.weights.names import named_variables
from electra_tf.weights.stored_model import StoredModel
from tests.toy import VOCABULARY, randomize


@pytest.fixture(scope="session")
def pretrained(tiny_config) -> Callable[..., tuple[Objective, StoredModel]]:
    """`pretrained("electra", tying="none")`: an objective with random weights, and the same as a stored model."""
    known = {}

    def build(name: str, encoder: dict | None = None, **settings) -> tuple[Objective, StoredModel]:
        key = json.dumps([name, encoder, settings])
        if key not in known:
            config = tiny_config(encoder=encoder or {}, objective={"name": name, **settings})
            objective = build_objective(config)
            weights = randomize(named_variables(objective), seed=7)
            generator = config.objective.generator_encoder(config) if config.objective.trains_generator else None
            tokenizer = StoredTokenizer(VOCABULARY)
            known[key] = objective, StoredModel("a test", config.encoder, generator, weights, tokenizer, name)
        return known[key]

    return build


@pytest.fixture
def panels(tmp_path, monkeypatch) -> Callable[..., dict]:
    """`panels(*flags)`: the axes of the picture that the flags of electra-tf report draw, by title."""
    from matplotlib.figure import Figure

    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **options: figures.append(figure))

    def drawn(*flags: str) -> dict:
        assert report.main([*flags, f"--picture={tmp_path / 'a.png'}", "--overwrite"]) == 0
        return {axes.get_title(): axes for axes in figures[-1].axes if axes.get_visible()}

    return drawn


@pytest.fixture
def write_run(tmp_path, tiny_config):
    """`write_run("electra-0", held_out={4: {...}}, train={"seed": 1})`: a run's directory.

    rte: scores after fine-tuning on RTE, a list over seeds for each step.
    """

    def build(name: str, held_out: dict[int, dict], rte: dict[int, list] | None = None, **changes) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        config = tiny_config(**changes)
        (directory / "config.yaml").write_text(config_to_yaml(config), encoding="utf-8")
        lines = [{"step": 2, "split": "train", "loss": 9.0}]
        lines += [{"step": step, "split": "held_out", **metrics} for step, metrics in held_out.items()]
        torn = '{"step": 9, "spl'
        text = "".join(json.dumps(line) + "\n" for line in lines) + torn
        (directory / "metrics.jsonl").write_text(text, encoding="utf-8")
        if rte is not None:
            rows = milestone_scores({step: dict(enumerate(scores)) for step, scores in rte.items()}, RunCost(config))
            (directory / "finetuning_rte.json").write_text(json.dumps({"results": rows}))
        return directory

    return build
