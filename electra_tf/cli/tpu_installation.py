"""Whether the installed packages can drive a TPU, asked of their metadata, before TensorFlow is imported.

With a libtpu that does not fit, `import tensorflow` aborts the process, and no error of Python's comes of it.
"""

import importlib.metadata
import re

from electra_tf.config.errors import UserError

# From this version on tensorflow-tpu 2.20 aborts: "ConfigureDistributedTpuOp_DoWork not available in this library".
_FIRST_UNFIT_LIBTPU = (0, 0, 32)
_HOW_TO_INSTALL = "pip install --no-deps --force-reinstall -r requirements-tpu.txt"


def require_importable_tensorflow() -> None:
    """Raises: UserError: if `import tensorflow` would abort this process."""
    if _find("tensorflow-tpu") is None or _is_overwritten():
        return
    libtpu = _find("libtpu")
    if libtpu is None:
        raise UserError(f"tensorflow-tpu is installed without libtpu; run: {_HOW_TO_INSTALL}")
    if _numbers(libtpu.version) >= _FIRST_UNFIT_LIBTPU:
        raise UserError(
            f"libtpu {libtpu.version} is installed, with which `import tensorflow` of tensorflow-tpu 2.20 aborts; "
            f"expected libtpu 0.0.30; run: {_HOW_TO_INSTALL}"
        )


def require_tpu_packages(tpu: str) -> None:
    """Checks that TensorFlow is the one with TPU support, where the TPU is this machine's own.

    Args:
        tpu: as `--tpu`: `local`, a name or an address. For the last two any TensorFlow does.
    Raises: UserError: if it is the plain one, or that has overwritten the other.
    """
    if tpu != "local":
        return
    if _find("tensorflow-tpu") is None:
        raise UserError(
            "--strategy=tpu --tpu=local needs tensorflow-tpu, which is not installed; on a TPU VM run: "
            f"{_HOW_TO_INSTALL} (docs/notes/tpu.md)"
        )
    if _is_overwritten():
        raise UserError(
            "--strategy=tpu: tensorflow was installed after tensorflow-tpu and has overwritten its files (tf_keras "
            f"asks for tensorflow, so pip brings it); run: {_HOW_TO_INSTALL} (docs/notes/tpu.md)"
        )


def _is_overwritten() -> bool:
    """Whether `tensorflow` came after `tensorflow-tpu`: they are files of the same names, and the later ones stay."""
    plain, with_tpu = _find("tensorflow"), _find("tensorflow-tpu")
    return plain is not None and with_tpu is not None and _installed_at(plain) > _installed_at(with_tpu)


def _installed_at(distribution: importlib.metadata.Distribution) -> float:
    """When pip wrote the list of a package's files, in seconds; 0 where it wrote none."""
    record = next((file for file in distribution.files or () if file.name == "RECORD"), None)
    return record.locate().stat().st_mtime if record is not None else 0.0


def _find(name: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
