"""Converts a model between formats; the flags are in electra_tf/cli/convert_checkpoint.py."""

import sys

from electra_tf.cli.convert_checkpoint import main

if __name__ == "__main__":
    sys.exit(main())
