import importlib
import re
from pathlib import Path

import pytest

from benchmarks.train_step.ours import peer_sizes
from electra_tf.config.loader import presets
from electra_tf.weights.hugging_face.layouts import ELECTRA

PROJECT = Path(__file__).resolve().parents[2]


def published() -> dict[str, set[str]]:
    """The flags of each module's commands in the documentation."""
    flags: dict[str, set[str]] = {}
    for page in [PROJECT / "README.md", *(PROJECT / "docs").glob("**/*.md")]:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for module, rest in re.findall(r"python -m (benchmarks[\w.]*)([^`\n]*)", text):
            flags.setdefault(module, set()).update(re.findall(r"(?<= )--\w+", rest.partition("  #")[0]))
    return flags


@pytest.mark.parametrize(("module", "flags"), sorted(published().items()))
def test_the_flags_of_published_commands_exist(module, flags, capsys):
    is_package = (PROJECT / module.replace(".", "/") / "__main__.py").exists()
    main = importlib.import_module(f"{module}.__main__" if is_package else module).main
    with pytest.raises(SystemExit):
        main(["--help"])
    known = capsys.readouterr().out
    assert {flag for flag in flags if flag not in known} == set()


def test_the_peers_get_the_settings_of_transformers():
    networks = peer_sizes(presets()["small"], ["encoder.initializer_range=width_scaled"])["networks"]
    assert networks.keys() == {"discriminator", "generator"}
    for entries in networks.values():
        assert entries["model_type"] == "electra" and ELECTRA.settings.keys() <= entries.keys()
        assert entries["initializer_range"] == pytest.approx(0.02 * (768 / entries["hidden_size"]) ** 0.5)
