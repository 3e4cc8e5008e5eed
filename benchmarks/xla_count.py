"""Holds the project's count of XLA's programs against XLA's own cost analysis, for every objective's training step.

    python -m benchmarks.xla_count --jax_python=/tmp/tpu-compile/bin/python

The project reads the text of a program (`electra_tf.flops.xla_cost`), as TensorFlow has no call for XLA's analysis;
jax has one, and takes the same text. Configurations are reduced until XLA's sums, which are float32, hold every unit,
and then the two must be equal. The environment of jax is that of benchmarks/requirements-tpu-compile.txt.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.jax_python import output_of
from electra_tf.cli.flags import flag_parser, run_command
from electra_tf.config.errors import UserError
from electra_tf.tasks.pretrain.config import load_config
from electra_tf.tasks.pretrain.reduction import ReducedSizes, reduce_config

_PROJECT = Path(__file__).resolve().parents[1]
_ANALYSIS = Path(__file__).with_name("xla_count_analysis.py")
_SIZES = ReducedSizes(vocab_size=150, hidden_size=16, max_seq_length=10, batch_size=2, num_steps=4)
_MOST = 2**24  # above it a float32 skips numbers


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--jax_python", metavar="FILE", required=True, help="the Python of an environment with jax")
    parser.add_argument(
        "--config", nargs="+", metavar="FILE", help="configurations; if not given, those of configs/pretrain/ablations"
    )
    arguments = parser.parse_args(argv)
    equal: list[bool] = []
    status = run_command(lambda: equal.append(_compare(arguments)))
    return status or int(not all(equal))


def _compare(arguments) -> bool:
    from electra_tf.flops.measured import xla_programs
    from electra_tf.flops.xla_cost import count_program

    files = arguments.config or sorted((_PROJECT / "configs" / "pretrain" / "ablations").glob("*.yaml"))
    configs = {Path(file).stem: reduce_config(load_config(file), _SIZES) for file in files}
    _analysed(arguments.jax_python, [])
    print("| configuration, phase | flops, here | flops, XLA | transcendental, here | transcendental, XLA | |")
    print("|---|---|---|---|---|---|")
    all_equal = True
    for name, config in configs.items():
        programs = xla_programs(config)
        for number, (text, own) in enumerate(zip(programs, _analysed(arguments.jax_python, programs), strict=True), 1):
            count = count_program(text)
            here, there = (count.flops, count.transcendental), (own["flops"], own["transcendentals"])
            if max(here) >= _MOST:
                raise UserError(f"{name} computes {max(here):,} operations, and XLA's sums are exact to {_MOST:,} only")
            equal = here == there and not count.uncounted
            all_equal &= equal
            columns = (here[0], int(there[0]), here[1], int(there[1]))
            verdict = "equal" if equal else f"DIFFERENT {' '.join(count.uncounted)}"
            print(f"| {name}, {number} | {' | '.join(f'{each:,}' for each in columns)} | {verdict} |", flush=True)
    return all_equal


def _analysed(python: str, programs: Sequence[str]) -> list[dict[str, float]]:
    """XLA's analysis of each. Raises: UserError: if this Python cannot give it."""
    with tempfile.TemporaryDirectory(prefix="xla_count_") as scratch:
        files = [Path(scratch) / f"{number}.txt" for number in range(len(programs))]
        for file, text in zip(files, programs, strict=True):
            file.write_text(text, encoding="utf-8")
        printed = output_of(python, [_ANALYSIS, *files], lacking="gives no analysis")
    return [json.loads(line) for line in printed.splitlines()]


if __name__ == "__main__":
    sys.exit(main())
