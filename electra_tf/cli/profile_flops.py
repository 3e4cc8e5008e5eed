"""Counts the floating-point operations of a run by formula.

    electra-tf flops --config=small
    electra-tf flops --config=small --budget=1e18 --model_dir=RUN
    electra-tf flops --config=small --set train.precision=bfloat16 --hours --device=a100
    electra-tf flops --paper_flops

There are two conventions: `paper` (appendix E) for comparison with the paper's figures, and `hardware` for the
operations that a device computes. See docs/notes/flops.md.
"""

import json
from argparse import Namespace

from electra_tf.cli.configuration import config_of
from electra_tf.cli.flags import (
    add_config_flag,
    add_objective_module_flag,
    add_set_flag,
    flag_parser,
    positive_int,
    require_flags,
)
from electra_tf.cli.process import run_command
from electra_tf.flops.devices import DEVICES


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    add_config_flag(parser)
    add_set_flag(parser)
    add_objective_module_flag(parser)
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--json", action="store_true", help="print the totals of --config as one JSON object")
    modes.add_argument(
        "--paper_flops",
        action="store_true",
        help="print the authors' thirteen published numbers as one JSON object",
    )
    modes.add_argument(
        "--hours",
        action="store_true",
        help="print the run's estimated hours on --device, from its published peak",
    )
    modes.add_argument("--budget", type=float, metavar="FLOPS", help="print the number of steps that FLOPS pay for")
    parser.add_argument("--convention", default="paper", choices=["paper", "hardware"], help="for --budget")
    parser.add_argument("--model_dir", metavar="DIR", help="for --budget: use the speed that this run reported")
    parser.add_argument("--device", choices=DEVICES, help="for --hours: the device")
    parser.add_argument(
        "--device_count", type=positive_int, default=1, metavar="N", help="for --hours: number of devices"
    )
    parser.add_argument(
        "--utilization", type=float, metavar="FRACTION", help="for --hours: speed / peak (default: 0.2 and 0.4)"
    )
    parser.add_argument(
        "--price_per_hour", type=float, metavar="PRICE", help="for --hours: one device's price; prints the run's price"
    )
    arguments = parser.parse_args(argv)
    return run_command(lambda: print(_output(arguments)))


def _output(arguments: Namespace) -> str:
    if arguments.paper_flops:
        from electra_tf.flops.published import PUBLISHED

        return json.dumps({name: float(flops) for name, flops in PUBLISHED.items()})
    require_flags(arguments, "config", *(["device"] if arguments.hours else ()))
    config = config_of(arguments)

    from electra_tf.reports.costs import budget_text, cost_tables, cost_values, hours_text, reported_speed

    if arguments.json:
        return json.dumps(cost_values(config))
    if arguments.budget is not None:
        speed = reported_speed(arguments.model_dir) if arguments.model_dir else None
        return budget_text(config, arguments.budget, arguments.convention, speed)
    if arguments.hours:
        devices = arguments.device, arguments.device_count
        return hours_text(config, *devices, arguments.utilization, arguments.price_per_hour)
    return cost_tables(config)
