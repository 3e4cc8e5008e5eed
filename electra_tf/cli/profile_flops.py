"""Counts the floating-point operations of a run, by formula and in its traced training step.

    python profile_flops.py --config=configs/pretrain/small.yaml
    python profile_flops.py --config=configs/pretrain/small.yaml --budget=1e18 --measure_speed
    python profile_flops.py --config=configs/pretrain/tiny.yaml --measured
    python profile_flops.py --config=configs/pretrain/small.yaml --set train.precision=bfloat16 --hours --device=a100
    python profile_flops.py --paper_table

There are two conventions: the paper's (appendix E), to compare with its figures, and the hardware's: what a device has
to compute. See docs/flops.md.
"""

import json
import sys
from argparse import Namespace

from electra_tf.cli.configuration import add_objective_module_flag, config_of
from electra_tf.cli.flags import add_set_flag, flag_parser, run_command
from electra_tf.config.errors import UserError
from electra_tf.flops.devices import DEVICES


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--config", metavar="FILE", help="YAML file of a run, see configs/README.md")
    add_set_flag(parser)
    add_objective_module_flag(parser)
    modes = parser.add_mutually_exclusive_group()
    for flag, text in (
        ("json", "print the totals of --config as one JSON object"),
        ("paper_flops", "print the authors' thirteen published numbers as one JSON object"),
        ("paper_table", "print the FLOPs of the paper's tables 1, 2, 3 and 7 beside its own"),
        ("measured", "trace the training step and print its FLOPs beside the formula's"),
        ("finetuning", "print the cost of an example in fine-tuning and in inference"),
        ("hours", "print how long the run takes on --device, by its published peak"),
    ):
        modes.add_argument(f"--{flag}", action="store_true", help=text)
    modes.add_argument("--budget", type=float, metavar="FLOPS", help="print how many steps so many FLOPs pay for")
    parser.add_argument("--convention", choices=["paper", "hardware"], help="for --budget; paper if not given")
    speed = parser.add_mutually_exclusive_group()
    speed.add_argument(
        "--measure_speed", type=int, nargs="?", const=5, metavar="STEPS", help="for --budget: time so many steps (5)"
    )
    speed.add_argument("--model_dir", metavar="DIR", help="for --budget: take the speed from this run's reports")
    parser.add_argument(
        "--strategy",
        choices=["one_device", "mirrored"],
        help="for --measured and --measure_speed; one_device if not given",
    )
    parser.add_argument(
        "--logical_cpu_devices", type=int, metavar="N", help="split the CPU into N devices, for --strategy=mirrored"
    )
    parser.add_argument("--device", metavar="NAME", help=f"for --hours: one of {', '.join(DEVICES)}")
    parser.add_argument("--device_count", type=int, metavar="N", help="for --hours: how many of them; 1 if not given")
    parser.add_argument(
        "--utilization", type=float, metavar="SHARE", help="for --hours: of the peak; 0.2 and 0.4 if not given"
    )
    parser.add_argument(
        "--price_per_hour", type=float, metavar="PRICE", help="for --hours: of one device, to print what the run costs"
    )
    arguments = parser.parse_args(argv)
    return run_command(lambda: print(_answer(arguments)))


def _answer(arguments: Namespace) -> str:
    _refuse_flags_without_effect(arguments)
    if arguments.paper_flops:
        from electra_tf.flops.published import PUBLISHED

        return json.dumps({name: float(flops) for name, flops in PUBLISHED.items()})
    if arguments.paper_table:
        from electra_tf.flops.published import TABLES, table_lines

        return "\n\n".join("\n".join(table_lines(table)) for table in TABLES)
    if not arguments.config:
        raise UserError("nothing to count; give --config=FILE, --paper_flops or --paper_table")
    return _profile(arguments)


def _refuse_flags_without_effect(arguments: Namespace) -> None:
    """Raises: UserError: if a flag would have no effect beside the others, or a number is not positive."""

    def refuse(flags: tuple[str, ...], reason: str) -> None:
        for flag in flags:
            if getattr(arguments, flag) not in (None, []):
                raise UserError(f"--{'set' if flag == 'overrides' else flag} {reason}")

    if arguments.paper_flops or arguments.paper_table:
        reason = "has no part in the paper's figures; leave it out, or --paper_flops and --paper_table"
        refuse(("config", "overrides", "objective_module"), reason)
    if arguments.budget is None:
        refuse(("convention", "measure_speed", "model_dir"), "goes with --budget; give both or leave it out")
    if not arguments.measured and arguments.measure_speed is None:
        reason = "goes with --measured and --measure_speed; give one of them or leave it out"
        refuse(("strategy", "logical_cpu_devices"), reason)
    if not arguments.hours:
        reason = "goes with --hours; give both or leave it out"
        refuse(("device", "device_count", "utilization", "price_per_hour"), reason)
    elif arguments.device is None:
        raise UserError(f"--hours needs --device; give one of {', '.join(DEVICES)}")
    for flag in ("measure_speed", "logical_cpu_devices", "device_count"):
        value = getattr(arguments, flag)
        if value is not None and value <= 0:
            raise UserError(f"--{flag} is {value}; expected a positive number")


def _profile(arguments: Namespace) -> str:
    config = config_of(arguments)

    from electra_tf.reports.costs import budget_lines, cost_lines, cost_values, finetuning_lines

    if arguments.json:
        return json.dumps(cost_values(config))
    if arguments.budget is not None:
        convention = arguments.convention or "paper"
        lines = budget_lines(config, arguments.budget, convention, *_speed(arguments, config))
    elif arguments.hours:
        from electra_tf.reports.hours import hours_lines

        count = arguments.device_count or 1
        lines = hours_lines(config, arguments.device, count, arguments.utilization, arguments.price_per_hour)
    elif arguments.measured:
        from electra_tf.reports.measured import measure, measurement_lines

        lines = []
        for number, measurement in enumerate(measure(config, _strategy(arguments, config)), start=1):
            lines += [f"a step of phase {number}:", *measurement_lines(measurement)]
    else:
        lines = finetuning_lines(config) if arguments.finetuning else cost_lines(config)
    return "\n".join(lines)


def _speed(arguments: Namespace, config) -> tuple:
    """The last arguments of `budget_lines`: FLOP/s if they are asked for, and the cost of the run they are from."""
    if arguments.model_dir is not None:
        from electra_tf.reports.speed import reported_speed

        return reported_speed(arguments.model_dir)
    if arguments.measure_speed is not None:
        from electra_tf.reports.speed import measured_speed

        return (measured_speed(config, _strategy(arguments, config), arguments.measure_speed),)
    return ()


def _strategy(arguments: Namespace, config):
    from electra_tf.tasks.pretrain.input import plan_stages
    from electra_tf.train.distribution import build_strategy, split_cpu

    if arguments.logical_cpu_devices is not None:
        split_cpu(arguments.logical_cpu_devices)
    strategy = build_strategy(arguments.strategy or "one_device", "local")
    for stage in plan_stages(config):
        stage.require_divisible(strategy.num_replicas_in_sync)
    return strategy


if __name__ == "__main__":
    sys.exit(main())
