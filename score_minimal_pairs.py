"""Scores models on minimal pairs; the flags are in electra_tf/cli/score_minimal_pairs.py."""

import sys

from electra_tf.cli.score_minimal_pairs import main

if __name__ == "__main__":
    sys.exit(main())
