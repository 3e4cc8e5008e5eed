"""Trains a vocabulary; the flags are in data_prep/cli/build_vocab.py."""

import sys

from data_prep.cli.build_vocab import main

if __name__ == "__main__":
    sys.exit(main())
