"""The speed of the pre-training input in sequences per second, compared with plain reading of the same records.

    python -m benchmarks.input_pipeline --data_dir=DIR --batch_size=128 --at_least=20000

`ours` is the trainer's input: shuffled records, parsed, padded, masked and batched. `plain_records` is
`tf.data.TFRecordDataset` of the same shards, batched but not parsed: the limit of the disk and the record format.
Nothing trains meanwhile. The two take turns, so that other load on the machine affects both. Prints a table and PASS or
FAIL, and exits 1 if ours is slower than --at_least.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterable
from functools import partial

from benchmarks.harness import Verdict, conclude, config_file, print_table, ratio, shown, take_turns
from benchmarks.processor import print_processor
from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command

_WARM_UP_BATCHES = 20  # the first batches trace functions and fill buffers


def measure(flags: argparse.Namespace) -> bool:
    """Measures both rates and prints the report. Returns: whether ours reaches --at_least."""
    import tensorflow as tf

    from electra_tf.data.corpus import open_data
    from electra_tf.data.manifest import Manifest
    from electra_tf.data.pretraining_input import training_batches
    from electra_tf.tasks.pretrain.config import load_config

    tf.config.set_visible_devices([], "GPU")
    print_processor()
    manifest = Manifest.load(flags.data_dir)
    sizes = [f"encoder.vocab_size={manifest.vocab_size}", f"data.max_seq_length={manifest.max_seq_length}"]
    config = load_config(flags.config, sizes)
    data = open_data(flags.data_dir, config)
    ours = training_batches(data, config.masking, seed=0, batch_size=flags.batch_size, first_step=0, num_steps=1)
    plain = tf.data.TFRecordDataset(list(data.train.files)).repeat().batch(flags.batch_size).prefetch(tf.data.AUTOTUNE)
    calls = {
        name: partial(sequences_per_second, dataset, flags.batch_size, flags.seconds)
        for name, dataset in {"ours": ours, "plain_records": plain}.items()
    }
    rates = take_turns(calls, flags.rounds)
    title = f"{data.train.total_examples:,} examples of length {manifest.max_seq_length}"
    print_table(title, ["", "sequences/s"], [[name, shown(values)] for name, values in rates.items()])
    print(f"ours over plain_records: {ratio(*rates.values()):.3f}")
    return conclude([Verdict("ours, sequences/s", statistics.median(rates["ours"]), flags.at_least)])


def sequences_per_second(dataset: Iterable, batch_size: int, seconds: float) -> float:
    """The rate of an endless dataset, after some batches of warm-up."""
    batches = iter(dataset)  # a new one, because an old one has filled its buffers during the other's turn
    for _ in range(_WARM_UP_BATCHES):
        next(batches)
    num_batches = 0
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        next(batches)
        num_batches += 1
    return num_batches * batch_size / elapsed


def main(arguments: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    add = parser.add_argument
    add("--data_dir", required=True, help="data set of electra-tf build-data")
    add("--config", type=config_file, default="small", help="masking; vocabulary and length are the data set's")
    add("--batch_size", type=int, default=128, help="sequences in a batch")
    add("--rounds", type=int, default=5, help="turns of each contender")
    add("--seconds", type=float, default=3.0, help="length of a turn")
    add("--at_least", type=float, default=0.0, metavar="RATE", help="floor in sequences a second")
    flags = parser.parse_args(arguments)
    return run_command(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
