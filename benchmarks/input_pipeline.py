"""Sequences per second of the pipeline that feeds the training step, beside bare reading of the same records.

    python -m benchmarks.input_pipeline --data_dir=DIR --batch_size=128 --at_least=20000

Ours is what the trainer reads: records in shuffled order, parsed, padded, masked, batched. Bare reading is
`tf.data.TFRecordDataset` of the same shards, batched, nothing parsed: what the disk and the framing of records allow.
Nothing trains meanwhile, so a rate is what the cores give to data alone. The two take turns, so that what else the
machine does meets both. Prints one JSON object; exits 1 if ours is slower than the floor.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from electra_tf.cli.flags import flag_parser, run_command

if TYPE_CHECKING:
    import tensorflow as tf

_DEFAULT_CONFIG = Path(__file__).resolve().parents[1] / "configs" / "pretrain" / "small.yaml"
# The first batches pay for the traces of the functions and for buffers that are still empty.
_WARM_UP_BATCHES = 20


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = flag_parser(__doc__)
    parser.add_argument("--data_dir", required=True, help="data set of build_pretraining_dataset.py")
    parser.add_argument(
        "--config", default=_DEFAULT_CONFIG, help="whose masking to use; vocabulary and length are the data set's"
    )
    parser.add_argument("--batch_size", type=int, default=128, help="sequences in a batch")
    parser.add_argument("--rounds", type=int, default=5, help="timed turns of each")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each turn")
    parser.add_argument("--at_least", type=float, default=0.0, metavar="RATE", help="floor in sequences a second")
    flags = parser.parse_args(arguments)
    for name in ("batch_size", "rounds", "seconds"):
        if getattr(flags, name) <= 0:
            parser.error(f"--{name} must be positive")
    return flags


def sequences_per_second(batches: Iterator["tf.Tensor"], batch_size: int, seconds: float) -> float:
    """Takes batches for a time. Raises: StopIteration: they end before it is over."""
    num_batches = 0
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        next(batches)
        num_batches += 1
    return num_batches * batch_size / elapsed


def measure(flags: argparse.Namespace) -> bool:
    """Prints the report; returns whether the floor is held."""
    import tensorflow as tf

    from electra_tf.data.corpus import open_data
    from electra_tf.data.pretraining_input import training_batches
    from electra_tf.tasks.pretrain.config import load_config
    from electra_tf.text.manifest import Manifest

    tf.config.set_visible_devices([], "GPU")
    manifest = Manifest.load(flags.data_dir)
    config = load_config(
        flags.config,
        [f"encoder.vocab_size={manifest.vocab_size}", f"data.max_seq_length={manifest.max_seq_length}"],
    )
    data = open_data(flags.data_dir, config)
    batches = {
        "ours": training_batches(
            data.train, config.masking, data.masking_vocabulary, seed=0, batch_size=flags.batch_size, first_step=0
        ),
        "bare_records": tf.data.TFRecordDataset(list(data.train.files))
        .repeat()
        .batch(flags.batch_size)
        .prefetch(tf.data.AUTOTUNE),
    }
    rates = _rates(batches, flags)
    report = {
        "sequences_per_second": {name: round(statistics.median(values)) for name, values in rates.items()},
        "lowest_and_highest": {name: [round(min(values)), round(max(values))] for name, values in rates.items()},
        "ratio_to_bare_records": round(
            statistics.median(a / b for a, b in zip(rates["ours"], rates["bare_records"], strict=True)), 3
        ),
        "at_least": flags.at_least,
        "max_seq_length": manifest.max_seq_length,
        "batch_size": flags.batch_size,
        "rounds": flags.rounds,
        "num_cores": len(os.sched_getaffinity(0)),
        "num_examples": data.train.total_examples,
    }
    print(json.dumps(report))
    return statistics.median(rates["ours"]) >= flags.at_least


def _rates(batches: dict[str, "tf.data.Dataset"], flags: argparse.Namespace) -> dict[str, list[float]]:
    """Sequences per second of each, a number a round."""
    rates: dict[str, list[float]] = {name: [] for name in batches}
    for _ in range(flags.rounds):
        for name, dataset in batches.items():
            # A fresh iterator each turn: one that waits goes on filling its buffers while the other is timed.
            iterator = iter(dataset)
            for _ in range(_WARM_UP_BATCHES):
                next(iterator)
            rates[name].append(sequences_per_second(iterator, flags.batch_size, flags.seconds))
            del iterator
    return rates


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    held = []
    status = run_command(lambda: held.append(measure(flags)))
    return status or int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
