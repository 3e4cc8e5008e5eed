"""The types that a user's type checker sees, by mypy with the settings of pyproject.toml."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]

TYPES = {
    "load('run')": "Model",
    "load('run').encode(['a'])": "ndarray[tuple[int, ...], dtype[floating[_32Bit]]]",
    "load('run').detect(['a'])": "list[ndarray[tuple[int, ...], dtype[floating[_32Bit]]]]",
    "load('run').detect('a')": "ndarray[tuple[int, ...], dtype[floating[_32Bit]]]",
    "load('run').tokens(['a'])": "list[list[str]]",
    "load('run').fill_mask('a [MASK]')": "list[list[tuple[str, float]]]",
    "load('run').fill_mask(['a [MASK]'], top_k=2)": "list[list[list[tuple[str, float]]]]",
    "load('run').inputs(['a'])": "dict[str, ndarray[tuple[int, ...], dtype[signedinteger[_32Bit]]]]",
    "load('run').encoder": "EncoderLayer",
    "load('owner/name', revision='main', token='x').push_to_hub('owner/name')": "str",
    "pretrain('small', 'data', 'run').history": "list[dict[str, Any]]",
    "pretrain('small', ['data'], 'run', settings={'train.num_steps': 3}).model()": "Model",
    "build_dataset('a.txt', 'vocab.txt', 'data', seed=3)": "dict[str, Any]",
    "load('run').predict(['a'])": "list[Any]",
    "finetune('classification', init_from='run', output_dir='out').model()": "Model",
    "finetune('classification', init_from='run', output_dir='out').score": "float",
}
MISTAKES = {
    "load('run', layer=3)": "call-arg",
    "load('run').embed(['a'])": "attr-defined",
    "pretrain('small', 'data')": "call-arg",
    "build_dataset('a.txt', 'vocab.txt', 'data', num_processes='2')": "arg-type",
    "finetune('classification', init_from='run', output_dir='out', seeds=3)": "arg-type",
}


@pytest.mark.slow
def test_a_use_of_the_interface_has_a_type_and_a_mistake_is_an_error(tmp_path):
    uses = [*TYPES, *MISTAKES]
    file = tmp_path / "uses.py"
    lines = [f"reveal_type(electra_tf.{use})" if use in TYPES else f"electra_tf.{use}" for use in uses]
    file.write_text("\n".join(["import electra_tf", *lines]), encoding="utf-8")
    answer = subprocess.run([sys.executable, "-m", "mypy", file], capture_output=True, text=True, cwd=PROJECT)
    messages = re.findall(
        r'uses\.py:(\d+): (?:note: Revealed type is "(.*)"|error: .*\[([a-z-]+)\])$', answer.stdout, re.M
    )
    # Types without their modules.
    found = {uses[int(line) - 2]: re.sub(r"(\w+\.)+(?=\w)", "", shown) or error for line, shown, error in messages}
    assert found == TYPES | MISTAKES
