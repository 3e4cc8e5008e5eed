"""The speed of the pre-training input in sequences per second, compared with plain reading of the same records.

    python -m benchmarks.input_pipeline --data_dir=DIR --batch_size=128 --at_least=20000

`ours` is the trainer's input: shuffled records, parsed, padded, masked and batched. `plain_records` is
`tf.data.TFRecordDataset` of the same shards, batched but not parsed: the limit of the disk and the record format.
Nothing trains meanwhile. The two take turns, so that other load on the machine affects both. Prints one JSON object,
and exits 1 if ours is slower than --at_least.
"""

import argparse
import json
import os
import statistics
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.harness import PROJECT, ratio, take_turns
from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command

if TYPE_CHECKING:
    import tensorflow as tf

_WARM_UP_BATCHES = 20  # the first batches trace functions and fill buffers


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = flag_parser(__doc__)
    parser.add_argument("--data_dir", required=True, help="data set of electra-tf build-data")
    parser.add_argument(
        "--config",
        default=PROJECT / "configs" / "pretrain" / "small.yaml",
        help="YAML file with the masking; vocabulary and length are the data set's",
    )
    parser.add_argument("--batch_size", type=int, default=128, help="sequences in a batch")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a turn")
    parser.add_argument("--at_least", type=float, default=0.0, metavar="RATE", help="floor in sequences a second")
    return parser.parse_args(arguments)


def measure(flags: argparse.Namespace) -> bool:
    """Measures both rates and prints the report. Returns: whether ours reaches --at_least."""
    import tensorflow as tf

    from electra_tf.data.corpus import open_data
    from electra_tf.data.pretraining_input import training_batches
    from electra_tf.tasks.pretrain.config import load_config
    from electra_tf.text.manifest import Manifest

    tf.config.set_visible_devices([], "GPU")
    manifest = Manifest.load(flags.data_dir)
    sizes = [f"encoder.vocab_size={manifest.vocab_size}", f"data.max_seq_length={manifest.max_seq_length}"]
    config = load_config(flags.config, sizes)
    data = open_data(flags.data_dir, config)
    ours = training_batches(data, config.masking, seed=0, batch_size=flags.batch_size, first_step=0)
    plain = tf.data.TFRecordDataset(list(data.train.files)).repeat().batch(flags.batch_size).prefetch(tf.data.AUTOTUNE)
    calls = {
        name: partial(sequences_per_second, dataset, flags.batch_size, flags.seconds)
        for name, dataset in {"ours": ours, "plain_records": plain}.items()
    }
    rates = take_turns(calls, flags.rounds)
    report = {
        "sequences_per_second": {name: round(statistics.median(values)) for name, values in rates.items()},
        "lowest_and_highest": {name: [round(min(values)), round(max(values))] for name, values in rates.items()},
        "ratio_to_plain_records": round(ratio(*rates.values()), 3),
        "at_least": flags.at_least,
        "max_seq_length": manifest.max_seq_length,
        "batch_size": flags.batch_size,
        "rounds": flags.rounds,
        "num_cores": len(os.sched_getaffinity(0)),
        "num_examples": data.train.total_examples,
    }
    print(json.dumps(report))
    return statistics.median(rates["ours"]) >= flags.at_least


def sequences_per_second(dataset: "tf.data.Dataset", batch_size: int, seconds: float) -> float:
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
    flags = parse_flags(arguments)
    return run_command(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
