"""Counts the floating-point operations of a run, by formula and in the training step that is traced for it.

    python profile_flops.py --config=configs/pretrain/small.yaml
    python profile_flops.py --config=configs/pretrain/small.yaml --budget=1e18 --measure_speed
    python profile_flops.py --config=configs/pretrain/tiny.yaml --measured
    python profile_flops.py --paper_table

Two conventions: the paper's (appendix E), to compare with its figures, and the hardware's, which a device has to
compute. See docs/flops.md.
"""

import json
import sys

from electra_tf.cli.flags import add_set_flag, flag_parser, run_command
from electra_tf.cli.modules import add_objective_module_flag, load_module
from electra_tf.config.errors import UserError
from electra_tf.tasks.pretrain.config import load_config


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--config", metavar="FILE", help="YAML file of a run, see configs/README.md")
    add_set_flag(parser)
    add_objective_module_flag(parser)
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--json", action="store_true", help="print the totals of --config as one JSON object")
    modes.add_argument(
        "--paper_flops", action="store_true", help="print the authors' thirteen published numbers as one JSON object"
    )
    modes.add_argument(
        "--paper_table", action="store_true", help="print the FLOPs of the paper's tables 1, 2, 3 and 7, beside its own"
    )
    modes.add_argument(
        "--measured", action="store_true", help="trace the training step and print what is counted beside the formula"
    )
    modes.add_argument(
        "--finetuning", action="store_true", help="print what an example costs in fine-tuning and in inference"
    )
    modes.add_argument("--budget", type=float, metavar="FLOPS", help="print how many steps so many FLOPs pay for")
    parser.add_argument("--convention", choices=["paper", "hardware"], help="how --budget counts; paper if not given")
    speed = parser.add_mutually_exclusive_group()
    speed.add_argument(
        "--measure_speed", type=int, nargs="?", const=5, metavar="STEPS", help="time so many steps, for --budget (5)"
    )
    speed.add_argument("--model_dir", metavar="DIR", help="take the speed from this run's reports, for --budget")
    parser.add_argument(
        "--strategy",
        choices=["one_device", "mirrored"],
        help="for --measured and --measure_speed; one_device if not given",
    )
    parser.add_argument(
        "--logical_cpu_devices", type=int, metavar="N", help="split the CPU into N devices, for --strategy=mirrored"
    )
    arguments = parser.parse_args(argv)
    return run_command(lambda: _run(arguments))


def _run(arguments) -> None:
    _require_no_idle_flag(arguments)
    if arguments.paper_flops:
        from electra_tf.flops.published_models import published_flops

        print(json.dumps(published_flops()))
    elif arguments.paper_table:
        from electra_tf.flops.paper_tables import table_lines, tables

        print("\n\n".join("\n".join(table_lines(table)) for table in tables()))
    elif arguments.config:
        _profile(arguments)
    else:
        raise UserError("nothing to count; give --config=FILE, --paper_flops or --paper_table")


def _require_no_idle_flag(arguments) -> None:
    """Raises: UserError: if a flag would have no effect beside the others, or is no number to count with."""
    if arguments.paper_flops or arguments.paper_table:
        for flag in ("config", "overrides", "objective_module"):
            if getattr(arguments, flag):
                name = "set" if flag == "overrides" else flag
                raise UserError(
                    f"--{name} has no part in the paper's figures; leave it out, or --paper_flops and --paper_table"
                )
    if arguments.budget is None:
        for flag in ("convention", "measure_speed", "model_dir"):
            if getattr(arguments, flag) is not None:
                raise UserError(f"--{flag} goes with --budget; give both or leave it out")
    if not arguments.measured and arguments.measure_speed is None:
        for flag in ("strategy", "logical_cpu_devices"):
            if getattr(arguments, flag) is not None:
                raise UserError(f"--{flag} goes with --measured and --measure_speed; give one of them or leave it out")
    if arguments.measure_speed is not None and arguments.measure_speed <= 0:
        raise UserError(f"--measure_speed is {arguments.measure_speed}; expected a positive number of steps")
    if arguments.logical_cpu_devices is not None and arguments.logical_cpu_devices <= 0:
        raise UserError(f"--logical_cpu_devices is {arguments.logical_cpu_devices}; expected a positive number")


def _profile(arguments) -> None:
    from electra_tf.flops.cost_report import budget_lines, cost_lines, cost_values, finetuning_lines

    if arguments.objective_module:
        load_module(arguments.objective_module)
    config = load_config(arguments.config, arguments.overrides)
    if arguments.budget is not None:
        convention = arguments.convention or "paper"
        print("\n".join(budget_lines(config, arguments.budget, convention, *_speed(arguments, config))))
    elif arguments.measured:
        from electra_tf.flops.measured import measure, measurement_lines

        for number, found in enumerate(measure(config, _strategy(arguments, config)), start=1):
            print(f"a step of phase {number}:", *measurement_lines(found), sep="\n")
    elif arguments.finetuning:
        print("\n".join(finetuning_lines(config)))
    elif arguments.json:
        print(json.dumps(cost_values(config)))
    else:
        print("\n".join(cost_lines(config)))


def _speed(arguments, config) -> tuple:
    """FLOP/s, if they are asked for, and for a run's the cost of its steps."""
    if arguments.model_dir is not None:
        from electra_tf.flops.speed import reported_speed

        return reported_speed(arguments.model_dir)
    if arguments.measure_speed is not None:
        from electra_tf.flops.speed import measured_speed

        return (measured_speed(config, _strategy(arguments, config), arguments.measure_speed),)
    return ()


def _strategy(arguments, config):
    from electra_tf.train.distribution import build_strategy, split_cpu
    from electra_tf.train.stages import stages_of

    if arguments.logical_cpu_devices is not None:
        split_cpu(arguments.logical_cpu_devices)
    strategy = build_strategy(arguments.strategy or "one_device", "local")
    for stage in stages_of(config):
        stage.require_divisible(strategy)
    return strategy


if __name__ == "__main__":
    sys.exit(main())
