"""TensorFlow's file systems as one of fsspec's: for `ram://`, and for `gs://` where gcsfs is not installed."""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from fsspec import AbstractFileSystem
from fsspec.spec import AbstractBufferedFile


@contextlib.contextmanager
def _os_errors() -> Iterator[None]:
    """Turns TensorFlow's errors into those of the system."""
    try:
        yield
    except (tf.errors.NotFoundError, tf.errors.FailedPreconditionError) as error:  # FailedPrecondition: below a file
        raise FileNotFoundError(error.message) from None
    except tf.errors.OpError as error:
        raise OSError(error.message) from None


class TensorFlowFiles(AbstractFileSystem):
    """The files that TensorFlow reads. Their names are whole URLs."""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.rstrip("/")

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        with _os_errors():
            status = tf.io.gfile.stat(path)  # on some stores, `gfile.exists` returns False for every error
        kind = "directory" if status.is_directory else "file"
        return {"name": path, "size": status.length, "type": kind, "mtime": status.mtime_nsec or None}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        with _os_errors():
            paths = [f"{path}/{name.rstrip('/')}" for name in tf.io.gfile.listdir(path)]
        return [self.info(each) for each in paths] if detail else paths

    def _open(self, path: str, mode: str = "rb", **options: Any) -> "_File":
        return _File(self, path, mode, **options)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        with _os_errors(), tf.io.gfile.GFile(path, "rb") as file:
            if start:
                file.seek(start)
            return file.read(-1 if end is None else end - (start or 0))

    def put_file(self, lpath: str, rpath: str, **_: Any) -> None:
        with _os_errors():
            tf.io.gfile.copy(lpath, rpath, overwrite=True)

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        with _os_errors():
            tf.io.gfile.rename(path1, path2, overwrite=True)

    def rm_file(self, path: str) -> None:
        with _os_errors():
            tf.io.gfile.remove(path)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        with contextlib.suppress(tf.errors.NotFoundError), _os_errors():  # ram:// raises this after it has removed all
            tf.io.gfile.rmtree(path) if recursive else tf.io.gfile.remove(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        with _os_errors():
            tf.io.gfile.makedirs(path)


class _File(AbstractBufferedFile):
    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.fs.cat_file(self.path, start, end)
