import json
from pathlib import Path

import pytest

from electra_tf.config.loader import config_to_yaml
from electra_tf.tasks.finetune.summary import milestone_scores


@pytest.fixture
def write_run(tmp_path, tiny_config):
    """`write_run("electra-0", held_out={4: {...}}, train={"seed": 1})`: a run's directory.

    rte: scores after fine-tuning on RTE, a list over seeds for each step.
    """

    def build(name: str, held_out: dict[int, dict], rte: dict[int, list] | None = None, **changes) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        (directory / "config.yaml").write_text(config_to_yaml(tiny_config(**changes)), encoding="utf-8")
        lines = [{"step": 2, "split": "train", "loss": 9.0}]
        lines += [{"step": step, "split": "held_out", **metrics} for step, metrics in held_out.items()]
        torn = '{"step": 9, "spl'
        text = "".join(json.dumps(line) + "\n" for line in lines) + torn
        (directory / "metrics.jsonl").write_text(text, encoding="utf-8")
        if rte is not None:
            rows = milestone_scores({step: dict(enumerate(scores)) for step, scores in rte.items()}, None)
            (directory / "finetuning_rte.json").write_text(json.dumps({"results": rows}))
        return directory

    return build
