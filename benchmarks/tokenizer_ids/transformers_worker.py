"""Prints the ids that transformers gives to lines, for an environment that may hold nothing else.

    python transformers_worker.py FOLDER LINES_FILE

LINES_FILE is JSON, a list of texts; the output is JSON: transformers' version, and a list of ids for each text.
"""

import json
import sys
from pathlib import Path

import transformers


def main(folder: str, lines_file: str) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    lines = json.loads(Path(lines_file).read_text(encoding="utf-8"))
    ids = tokenizer(lines, add_special_tokens=False)["input_ids"] if lines else []
    json.dump({"version": transformers.__version__, "ids": ids}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
