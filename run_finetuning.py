"""Fine-tunes an encoder; the flags are in electra_tf/cli/run_finetuning.py."""

import sys

from electra_tf.cli.run_finetuning import main

if __name__ == "__main__":
    sys.exit(main())
