"""Pre-trains an encoder; the flags are in electra_tf/cli/run_pretraining.py."""

import sys

from electra_tf.cli.run_pretraining import main

if __name__ == "__main__":
    sys.exit(main())
