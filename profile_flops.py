"""Counts FLOPs; the flags are in electra_tf/cli/profile_flops.py."""

import sys

from electra_tf.cli.profile_flops import main

if __name__ == "__main__":
    sys.exit(main())
