"""Builds TFRecords; the flags are in data_prep/cli/build_pretraining_dataset.py."""

import sys

from data_prep.cli.build_pretraining_dataset import main

if __name__ == "__main__":
    sys.exit(main())
