"""The comparison with XLA's own analysis, which a stand-in gives here: jax has an environment of its own."""

import pytest

from benchmarks import xla_count


@pytest.fixture
def config_file(tmp_path, tiny_config):
    from electra_tf.config.loader import config_to_yaml

    path = tmp_path / "tiny.yaml"
    path.write_text(config_to_yaml(tiny_config(objective={"name": "bert_mlm"})), encoding="utf-8")
    return path


@pytest.fixture
def python_that_says(tmp_path):
    """`python_that_says(text)`: a program that prints it, whatever it is given."""

    def build(text: str) -> str:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\nprintf '{text}'\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    return build


def test_a_count_that_differs_is_named_and_fails(python_that_says, config_file, capsys):
    python = python_that_says('{"flops": 7, "transcendentals": 1}\\n')
    assert xla_count.main([f"--jax_python={python}", f"--config={config_file}"]) == 1
    assert "| tiny, 1 | " in (printed := capsys.readouterr().out) and "| 7 | " in printed and "DIFFERENT" in printed


def test_a_python_without_jax_is_refused_before_anything_is_traced(config_file, capsys):
    assert xla_count.main(["--jax_python=/nowhere/python", f"--config={config_file}"]) == 2
    assert "error: --jax_python=/nowhere/python gives no analysis" in capsys.readouterr().err
