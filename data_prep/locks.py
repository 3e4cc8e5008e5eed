"""The locks of a build, which one process has for itself, or several machines share.

A process alone locks its directories. A machine locks its number, in a file beside the build's intermediate files, as
network file systems lock no directories; and for a while the shards, which stand for all that the machines share.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from data_prep.settings import BuildSettings
from electra_tf.config.errors import UserError
from electra_tf.files import is_remote, locked_file

_SECONDS_TO_OPEN = 60  # for machines that start at the same time


def lock_build(settings: BuildSettings, is_same: bool, stack: contextlib.ExitStack) -> None:
    """Locks the directories of a build, or the number of a machine, until `stack` closes.

    Args:
        is_same: whether the build has begun, and does not change: other machines may be at work on it.
    Raises: UserError: another process is at work in the directories.
    """
    settings.build_dir.mkdir(parents=True, exist_ok=True)
    own = _lock_file(settings, f"machine-{settings.part[0]}")
    if settings.machine:
        _enter_lock(own, f"is doing --machine={settings.machine}", stack)
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
def opening(settings: BuildSettings) -> Iterator[None]:
    """Lets machines open the output directory one after the other. Raises: UserError: another build is in it."""
    with contextlib.ExitStack() as stack:
        if settings.machine and not lock_shards(settings, stack, _SECONDS_TO_OPEN):
            raise UserError(f"another process is building in {settings.output_dir}; wait, or use another directory")
        yield


def lock_shards(settings: BuildSettings, stack: contextlib.ExitStack, max_seconds: float) -> bool:
    """Keeps other machines from opening the output directory and from writing shards, until `stack` closes.

    Returns: False if another one does so for longer than `max_seconds`.
    """
    settings.build_dir.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + max_seconds
    while True:
        try:
            stack.enter_context(locked_file(_lock_file(settings, "shards")))
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(0.1)


def remove_lock_files(settings: BuildSettings) -> None:
    """Removes the files that were locked, when a build is finished."""
    for path in _lock_files(settings, "*"):
        path.unlink(missing_ok=True)


def _lock_file(settings: BuildSettings, name: str) -> Path:
    return settings.build_dir.with_name(f"{settings.build_dir.name}.{name}")


def _lock_files(settings: BuildSettings, pattern: str) -> list[Path]:
    return sorted(settings.build_dir.parent.glob(f"{settings.build_dir.name}.{pattern}"))
