"""A model as a SavedModel in TensorFlow Serving's layout, with what the server reads beside it."""

import contextlib
import os
from collections.abc import Mapping

import absl.logging
import tensorflow as tf

from electra_tf.config.errors import UserError, first_line
from electra_tf.config.files import is_remote
from electra_tf.export.served_model import ServedModel
from electra_tf.export.warmup import write_warmup_requests

_VERSION = "1"


def export_saved_model(
    model: ServedModel,
    output_dir: str | os.PathLike,
    overwrite: bool = False,
    server_files: Mapping[str, str] | None = None,
) -> str:
    """Writes `output_dir/1/`, the layout of TF Serving, with warm-up requests for every signature.

    On a local disk the directory appears whole, or not at all. `output_dir` may be on any filesystem that TensorFlow
    writes.

    Args:
        overwrite: replace a version 1 that is there, and those of `server_files`.
        server_files: texts by name, beside the version's directory; of `electra_tf.export.server_files`.
    Returns: the version's directory.
    Raises: UserError: if `output_dir` holds something already.
    """
    output_dir, server_files = os.fspath(output_dir), server_files or {}
    version_dir = os.path.join(output_dir, _VERSION)
    # A remote store cannot rename a directory.
    temporary = version_dir if is_remote(output_dir) else os.path.join(output_dir, ".unfinished")
    try:
        tf.io.gfile.makedirs(output_dir)
        names = {name.rstrip("/") for name in tf.io.gfile.listdir(output_dir)} - {".unfinished"}
    except tf.errors.OpError as error:
        raise UserError(
            f"--output_dir={output_dir} is no usable directory: {first_line(error)}; give another one"
        ) from None
    others = names - {_VERSION, *server_files}
    if others or (names and not overwrite):
        raise UserError(
            f"--output_dir={output_dir} already holds {min(others or names)}; give a new directory, or --overwrite to "
            f"replace {', '.join([_VERSION, *server_files])}"
        )
    # At every save TensorFlow warns of renamed inner names, which nobody sees, and names the temporary directory.
    absl.logging.set_verbosity(absl.logging.ERROR)
    tf.get_logger().setLevel("ERROR")
    try:
        if tf.io.gfile.exists(temporary):  # of an export that was killed, or to be replaced
            with contextlib.suppress(tf.errors.NotFoundError):  # ram:// removes all, then misses the directory
                tf.io.gfile.rmtree(temporary)
        signatures = model.signatures()
        tf.saved_model.save(model, temporary, signatures=signatures)
        write_warmup_requests(temporary, signatures)
        if temporary != version_dir:
            if _VERSION in names:
                tf.io.gfile.rmtree(version_dir)
            tf.io.gfile.rename(temporary, version_dir)
        for name, content in server_files.items():
            with tf.io.gfile.GFile(os.path.join(output_dir, name), "w") as stream:
                stream.write(content)
    except tf.errors.OpError as error:
        raise UserError(f"{version_dir} cannot be written: {first_line(error)}; make room there") from None
    return version_dir
