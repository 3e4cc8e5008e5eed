"""A model as a SavedModel in TensorFlow Serving's layout, with what the server reads beside it."""

import contextlib
import os
from collections.abc import Mapping

import absl.logging
import tensorflow as tf

from electra_tf.config.errors import UserError, first_line
from electra_tf.export.served_model import ServedModel
from electra_tf.export.warmup import write_warmup_requests
from electra_tf.files import is_remote, write_atomically

_VERSION = "1"
# What a kill may leave: a version that is not written to its end, and the one that it was to replace.
_UNFINISHED, _REPLACED = ".unfinished", ".replaced"


def export_saved_model(
    model: ServedModel,
    output_dir: str | os.PathLike,
    overwrite: bool = False,
    server_files: Mapping[str, str] | None = None,
) -> str:
    """Writes `output_dir/1/`, the layout of TF Serving, with warm-up requests for every signature.

    On a local disk the directory appears whole, or not at all; one that is replaced stays until the new one is written.
    `output_dir` may be on any filesystem that TensorFlow writes.

    Args:
        overwrite: replace a version 1 that is there, and those of `server_files`.
        server_files: texts by name, beside the version's directory; of `electra_tf.export.server_files`.
    Returns: the version's directory.
    Raises: UserError: if `output_dir` holds something already.
    """
    output_dir, server_files = os.fspath(output_dir), server_files or {}
    version_dir = os.path.join(output_dir, _VERSION)
    try:
        tf.io.gfile.makedirs(output_dir)
        names = {name.rstrip("/") for name in tf.io.gfile.listdir(output_dir)} - {_UNFINISHED, _REPLACED}
    except tf.errors.OpError as error:
        raise UserError(
            f"--output_dir={output_dir} is no usable directory: {first_line(error)}; give another one"
        ) from None
    if others := names - {_VERSION, *server_files}:
        raise UserError(f"--output_dir={output_dir} also holds {', '.join(sorted(others))}; give a new directory")
    if names and not overwrite:
        raise UserError(
            f"--output_dir={output_dir} already holds {', '.join(sorted(names))}; give a new directory, or --overwrite "
            "to replace it"
        )
    is_direct = is_remote(output_dir) and _VERSION not in names  # a remote store cannot rename a directory
    temporary = version_dir if is_direct else os.path.join(output_dir, _UNFINISHED)
    # At every save TensorFlow warns of renamed inner names, which nobody sees, and names the temporary directory.
    absl.logging.set_verbosity(absl.logging.ERROR)
    tf.get_logger().setLevel("ERROR")
    try:
        _remove(temporary)
        signatures = model.signatures()
        tf.saved_model.save(model, temporary, signatures=signatures)
        write_warmup_requests(temporary, signatures)
        if not is_direct:
            (_copy_over if is_remote(output_dir) else _swap)(temporary, version_dir)
        for name, content in server_files.items():
            write_atomically(os.path.join(output_dir, name), content.encode())
    except tf.errors.OpError as error:
        raise UserError(f"{version_dir} cannot be written: {first_line(error)}; make room there") from None
    return version_dir


def _swap(new: str, version_dir: str) -> None:
    """Puts a directory in the place of a version that may be there, by two renames; a failed one is undone."""
    replaced = os.path.join(os.path.dirname(version_dir), _REPLACED)
    is_there = tf.io.gfile.exists(version_dir)
    if is_there:
        _remove(replaced)
        tf.io.gfile.rename(version_dir, replaced)
    try:
        tf.io.gfile.rename(new, version_dir)
    except tf.errors.OpError:
        if is_there:
            tf.io.gfile.rename(replaced, version_dir)
        raise
    _remove(replaced)


def _copy_over(new: str, version_dir: str) -> None:
    """Puts a directory in the place of a version on a store that copies files alone; what servers look for last."""
    _remove(version_dir)
    paths = [os.path.join(directory, name) for directory, _, names in tf.io.gfile.walk(new) for name in names]
    for path in sorted(paths, key=lambda path: path.endswith("saved_model.pb")):
        target = os.path.join(version_dir, path.removeprefix(new).lstrip("/"))
        tf.io.gfile.makedirs(os.path.dirname(target))
        tf.io.gfile.copy(path, target)
    _remove(new)


def _remove(directory: str) -> None:
    """Removes a directory, if it is there, with what it holds; of a link the link alone."""
    if os.path.islink(directory):
        os.remove(directory)
    elif tf.io.gfile.exists(directory):
        with contextlib.suppress(tf.errors.NotFoundError):  # ram:// removes all, then misses the directory
            tf.io.gfile.rmtree(directory)
