"""The commands of published figures: their flags exist, a test runs each, and the peers know none of our settings."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from benchmarks.train_step.ours import peer_sizes
from electra_tf.config.loader import presets
from electra_tf.config.networks import EncoderConfig
from electra_tf.weights.hugging_face.layouts import ELECTRA

PROJECT = Path(__file__).resolve().parents[2]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("**/*.md"))]
# The module of each published command, and the file whose tests run it.
TESTS = {
    "benchmarks.builder": "benchmarks/test_builder.py",
    "benchmarks.finetuning": "benchmarks/test_finetuning.py",
    "benchmarks.input_pipeline": "benchmarks/test_input_pipeline.py",
    "benchmarks.parity": "benchmarks/test_parity.py",
    "benchmarks.serving": "benchmarks/test_serving.py",
    "benchmarks.stablehlo_step.export": "benchmarks/test_stablehlo_step.py",
    "benchmarks.stablehlo_step.tpu": "benchmarks/test_stablehlo_step.py",
    "benchmarks.tokenizer_ids": "benchmarks/test_tokenizer_ids.py",
    "benchmarks.train_step": "benchmarks/test_train_step.py",
}


def published() -> dict[str, set[str]]:
    """The flags of each module's commands in the documentation."""
    flags: dict[str, set[str]] = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for module, rest in re.findall(r"python -m (benchmarks[\w.]*)([^`\n]*)", text):
            flags.setdefault(module, set()).update(re.findall(r"(?<= )--\w+", rest.partition("  #")[0]))
    return flags


def test_each_published_command_has_a_test():
    assert published().keys() == TESTS.keys()
    for module, file in TESTS.items():
        assert module.rpartition(".")[2] in (PROJECT / "tests" / file).read_text(encoding="utf-8"), file


@pytest.mark.parametrize("module", sorted(TESTS))
def test_the_flags_of_published_commands_exist(module, capsys):
    is_package = (PROJECT / module.replace(".", "/")).is_dir()
    main = importlib.import_module(f"{module}.__main__" if is_package else module).main
    with pytest.raises(SystemExit):
        main(["--help"])
    known = capsys.readouterr().out
    assert {flag for flag in published()[module] if flag not in known} == set()


def test_the_peers_get_the_settings_of_transformers():
    networks = peer_sizes(presets()["small"], ["encoder.initializer_range=width_scaled"])["networks"]
    assert networks.keys() == {"discriminator", "generator"}
    for entries in networks.values():
        assert entries["model_type"] == "electra" and ELECTRA.settings.keys() <= entries.keys()
        assert entries["initializer_range"] == pytest.approx(0.02 * (768 / entries["hidden_size"]) ** 0.5)


@pytest.mark.parametrize("file", ["train_step/pytorch.py", "finetuning/pytorch.py", "serving/worker.py"])
def test_the_peers_spell_no_setting_of_ours(file):
    """So that renaming a setting cannot break them where PyTorch is not installed."""
    ours = EncoderConfig.model_fields.keys() - ELECTRA.settings.keys()
    tree = ast.parse((PROJECT / "benchmarks" / file).read_text(encoding="utf-8"))
    assert {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)} & ours == set()
