"""What a path means from which weights are taken: `--from` of the converter, `--init_from` of training."""

import os
import re
from dataclasses import dataclass

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.convert.hugging_face_reader import is_hugging_face
from electra_tf.files import exists, is_remote, names_in, store_errors
from electra_tf.runs.checkpoints import damage, newest_whole, step_of
from electra_tf.runs.directory import RunDirectory

# The files of a checkpoint, by one of which a shell completes its name.
_ENDING = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_PREFIX = "the path of a checkpoint's files without their endings"


@dataclass(frozen=True)
class Source:
    """A model on disk.

    Attributes:
        path: absolute or a URL, without a slash at its end.
        prefix: of a checkpoint that is whole; None for one of Hugging Face's folders, which is `path`.
        run: that the checkpoint lies in; None for others, such as the authors'.
    """

    path: str
    prefix: str | None = None
    run: RunDirectory | None = None


def find_source(path: str | os.PathLike, flag: str) -> Source:
    """What a path means.

    Args:
        path: the directory of a run, for its newest whole checkpoint (of a seed's directory of fine-tuning: the best
            one where it was kept); its `checkpoints/`, `milestones/` or `best/`, likewise; the prefix of a checkpoint,
            of a run or the authors', or a file of it; a directory with TensorFlow's file `checkpoint`; one of Hugging
            Face's folders.
        flag: by which the user gives the path, for messages.
    Raises: UserError: if there is no such model, or its checkpoint is damaged.
    """
    path = os.fspath(path)
    place = f"{flag}={path}"
    path = path.rstrip("/") if is_remote(path) else os.path.abspath(path)
    with store_errors(place, "cannot be reached"):
        is_there, is_directory = tf.io.gfile.exists(path), tf.io.gfile.isdir(path)
    prefix = path if is_directory else _ENDING.sub("", path)  # a directory may be named like a file of a checkpoint
    if exists(f"{prefix}.index") and not tf.io.gfile.isdir(f"{prefix}.index"):
        return _checkpoint(prefix, prefix, place)
    if not is_there:
        raise UserError(
            f"{place}: there is neither a run nor a checkpoint; expected a run's directory, a folder of Hugging Face's "
            f"or {_PREFIX}"
        )
    if not is_directory:
        raise UserError(f"{place} is a file; give the folder that holds it, or {_PREFIX}")
    run = RunDirectory(path)
    if exists(run.config_file):
        folders = (run.best, run.checkpoints) if run.is_finetuned else (run.checkpoints,)
        return Source(path, _newest(folders, place), run)
    if (run := _run_of(os.path.join(path, ""))) is not None:
        return Source(path, _newest((path,), place), run)
    if is_hugging_face(path):
        return Source(path)
    return _checkpoint(path, _registered(path, place), place)


def _checkpoint(path: str, prefix: str, place: str) -> Source:
    if (reason := damage(prefix)) is not None:
        raise UserError(f"{place} is no readable TensorFlow checkpoint: {reason}; give another one")
    run = _run_of(prefix)
    if run is not None:
        step_of(prefix)
    return Source(path, prefix, run)


def _run_of(prefix: str) -> RunDirectory | None:
    """The run in one of whose folders a checkpoint lies, also where links of this machine lead there."""
    place = os.path.dirname(prefix)
    for each in (place,) if is_remote(place) else (place, os.path.realpath(place)):
        directory, folder = os.path.split(each)
        run = RunDirectory(directory)
        if folder in ("checkpoints", "milestones", "best") and exists(run.config_file):
            return run
    return None


def _newest(folders: tuple[str, ...], place: str) -> str:
    """The newest whole checkpoint of the first folder that holds any."""
    for folder in folders:
        if (prefix := newest_whole(folder)) is not None:
            return prefix
    raise UserError(
        f"{place} is a run without a checkpoint yet; train it first or give another one (--keep=none keeps none)"
    )


def _registered(directory: str, place: str) -> str:
    """The newest checkpoint of a directory by TensorFlow's file `checkpoint`."""
    try:
        prefix = tf.train.latest_checkpoint(directory)
    except UnicodeDecodeError:
        raise UserError(f"{place}: its file `checkpoint` is damaged, it is not UTF-8; give {_PREFIX}") from None
    if prefix is None:
        if seeds := sorted(name for name in names_in(directory) if name.startswith("seed_")):
            raise UserError(f"{place} holds seeds of a fine-tuning; give one of them: {directory}/{seeds[0]}")
        raise UserError(
            f"{place}: it holds neither a run (config.yaml) nor TensorFlow's file `checkpoint` with a checkpoint that "
            f"is there, and is no folder of Hugging Face's (config.json); give {_PREFIX}"
        )
    return prefix
