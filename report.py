"""Compares runs; the flags are in electra_tf/cli/report.py."""

import sys

from electra_tf.cli.report import main

if __name__ == "__main__":
    sys.exit(main())
