"""The output directory: what may stand in it, what the builder writes into it, and nothing else that it may remove."""

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from electra_tf.config.errors import UserError
from electra_tf.text.manifest import HELD_OUT_SPLIT, MANIFEST_FILE, TRAIN_SPLIT, VOCAB_FILE

SPILLS_DIR = ".spills"

_OWN_FILE = re.compile(
    rf"({re.escape(MANIFEST_FILE)}|{re.escape(VOCAB_FILE)}|({TRAIN_SPLIT}|{HELD_OUT_SPLIT})-\d+-of-\d+\.tfrecord)"
    r"(\.partial)?"
)


def prepare(output_dir: Path, overwrite: bool, sources: Iterable[str | Path]) -> None:
    """Makes the directory, or empties it of an earlier build.

    Args:
        sources: files that the build reads.
    Raises: UserError: if it is not empty and `overwrite` is not set, or is no directory that can be written to; also
        if a source, or something that no build has written, stands in the place of a file to remove. Nothing is
        removed then.
    """
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        is_empty = not any(output_dir.iterdir())
    except OSError as error:
        raise UserError(f"--output_dir={output_dir} is no usable directory: {error.strerror}") from None
    if not is_empty and not overwrite:
        raise UserError(
            f"--output_dir={output_dir} is not empty; give a new directory, or --overwrite to replace its data set"
        )
    try:
        _check_removable(output_dir, sources)
        remove_build(output_dir)
    except OSError as error:
        raise UserError(
            f"cannot remove the earlier build in --output_dir={output_dir}: {error.filename}: {error.strerror};"
            " give a new directory"
        ) from None


def _check_removable(output_dir: Path, sources: Iterable[str | Path]) -> None:
    own_files = _own_files(output_dir)
    for path in own_files:
        if path.is_dir() and not path.is_symlink():
            raise UserError(f"{path} is a directory, expected a file of an earlier build; move it")
    spills = output_dir / SPILLS_DIR
    if os.path.lexists(spills) and (spills.is_symlink() or not spills.is_dir()):
        raise UserError(
            f"{spills} is no directory, expected that of an earlier build's temporary files; move it or give a new"
            " --output_dir"
        )
    removed = {os.path.realpath(path) for path in own_files}
    spills_prefix = os.path.join(os.path.realpath(spills), "")
    for source in sources:
        real_path = os.path.realpath(source)
        if real_path in removed or real_path.startswith(spills_prefix):
            raise UserError(
                f"{source} is to be read, and --overwrite would remove it from --output_dir={output_dir}; copy it"
                " elsewhere and name the copy, or give another directory"
            )


def remove_build(output_dir: Path) -> None:
    """Removes the files that a build writes, whole or partial, and no others; the manifest first."""
    (output_dir / MANIFEST_FILE).unlink(missing_ok=True)
    for path in _own_files(output_dir):
        path.unlink()
    remove_spills(output_dir)


def _own_files(output_dir: Path) -> list[Path]:
    return [path for path in output_dir.iterdir() if _OWN_FILE.fullmatch(path.name)]


def remove_spills(output_dir: Path) -> None:
    spills = output_dir / SPILLS_DIR
    if spills.exists():
        shutil.rmtree(spills)
