"""Exports a run as a SavedModel; the flags are in electra_tf/cli/export_saved_model.py."""

import sys

from electra_tf.cli.export_saved_model import main

if __name__ == "__main__":
    sys.exit(main())
