"""Flags and entry points of the commands."""

import importlib.util
import sys

# Before any other import: outside of the environment all packages are missing.
if importlib.util.find_spec("tensorflow") is None:
    print(
        f"error: tensorflow is not installed in this Python ({sys.executable}); run `source .venv/bin/activate`, or "
        "./setup.sh if there is no .venv yet",
        file=sys.stderr,
    )
    sys.exit(2)
