"""Times the training step on a GPU with one of the candidates for its attention.

    python -m benchmarks.gpu_attention --config=base --attention=flash --kernels=KERNELS.json \
        --set train.batch_size=64 train.precision=bfloat16

Prints two lines of JSON: the losses of the first step and its seconds, then milliseconds a step (the median of the
rounds) and the memory. One candidate a process; compare those of one call of the machine. XLA_FLAGS has flags of XLA.
"""

import json
import statistics
import sys
import time
from argparse import Namespace
from pathlib import Path

import tensorflow as tf

from benchmarks.gpu_attention.candidates import CANDIDATES, install
from benchmarks.harness import config_file
from benchmarks.train_step.ours import OurStep
from electra_tf.cli.flags import add_set_flag, flag_parser
from electra_tf.cli.process import run_command


def measure(flags: Namespace) -> None:
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    counts = install(flags.attention, flags.kernels)
    step = OurStep(flags.config, flags.overrides)
    started = time.perf_counter()
    losses = step.run()
    first = {"attention": dict(counts), "first_step_s": time.perf_counter() - started, "losses": losses}
    print(json.dumps(first), flush=True)
    step.run(flags.warm_up)
    rounds = []
    for _ in range(flags.rounds):
        started = time.perf_counter()
        step.run(flags.steps)
        rounds.append(1e3 * (time.perf_counter() - started) / flags.steps)
    memory = tf.config.experimental.get_memory_info("GPU:0") if gpus else {}
    print(json.dumps({"ms": statistics.median(rounds), "rounds_ms": rounds, "peak_bytes": memory.get("peak")}))


def main(arguments: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    flag = parser.add_argument
    flag("--config", type=config_file, required=True, metavar="FILE", help="YAML file or preset")
    flag("--attention", choices=CANDIDATES, default=CANDIDATES[0], help="candidate (default: standing)")
    flag("--kernels", type=Path, metavar="FILE", help="file of benchmarks.gpu_attention.kernels, for flash")
    for name, default in (("warm_up", 3), ("steps", 10), ("rounds", 5)):
        flag(f"--{name}", type=int, default=default, metavar="N", help=f"(default: {default})")
    add_set_flag(parser)
    flags = parser.parse_args(arguments)
    return run_command(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
