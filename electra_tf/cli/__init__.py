"""Flags and entry points of the commands."""

import importlib.util
import sys

from electra_tf.checkout import in_checkout

# Before any other module: outside of the environment all packages are missing.
if importlib.util.find_spec("tensorflow") is None:
    remedy = "`source .venv/bin/activate`, or ./setup.sh if there is no .venv yet" if in_checkout() else "pip check"
    print(f"error: tensorflow is not installed in this Python ({sys.executable}); run {remedy}", file=sys.stderr)
    sys.exit(2)
