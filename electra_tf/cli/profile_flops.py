"""Counts the floating-point operations of a run, by formula and in its traced training step.

    python profile_flops.py --config=configs/pretrain/small.yaml
    python profile_flops.py --config=configs/pretrain/small.yaml --budget=1e18 --measure_speed
    python profile_flops.py --config=configs/pretrain/tiny.yaml --measured
    python profile_flops.py --config=configs/pretrain/small.yaml --set train.precision=bfloat16 --hours --device=a100
    python profile_flops.py --paper_table

There are two conventions: that of the paper (appendix E), to compare with its figures, and that of the hardware: what a
device has to compute. See docs/notes/flops.md.
"""

import json
import sys
from argparse import Namespace

from electra_tf.cli.configuration import config_of
from electra_tf.cli.flags import add_objective_module_flag, add_set_flag, flag_parser
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError
from electra_tf.flops.devices import DEVICES

_MODES = {
    "json": "print the totals of --config as one JSON object",
    "paper_flops": "print the authors' thirteen published numbers as one JSON object",
    "paper_table": "print the FLOPs of the paper's tables 1, 2, 3 and 7 beside those computed here",
    "measured": "trace the training step and print its matrix products beside the formula's",
    "finetuning": "print the cost of an example in fine-tuning and in inference",
    "hours": "print the duration of the run on --device, from its published peak",
}


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--config", metavar="FILE", help="YAML file of a run, see docs/configs.md")
    add_set_flag(parser)
    add_objective_module_flag(parser)
    modes = parser.add_mutually_exclusive_group()
    for flag, text in _MODES.items():
        modes.add_argument(f"--{flag}", action="store_true", help=text)
    modes.add_argument("--budget", type=float, metavar="FLOPS", help="print how many steps so many FLOPs pay for")
    parser.add_argument("--convention", choices=["paper", "hardware"], help="for --budget (default: paper)")
    speed = parser.add_mutually_exclusive_group()
    speed.add_argument(
        "--measure_speed",
        type=int,
        nargs="?",
        const=5,
        metavar="STEPS",
        help="for --budget: time this number of steps (default: 5)",
    )
    speed.add_argument("--model_dir", metavar="DIR", help="for --budget: take the speed from the reports of this run")
    parser.add_argument(
        "--strategy", choices=["one_device", "mirrored"], help="for --measured, --measure_speed (default: one_device)"
    )
    parser.add_argument(
        "--logical_cpu_devices", type=int, metavar="N", help="split the CPU into N devices, for --strategy=mirrored"
    )
    parser.add_argument("--device", metavar="NAME", help=f"for --hours: one of {', '.join(DEVICES)}")
    parser.add_argument("--device_count", type=int, metavar="N", help="for --hours: number of devices (default: 1)")
    parser.add_argument(
        "--utilization", type=float, metavar="FRACTION", help="for --hours: of the peak (default: 0.2 and 0.4)"
    )
    parser.add_argument(
        "--price_per_hour", type=float, metavar="PRICE", help="for --hours: of one device, to print the run's price"
    )
    arguments = parser.parse_args(argv)
    return run_command(lambda: print(_answer(arguments), end=""))


def _answer(arguments: Namespace) -> str:
    _refuse_flags_without_effect(arguments)
    if arguments.paper_flops:
        from electra_tf.flops.published import PUBLISHED

        return json.dumps({name: float(flops) for name, flops in PUBLISHED.items()}) + "\n"
    if arguments.paper_table:
        from electra_tf.flops.published import TABLES
        from electra_tf.reports.costs import paper_table

        return "\n".join(map(paper_table, TABLES))
    if not arguments.config:
        raise UserError("nothing to count; give --config=FILE, --paper_flops or --paper_table")
    return _profile(arguments)


def _refuse_flags_without_effect(arguments: Namespace) -> None:
    """Raises: UserError: if a flag has no effect with the others, or a number is not positive."""

    def refuse(flags: tuple[str, ...], reason: str) -> None:
        for flag in flags:
            if getattr(arguments, flag) not in (None, []):
                raise UserError(f"--{'set' if flag == 'overrides' else flag} {reason}")

    if arguments.paper_flops or arguments.paper_table:
        refuse(("config", "overrides", "objective_module"), "has no effect with --paper_flops and --paper_table")
    if arguments.budget is None:
        refuse(("convention", "measure_speed", "model_dir"), "requires --budget")
    if not arguments.measured and arguments.measure_speed is None:
        refuse(("strategy", "logical_cpu_devices"), "requires --measured or --measure_speed")
    if not arguments.hours:
        refuse(("device", "device_count", "utilization", "price_per_hour"), "requires --hours")
    elif arguments.device is None:
        raise UserError(f"--hours requires --device; give one of {', '.join(DEVICES)}")
    for flag in ("measure_speed", "logical_cpu_devices", "device_count"):
        value = getattr(arguments, flag)
        if value is not None and value <= 0:
            raise UserError(f"--{flag} is {value}; expected a positive number")


def _profile(arguments: Namespace) -> str:
    config = config_of(arguments)

    from electra_tf.reports.costs import budget_text, cost_tables, cost_values, finetuning_table

    if arguments.json:
        return json.dumps(cost_values(config)) + "\n"
    if arguments.budget is not None:
        return budget_text(config, arguments.budget, arguments.convention or "paper", *_speed(arguments, config))
    if arguments.hours:
        from electra_tf.reports.hours import hours_text

        count = arguments.device_count or 1
        return hours_text(config, arguments.device, count, arguments.utilization, arguments.price_per_hour)
    if arguments.measured:
        from electra_tf.reports.traced_step import count_steps, products_table

        steps = enumerate(count_steps(config, _strategy(arguments, config)), start=1)
        return "\n".join(f"a step of phase {number}:\n{products_table(step)}" for number, step in steps)
    return finetuning_table(config) if arguments.finetuning else cost_tables(config)


def _speed(arguments: Namespace, config) -> tuple:
    """The last arguments of `budget_text`: the FLOP/s if they are asked for, and the cost of the run they are from."""
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
