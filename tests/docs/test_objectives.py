"""docs/objectives.md: its command trains the objective of examples/, with the page's file."""

import json
import sys
from unittest import mock

import pytest

from electra_tf.config.loader import config_to_yaml
from electra_tf.tasks.pretrain import OBJECTIVES
from electra_tf.tasks.pretrain.config import OBJECTIVE_SETTINGS
from tests.docs.commands import PROJECT, blocks_of, run_page


@pytest.mark.slow
def test_the_command_of_the_page_trains_an_objective_of_a_file(tmp_path, tiny_config, write_data):
    write_data(tmp_path / "DATA")
    (tmp_path / "examples").symlink_to(PROJECT / "examples")
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(tiny_config(train={"num_steps": 2})))
    ((_, text),) = blocks_of(PROJECT / "docs/objectives.md", "yaml")
    (tmp_path / "run.yaml").write_text(text.replace("base: small", "base: tiny.yaml"))
    with mock.patch.dict(OBJECTIVES), mock.patch.dict(OBJECTIVE_SETTINGS):  # other tests do not know the objective
        run_page("objectives", tmp_path, {})
    sys.modules.pop("random_token_detection")
    last = json.loads((tmp_path / "RUN/metrics.jsonl").read_text().splitlines()[-1])
    assert last["step"] == 2 and "replaced_token_auc" in last and "masked_lm_loss" not in last
