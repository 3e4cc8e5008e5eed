"""The output directory: what may stand in it, what the builder writes into it, and nothing else that it may remove."""

import re
import shutil
from pathlib import Path

from electra_tf.config.errors import UserError
from electra_tf.text.manifest import HELD_OUT_SPLIT, MANIFEST_FILE, TRAIN_SPLIT, VOCAB_FILE

SPILLS_DIR = ".spills"

_OWN_FILE = re.compile(
    rf"({re.escape(MANIFEST_FILE)}|{re.escape(VOCAB_FILE)}|({TRAIN_SPLIT}|{HELD_OUT_SPLIT})-\d+-of-\d+\.tfrecord)"
    r"(\.partial)?"
)


def prepare(output_dir: Path, overwrite: bool) -> None:
    """Makes the directory, or empties it of an earlier build.

    Raises: UserError: if it is not empty and `overwrite` is not set, or is no directory that can be written to.
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
    remove_build(output_dir)


def remove_build(output_dir: Path) -> None:
    """Removes the files that a build writes, whole or partial, and no others; the manifest first."""
    (output_dir / MANIFEST_FILE).unlink(missing_ok=True)
    for path in output_dir.iterdir():
        if _OWN_FILE.fullmatch(path.name):
            path.unlink()
    remove_spills(output_dir)


def remove_spills(output_dir: Path) -> None:
    spills = output_dir / SPILLS_DIR
    if spills.exists():
        shutil.rmtree(spills)
