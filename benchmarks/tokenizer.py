"""Tokens per second of the project's tokenizer beside FastBertTokenizer's, on one thread.

    taskset -c 0 python -m benchmarks.tokenizer --input 'corpus/*.txt' --vocab_file=vocab.txt

FastBertTokenizer is the fastest that tensorflow_text has; its ids are not BERT's on every line, ours are. Both read the
same batches of lines from memory, in turns, so that what else the machine does meets both. Prints one JSON object.
"""

import argparse
import glob
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from electra_tf.cli.flags import flag_parser, run_command
from electra_tf.config.errors import UserError


def parse_flags() -> argparse.Namespace:
    parser = flag_parser(__doc__)
    parser.add_argument("--input", nargs="+", required=True, metavar="GLOB", help="text files, a line each input")
    parser.add_argument("--vocab_file", required=True, help="BERT's vocab.txt")
    parser.add_argument("--batch_size", type=int, default=1024, help="lines in a batch")
    parser.add_argument("--rounds", type=int, default=7, help="timed passes of each over the text")
    parser.add_argument("--max_megabytes", type=float, default=20.0, help="text to read at most")
    return parser.parse_args()


def read_lines(patterns: list[str], max_bytes: float) -> list[bytes]:
    """The lines that hold more than white space, up to a number of bytes. Raises: UserError: there is none."""
    lines, num_bytes = [], 0
    for path in sorted({path for pattern in patterns for path in glob.glob(pattern)}):
        for line in Path(path).read_bytes().split(b"\n"):
            if line.strip() and num_bytes < max_bytes:
                lines.append(line)
                num_bytes += len(line)
    if not lines:
        raise UserError(f"--input {' '.join(patterns)} holds no text; give files with text")
    return lines


def seconds_and_tokens(tokenize: Callable[[Any], Any], batches: list[Any]) -> tuple[float, int]:
    """One pass over the batches."""
    start = time.perf_counter()
    num_tokens = sum(int(tokenize(batch).values.shape[0]) for batch in batches)
    return time.perf_counter() - start, num_tokens


def measure(flags: argparse.Namespace) -> None:
    import tensorflow as tf
    import tensorflow_text as tf_text

    from electra_tf.text.tokenizer import MAX_BYTES_PER_CHARACTER, MAX_CHARACTERS_PER_WORD, BertTokenizer
    from electra_tf.text.vocabulary import Vocabulary

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    vocabulary = Vocabulary.load(flags.vocab_file)
    lines = read_lines(flags.input, flags.max_megabytes * 1e6)
    batches = [tf.constant(lines[i : i + flags.batch_size]) for i in range(0, len(lines), flags.batch_size)]
    ours = BertTokenizer(vocabulary)
    fast = tf_text.FastBertTokenizer(
        list(vocabulary.tokens),
        max_bytes_per_word=MAX_CHARACTERS_PER_WORD * MAX_BYTES_PER_CHARACTER,
        token_out_type=tf.int32,
        lower_case_nfd_strip_accents=True,
    )
    signature = [tf.TensorSpec([None], tf.string)]
    contestants = {
        "ours": tf.function(ours.tokenize, input_signature=signature),
        "fast_bert_tokenizer": tf.function(fast.tokenize, input_signature=signature),
    }
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    num_tokens = {}
    for timed in [False] + [True] * flags.rounds:  # the first round traces the functions
        for name, tokenize in contestants.items():
            seconds, num_tokens[name] = seconds_and_tokens(tokenize, batches)
            if timed:
                rates[name].append(num_tokens[name] / seconds)
    num_plain = sum(int(tf.math.count_nonzero(ours.is_plain(batch))) for batch in batches)
    ratios = [a / b for a, b in zip(rates["ours"], rates["fast_bert_tokenizer"], strict=True)]
    report = {
        "tokens_per_second": {name: round(statistics.median(values)) for name, values in rates.items()},
        "ratio": round(statistics.median(ratios), 3),
        "rounds": flags.rounds,
        "num_tokens": num_tokens,
        "num_lines": len(lines),
        "num_bytes": sum(map(len, lines)),
        "plain_line_fraction": round(num_plain / len(lines), 4),
        "tensorflow_text": tf_text.__version__,
    }
    print(json.dumps(report))


def main() -> int:
    flags = parse_flags()
    return run_command(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
