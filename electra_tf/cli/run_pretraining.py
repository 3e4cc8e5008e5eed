"""Pre-trains the model of a configuration file: ELECTRA, an ablation, or a masked-LM baseline.

    electra-tf pretrain --config=small --data_dir=DATA --model_dir=RUN

The same command again continues from the newest checkpoint in RUN. RUN also contains config.yaml, resolved.yaml,
metrics.jsonl and TensorBoard events. After SIGTERM, Ctrl-C, a closed terminal or a scheduler's warning the run finishes
its step, writes a checkpoint and ends (exit status 128 + the signal). See docs/training.md.
"""

import argparse
import json
from typing import Any

from electra_tf.cli.configuration import load_module, local_or_url
from electra_tf.cli.flags import (
    FLAGS_OF_DEVICES,
    add_config_flag,
    add_objective_module_flag,
    add_set_flag,
    add_strategy_flags,
    flag_parser,
    positive_int,
    refuse_flags,
    require_flags,
)
from electra_tf.cli.process import import_tensorflow, training_process

_FLAGS_OF_START = ("init_from", "fresh_generator", "grow", "with_optimizer")


def main(argv: list[str] | None = None) -> int:
    arguments = _flags().parse_args(argv)
    with training_process(arguments.strategy, ends_process=argv is None) as status:
        if not arguments.dry_run:
            require_flags(arguments, "data_dir")
        if arguments.evaluate:
            refuse_flags(_flags(), arguments, (*_FLAGS_OF_START, "stop_at_step"), "with --evaluate")
        else:
            refuse_flags(_flags(), arguments, ["as_masked_lm"], "without --evaluate")
        import_tensorflow(tpu=arguments.strategy == "tpu")
        from electra_tf.api.pretraining import describe, evaluate, pretrain

        load_module(arguments.objective_module)
        run = {name: getattr(arguments, name) for name in ("config", "data_dir", "model_dir", *FLAGS_OF_DEVICES)}
        run["settings"] = arguments.overrides
        start = {name: getattr(arguments, name) for name in _FLAGS_OF_START}
        start["init_from"] = local_or_url(arguments.init_from)
        if arguments.dry_run:
            _print_json(describe(**run, **start))
        elif arguments.evaluate:
            _print_json(evaluate(**run, as_masked_lm=arguments.as_masked_lm))
        else:
            pretrain(**run, **start, stop_at_step=arguments.stop_at_step)
    return status.code


def _flags() -> argparse.ArgumentParser:
    parser = flag_parser(__doc__)
    add_config_flag(parser, required=True)
    parser.add_argument(
        "--data_dir",
        action="append",
        default=[],
        metavar="DIR",
        help="output of electra-tf build-data, or several as DIR:WEIGHT,DIR:WEIGHT; repeat for each stage",
    )
    parser.add_argument(
        "--model_dir", required=True, metavar="DIR", help="the run's directory or gs:// URL; an existing run continues"
    )
    add_objective_module_flag(parser)
    parser.add_argument(
        "--init_from",
        metavar="PATH",
        help="start a new run from the weights of a run, a checkpoint (also the authors') or a Hugging Face folder",
    )
    parser.add_argument(
        "--fresh_generator",
        action="store_true",
        help="with --init_from: give the generator random weights; required if the source has none for it",
    )
    parser.add_argument(
        "--grow",
        choices=["stack"],
        help="with --init_from of a model with fewer layers: repeat its layers, layer i is its layer i mod L",
    )
    parser.add_argument(
        "--with_optimizer",
        action="store_true",
        help="with --init_from=RUN: go on from its step, with its optimizer too, to another train.num_steps",
    )
    add_strategy_flags(parser)
    add_set_flag(parser)
    parser.add_argument(
        "--stop_at_step", type=positive_int, metavar="N", help="stop after step N; the schedule stays the same"
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--dry_run",
        action="store_true",
        help="build the model, open what it starts from; print settings and sizes as JSON",
    )
    mode.add_argument("--evaluate", action="store_true", help="print the newest checkpoint's held-out metrics as JSON")
    parser.add_argument(
        "--as_masked_lm",
        action="store_true",
        help="with --evaluate: measure the accuracy on single masked tokens (paper, appendix G)",
    )
    return parser


def _print_json(values: dict[str, Any]) -> None:
    """Prints a JSON object, with null for NaN (a metric without a value)."""
    print(json.dumps({name: None if value != value else value for name, value in values.items()}, indent=1))
