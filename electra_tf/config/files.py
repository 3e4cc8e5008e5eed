"""Files by path or by URL: `gs://`, `s3://`, `hdfs://` and all other file systems of fsspec."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from electra_tf.config.errors import UserError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


def is_remote(path: str | Path) -> bool:
    """Whether a path is a URL rather than a path of this machine."""
    return "://" in str(path)


@contextlib.contextmanager
def filesystem_of(url: str) -> Iterator[tuple["AbstractFileSystem", str]]:
    """Gives the file system of a URL, and the URL's name in it.

    Raises: UserError: an unknown protocol, a file system whose package is not installed, or one that cannot be set up.
        OSError: any error inside the context.
    """
    filesystem, name = _open_filesystem(url)
    try:
        yield filesystem, name
    except OSError:
        raise
    except Exception as error:  # each store has exceptions of its own, for missing credentials say
        raise OSError(None, f"{type(error).__name__}: {error}", url) from error


def _open_filesystem(url: str) -> tuple["AbstractFileSystem", str]:
    from fsspec.core import url_to_fs  # takes 0.1 s, which local paths do not need

    protocol = url.partition("://")[0]
    try:
        return url_to_fs(url)
    except ImportError as error:
        raise UserError(f"{url} needs a package for {protocol}://: {error}") from None
    except ValueError:
        raise UserError(
            f"{url} has the unknown protocol {protocol}://; expected a path or one such as gs://, s3:// or hdfs://"
        ) from None
    except OSError as error:  # without Java or Hadoop, hdfs:// fails here with a message of a hundred lines
        reason = str(error).splitlines()[0]
        raise UserError(f"cannot reach {url}: {reason}; set up what its file system needs") from None


def read_bytes(path: str | Path) -> bytes:
    """The content of a file.

    Raises: OSError: it cannot be read. UserError: see `filesystem_of`.
    """
    if not is_remote(path):
        return Path(path).read_bytes()
    with filesystem_of(str(path)) as (filesystem, name):
        return filesystem.cat_file(name)
