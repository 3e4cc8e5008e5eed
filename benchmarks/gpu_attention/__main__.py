"""Times the training step on a GPU with one of the candidates for its attention.

    python -m benchmarks.gpu_attention --config=base --attention=flash --kernels=KERNELS.json \
        --set train.batch_size=64 --set train.precision=bfloat16

Prints two lines of JSON: the first step, which compiles; then milliseconds a step (the median of the rounds) and the
memory. One candidate a process; `benchmarks.gpu_attention.block` compares several. XLA_FLAGS has flags of XLA.
"""

import argparse
import json
import sys
from pathlib import Path

import tensorflow as tf

from benchmarks.gpu_attention.candidates import CANDIDATES, install
from benchmarks.gpu_attention.timing import add_timing_flags, print_timing
from benchmarks.harness import config_file
from benchmarks.train_step.ours import OurStep, peer_sizes
from electra_tf.cli.flags import add_set_flag, flag_parser
from electra_tf.cli.process import run_command


def measure(flags: argparse.Namespace) -> None:
    if flags.sizes:
        return print(json.dumps(peer_sizes(flags.config, flags.overrides)))
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    counts = install(flags.attention, flags.kernels)
    step = OurStep(flags.config, flags.overrides)
    peak = (lambda: tf.config.experimental.get_memory_info("GPU:0")["peak"]) if gpus else lambda: None
    return print_timing(flags, step.run, peak, attention=counts)


def build_parser() -> argparse.ArgumentParser:
    parser = flag_parser(__doc__)
    flag = parser.add_argument
    flag("--config", type=config_file, required=True, metavar="FILE", help="YAML file or preset")
    flag("--attention", choices=CANDIDATES, default=CANDIDATES[0], help="candidate (default: standing)")
    flag("--kernels", type=Path, metavar="FILE", help="file of benchmarks.gpu_attention.kernels, for flash")
    flag("--sizes", action="store_true", help="only print the sizes for benchmarks.gpu_attention.pytorch")
    add_timing_flags(parser)
    add_set_flag(parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    flags = build_parser().parse_args(arguments)
    return run_command(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
