"""The locks of a build, which one process has for itself, or several machines share.

A process alone locks its directories. A machine locks its number, in a file beside the build's intermediate files, as
network file systems lock no directories; and for a while the shards, which stand for all that the machines share.
"""

import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path

from data_prep.settings import BuildSettings
from electra_tf.config.errors import UserError
from electra_tf.files import is_remote, locked_file

_logger = logging.getLogger(__name__)

# A new try opens the file again: on NFS, a process that waits for a file that another removes would get an error.
_SECONDS_BETWEEN_TRIES = 0.5


def lock_build(settings: BuildSettings, is_same: bool, stack: contextlib.ExitStack) -> None:
    """Locks the directories of a build, or the number of a machine, until `stack` closes.

    Args:
        is_same: whether the build has begun, and does not change: other machines may be at work on it.
    Raises: UserError: another process is at work in the directories.
    """
    settings.build_dir.mkdir(parents=True, exist_ok=True)
    own = _lock_file(settings, f"machine-{settings.part[0]}")
    if settings.machine:
        _enter_lock(own, f"is doing machine={settings.machine}", stack)
    else:
        paths = {settings.build_dir.parent}
        if not is_remote(settings.output_dir):
            paths.add(Path(settings.output_dir))
        if settings.work_dir:  # which machines may share
            paths.add(_lock_file(settings, "shards"))
        for path in sorted(paths):
            _enter_lock(path, f"is building in {path}", stack)
    if settings.machine and is_same:
        return
    for path in _lock_files(settings, "machine-*"):
        if not (settings.machine and path == own):
            with contextlib.ExitStack() as briefly:
                _enter_lock(path, f"is doing a part of the build ({path})", briefly)


def _enter_lock(path: Path, what: str, stack: contextlib.ExitStack) -> None:
    try:
        stack.enter_context(locked_file(path))
    except BlockingIOError:
        raise UserError(f"another process {what}; end it, or use another directory") from None


@contextlib.contextmanager
def taking_turns(settings: BuildSettings) -> Iterator[None]:
    """Waits until no other machine opens the output directory, counts the work units or writes shards.

    The others wait until the end of the context. They may have finished the data set meanwhile, and removed the file
    that is locked here, so each looks for the manifest first.
    """
    with contextlib.ExitStack() as stack:
        if settings.machine:
            settings.build_dir.parent.mkdir(parents=True, exist_ok=True)
            path, is_waiting = _lock_file(settings, "shards"), False
            while True:
                try:
                    stack.enter_context(locked_file(path))
                    break
                except BlockingIOError:
                    if not is_waiting:
                        _logger.info("waiting for another process, which has locked %s", path)
                    is_waiting = True
                    time.sleep(_SECONDS_BETWEEN_TRIES)
        yield


def remove_lock_files(settings: BuildSettings) -> None:
    """Removes the files that were locked, when a build is finished."""
    for path in _lock_files(settings, "*"):
        path.unlink(missing_ok=True)


def _lock_file(settings: BuildSettings, name: str) -> Path:
    return settings.build_dir.with_name(f"{settings.build_dir.name}.{name}")


def _lock_files(settings: BuildSettings, pattern: str) -> list[Path]:
    return sorted(settings.build_dir.parent.glob(f"{settings.build_dir.name}.{pattern}"))
