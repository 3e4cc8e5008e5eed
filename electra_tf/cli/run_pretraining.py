"""Pre-trains the model of a configuration file: ELECTRA, an ablation, or a masked-LM baseline.

    electra-tf pretrain --config=small --data_dir=DATA --model_dir=RUN

The same command again continues from the newest checkpoint in RUN. RUN also contains config.yaml, resolved.yaml,
metrics.jsonl and TensorBoard events. After SIGTERM, Ctrl-C, a closed terminal or a scheduler's warning the run finishes
its step, writes a checkpoint and ends (exit status 128 + the signal). See docs/training.md.
"""

import argparse
import functools
import json

from electra_tf.cli.configuration import config_of, strategy_of
from electra_tf.cli.flags import (
    add_config_flag,
    add_objective_module_flag,
    add_set_flag,
    add_strategy_flags,
    flag_parser,
    positive_int,
    refuse_flags,
)
from electra_tf.cli.process import training_process
from electra_tf.config.errors import UserError

_FLAGS_OF_TRAINING = ("init_from", "fresh_generator", "grow", "with_optimizer", "stop_at_step")


def main(argv: list[str] | None = None) -> int:
    arguments = _flags().parse_args(argv)
    with training_process(arguments.strategy, ends_process=argv is None) as (status, interruption):
        if not arguments.data_dirs and not arguments.dry_run:
            raise UserError("--data_dir is missing; give the output directory of electra-tf build-data")
        if arguments.evaluate:
            refuse_flags(_flags(), arguments, _FLAGS_OF_TRAINING, "with --evaluate")
        else:
            refuse_flags(_flags(), arguments, ["as_masked_lm"], "without --evaluate")
        config = config_of(arguments)

        from electra_tf.tasks.pretrain import build_objective
        from electra_tf.tasks.pretrain.as_masked_lm import with_all_tokens_masked
        from electra_tf.tasks.pretrain.stages import open_stages, plan_stages
        from electra_tf.train.evaluation import describe, evaluate
        from electra_tf.train.loop import Run, train
        from electra_tf.train.run_directory import RunDirectory
        from electra_tf.train.start import begin_run
        from electra_tf.train.step import splits_batches
        from electra_tf.weights.initial_weights import start_from

        are_split = all(splits_batches(plan.config.train, config.rows_together) for plan in plan_stages(config))
        strategy = strategy_of(arguments, shares_cores=are_split or arguments.evaluate)
        for plan in plan_stages(config):
            plan.require_divisible(strategy.num_replicas_in_sync)
        directory = RunDirectory(arguments.model_dir)
        run = Run(config, directory, strategy, lambda: build_objective(config))
        open_data = functools.partial(open_stages, config, arguments.data_dirs)
        start = start_from(arguments.init_from, arguments.fresh_generator, arguments.with_optimizer, arguments.grow)
        if arguments.dry_run:
            stages = open_data() if arguments.data_dirs else ()
            sizes = describe(run, lambda task: begin_run(task, stages, start))
            sources = (source for stage in stages for source in stage.sources)
            _print_json({"data": [source.sizes() for source in sources], **sizes})
        elif arguments.evaluate:
            changes = {}
            if arguments.as_masked_lm:
                changes = {"model_of": lambda task: task.as_masked_lm(), "input_of": with_all_tokens_masked}
            _print_json(evaluate(run, open_data(), **changes))
        else:
            train(run, open_data, start=start, stop_at_step=arguments.stop_at_step, interruption=interruption)
    return status.code


def _flags() -> argparse.ArgumentParser:
    parser = flag_parser(__doc__)
    add_config_flag(parser, required=True)
    parser.add_argument(
        "--data_dir",
        action="append",
        default=[],
        dest="data_dirs",
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


def _print_json(values: dict) -> None:
    """Prints a JSON object, with null for NaN (a metric without a value)."""
    print(json.dumps({name: None if value != value else value for name, value in values.items()}, indent=1))
