"""Builds that end early, as a kill or a full disk ends them."""

import itertools

import pytest

from data_prep.build import build
from electra_tf.config.errors import UserError


class Killed(BaseException):
    """Stands for SIGKILL: the builder does not clean up after it."""


def stop_at(patch: pytest.MonkeyPatch, module, name: str, call: int, failure: BaseException, after: bool) -> None:
    """Raises `failure` in the `call`-th call of a function, and the later ones, after or before its work."""
    function, calls = getattr(module, name), itertools.count(1)

    def stopping(*arguments, **keyword_arguments):
        is_last = next(calls) >= call
        result = function(*arguments, **keyword_arguments) if after or not is_last else None
        if is_last:
            raise failure
        return result

    patch.setattr(module, name, stopping)


def build_until(settings, module, name: str, call: int, *, failure=None, after=True, match: str | None = None) -> None:
    """Builds until a call of a function: see `stop_at`. Without a `failure`, the build is killed there."""
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, module, name, call, failure or Killed(), after)
        with pytest.raises(UserError if match else Killed, match=match):
            build(settings)
