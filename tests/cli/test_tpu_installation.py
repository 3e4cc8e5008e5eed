import importlib.metadata
import os

import pytest

from electra_tf.cli.tpu_installation import require_importable_tensorflow, require_tpu_packages
from electra_tf.config.errors import UserError


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """`installed({"tensorflow": ("2.20.0", 7)})`: these packages are, at that version, since that second."""

    def install(packages: dict[str, tuple[str, int]]) -> None:
        for name, (version, second) in packages.items():
            directory = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
            directory.mkdir()
            (directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            (directory / "RECORD").write_text(f"{directory.name}/RECORD,,\n")
            os.utime(directory / "RECORD", (second, second))

    monkeypatch.setattr(
        importlib.metadata, "distribution", lambda name: next(_matching(tmp_path, name), None) or _missing(name)
    )
    return install


def _matching(directory, name):
    return iter(importlib.metadata.distributions(name=name, path=[str(directory)]))


def _missing(name):
    raise importlib.metadata.PackageNotFoundError(name)


def refusal(check, *arguments) -> str:
    with pytest.raises(UserError) as caught:
        check(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_plain_tensorflow_is_importable_and_drives_no_local_tpu(installed):
    installed({"tensorflow": ("2.20.0", 5)})
    require_importable_tensorflow()
    message = refusal(require_tpu_packages, "local")
    assert "needs tensorflow-tpu, which is not installed" in message
    assert "pip install --no-deps --force-reinstall -r requirements-tpu.txt" in message


@pytest.mark.parametrize("tpu", ["my-tpu", "grpc://10.0.0.1:8470"])
def test_a_tpu_elsewhere_is_driven_by_any_tensorflow(installed, tpu):
    installed({"tensorflow": ("2.20.0", 5)})
    require_tpu_packages(tpu)


@pytest.mark.parametrize("libtpu", ["0.0.24", "0.0.30", "0.0.31"])
def test_tensorflow_tpu_over_tensorflow_with_a_libtpu_that_fits_passes(installed, libtpu):
    installed({"tensorflow": ("2.20.0", 5), "tensorflow-tpu": ("2.20.0", 6), "libtpu": (libtpu, 6)})
    require_importable_tensorflow()
    require_tpu_packages("local")


@pytest.mark.parametrize("libtpu", ["0.0.32", "0.0.32.1", "0.0.42.1", "0.1.0", "1.0"])
def test_a_libtpu_with_which_the_import_aborts_is_refused_before_it(installed, libtpu):
    installed({"tensorflow-tpu": ("2.20.0", 6), "libtpu": (libtpu, 6)})
    message = refusal(require_importable_tensorflow)
    assert f"libtpu {libtpu} is installed" in message
    assert "aborts; expected libtpu 0.0.30" in message


def test_tensorflow_tpu_without_libtpu_is_refused(installed):
    installed({"tensorflow": ("2.20.0", 5), "tensorflow-tpu": ("2.20.0", 6)})
    assert "tensorflow-tpu is installed without libtpu" in refusal(require_importable_tensorflow)


def test_tensorflow_installed_over_tensorflow_tpu_is_refused_for_a_tpu_alone(installed):
    installed({"tensorflow-tpu": ("2.20.0", 5), "libtpu": ("0.0.42", 5), "tensorflow": ("2.20.0", 6)})
    require_importable_tensorflow()
    message = refusal(require_tpu_packages, "local")
    assert "tensorflow was installed after tensorflow-tpu and has overwritten its files" in message
