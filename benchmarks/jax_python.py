"""Commands in an environment of benchmarks/requirements-tpu-compile.txt, whose Python `--jax_python` names."""

import subprocess
from collections.abc import Sequence
from os import PathLike

from electra_tf.config.errors import UserError


def output_of(python: str, arguments: Sequence[str | PathLike], lacking: str) -> str:
    """What this Python prints when it is run with these arguments.

    Args:
        lacking: what to say of it if that fails: "has no ...".
    Raises: UserError: if it fails, with the last that it said.
    """
    try:
        return subprocess.run([python, *arguments], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        reason = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
        raise UserError(
            f"--jax_python={python} {lacking} ({reason}); make an environment of "
            "benchmarks/requirements-tpu-compile.txt and give its Python"
        ) from None
