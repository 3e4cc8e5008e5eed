"""What the installed packages can drive, read from their metadata; each package with its version and when it came."""

import importlib.metadata
import os

import pytest

from electra_tf.cli.tpu_installation import require_importable_tensorflow, require_tpu_packages
from electra_tf.config.errors import UserError

PLAIN = {"tensorflow": ("2.20.0", 5)}
WITH_TPU = {**PLAIN, "tensorflow-tpu": ("2.20.0", 6)}
OVERWRITTEN = {"tensorflow-tpu": ("2.20.0", 5), "libtpu": ("0.0.42", 5), "tensorflow": ("2.20.0", 6)}


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """`installed({"tensorflow": ("2.20.0", 7)})`: these packages are, at that version, since that second."""

    def find(name: str) -> importlib.metadata.Distribution:
        for distribution in importlib.metadata.distributions(name=name, path=[str(tmp_path)]):
            return distribution
        raise importlib.metadata.PackageNotFoundError(name)

    def install(packages: dict[str, tuple[str, int]]) -> None:
        for name, (version, second) in packages.items():
            directory = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
            directory.mkdir()
            (directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            (directory / "RECORD").write_text(f"{directory.name}/RECORD,,\n")
            os.utime(directory / "RECORD", (second, second))
        monkeypatch.setattr(importlib.metadata, "distribution", find)

    return install


@pytest.mark.parametrize(
    ("packages", "tpu"),
    [
        (PLAIN, None),
        (PLAIN, "my-tpu"),  # a TPU elsewhere is driven by any TensorFlow
        (PLAIN, "grpc://10.0.0.1:8470"),
        *(({**WITH_TPU, "libtpu": (version, 6)}, "local") for version in ("0.0.24", "0.0.30", "0.0.31")),
        (OVERWRITTEN, None),
    ],
)
def test_what_fits_passes(installed, packages, tpu):
    installed(packages)
    require_importable_tensorflow()
    if tpu is not None:
        require_tpu_packages(tpu)


@pytest.mark.parametrize(
    ("packages", "message"),
    [
        (WITH_TPU, "tensorflow-tpu is installed without libtpu; run: pip install --no-deps"),
        *(
            (
                {"tensorflow-tpu": ("2.20.0", 6), "libtpu": (version, 6)},
                rf"libtpu {version} is .* aborts; expected libtpu",
            )
            for version in ("0.0.32", "0.0.32.1", "0.0.42.1", "0.1.0", "1.0")
        ),
    ],
)
def test_packages_with_which_the_import_aborts_are_refused_before_it(installed, packages, message):
    installed(packages)
    with pytest.raises(UserError, match=message):
        require_importable_tensorflow()


@pytest.mark.parametrize(
    ("packages", "message"),
    [
        (PLAIN, "needs tensorflow-tpu, which is not installed; .* -r requirements-tpu.txt"),
        (OVERWRITTEN, "tensorflow was installed after tensorflow-tpu and has overwritten its files"),
    ],
)
def test_a_tensorflow_that_drives_no_local_tpu_is_refused(installed, packages, message):
    installed(packages)
    with pytest.raises(UserError, match=message):
        require_tpu_packages("local")
