"""`python -m electra_tf` is `electra-tf`."""

import sys

from electra_tf.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
