"""Registers the fixtures of `tests/tiny.py`, but not in the process that only hands tests to workers."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Workers start some seconds earlier if that process does not import TensorFlow."""
    is_worker = hasattr(config, "workerinput")
    if is_worker or config.getoption("dist", "no") == "no":
        config.pluginmanager.import_plugin("tests.tiny")
