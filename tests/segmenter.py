"""Programs that cut text into words."""

import shlex
import sys


def program(code: str) -> str:
    """The command that runs this Python code; it starts fast, and reads and writes UTF-8."""
    return shlex.join([sys.executable, "-ISX", "utf8", "-c", code])


# "w5w6" becomes "w5 w6", and "ab" becomes "a b".
SEGMENTER = program("import re, sys\nfor line in sys.stdin: print(re.sub('(?=[a-z])', ' ', line), end='')")
