"""What messages and folders are called in a clone, and in an installed package."""

from pathlib import Path

import pytest

from electra_tf import checkout
from electra_tf.config.errors import UserError


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(checkout, "in_checkout", lambda: False)


TEXT = "build one with build_vocab.py; python run_finetuning.py --predict; see docs/notes/tpu.md and my_report.py"


def test_a_clone_names_scripts_pages_and_requirement_files():
    assert checkout.with_command_names(TEXT) == TEXT
    assert checkout.install_command("beam") == "pip install -r requirements-beam.txt"
    assert checkout.data_prep_parent() == Path(__file__).resolve().parents[1]


def test_an_installed_package_names_subcommands_the_repository_and_extras(installed):
    assert checkout.with_command_names(TEXT) == (
        "build one with electra-tf build-vocab; electra-tf finetune --predict; see "
        "https://github.com/electra-tf/electra_tf/blob/main/docs/notes/tpu.md and my_report.py"
    )
    assert checkout.install_command("beam") == 'pip install "electra-tf[beam]"'
    assert str(UserError("build it with build_vocab.py")) == "build it with electra-tf build-vocab"
