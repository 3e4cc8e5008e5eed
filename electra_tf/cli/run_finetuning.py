"""Fine-tunes a pre-trained encoder on GLUE, SQuAD or your own task with several seeds, and predicts.

    electra-tf finetune --task=mrpc --init_from=RUN --data_dir=GLUE --output_dir=OUT --seeds 0 1 2 3 4
    electra-tf finetune --task=glue --init_from=RUN --data_dir=GLUE --output_dir=OUT --seeds 0 1 2
    electra-tf finetune --task=squad_v2 --init_from=RUN --data_dir=SQUAD --output_dir=OUT
    electra-tf finetune --task=classification --train_file=mine.csv --validation_file=dev.csv \\
        --test_file=test.csv --text_columns title body --label_column=topic --init_from=RUN --output_dir=OUT
    electra-tf finetune --task=glue --init_from=RUN --milestones --data_dir=GLUE --output_dir=OUT --seeds 0 1 2
    electra-tf finetune --predict --model_dir=OUT/seed_0 --input_file=new.jsonl --output_file=predictions.tsv

Flags are settings: --config=OUT/seed_N/config.yaml --output_dir=NEW repeats a seed.
The same command continues an interrupted run: finished seeds are kept, and an unfinished one continues from its
checkpoint. OUT/seed_N contains config.yaml, metrics.jsonl, TensorBoard events and predictions of a seed, and in
result.json its scores, also those of each class; OUT/summary.json the scores of all seeds. With --milestones these are
in OUT/step_N, and OUT/scores.json contains the scores with the FLOPs of pre-training. See docs/finetuning.md.
"""

import argparse
import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

from electra_tf.cli.configuration import load_module, require_free, strategy_of
from electra_tf.cli.flags import add_objective_module_flag, add_set_flag, add_strategy_flags, flag_parser, refuse_flags
from electra_tf.cli.process import import_tensorflow, training_process
from electra_tf.config.errors import UserError
from electra_tf.config.loader import read_values
from electra_tf.train.signals import Interruption

_FLAGS_OF_PREDICT = {"predict", "model_dir", "input_file", "output_file", "text_columns", "label_column"}
_FLAGS_OF_PREDICT |= {"strategy", "tpu", "logical_cpu_devices"}
# The settings that flags of the same meaning set.
_SETTINGS = {
    "task": "name",
    "init_from": "init_from",
    "untrained": "untrained",
    "keep": "train.keep",
    **{name: f"data.{name}" for name in ("data_dir", "train_file", "validation_file", "test_file")},
    **{name: f"data.{name}" for name in ("vocab_file", "cased")},
    **{name: f"task.{name}" for name in ("text_columns", "label_column", "labels")},
}


def main(argv: list[str] | None = None) -> int:
    arguments = _flags().parse_args(argv)
    with training_process(arguments.strategy, ends_process=argv is None) as (status, interruption):
        if arguments.predict:
            _predict(arguments)
        else:
            _finetune(arguments, interruption)
    return status.code


def _flags() -> argparse.ArgumentParser:
    parser = flag_parser(__doc__)
    parser.add_argument("--predict", action="store_true", help="predict --input_file with the model in --model_dir")
    parser.add_argument(
        "--task",
        metavar="NAME",
        help="a GLUE task, glue (the paper's eight tasks), squad_v1, squad_v2 or your own; see docs/finetuning.md",
    )
    parser.add_argument(
        "--init_from", metavar="PATH", help="run, checkpoint, milestone or Hugging Face folder of the encoder"
    )
    parser.add_argument(
        "--milestones",
        action="store_true",
        help="fine-tune every milestone and the newest checkpoint of --init_from, for electra-tf report --score",
    )
    parser.add_argument(
        "--untrained", action="store_true", help="random weights, with the sizes and vocabulary of --init_from"
    )
    parser.add_argument("--vocab_file", metavar="FILE", help="vocabulary, for a checkpoint of the authors' code")
    parser.add_argument("--cased", action="store_true", help="--vocab_file is cased: text is not lower-cased")
    parser.add_argument("--output_dir", metavar="DIR", help="directory for the results")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="N", help="one fine-tuning run for each (default: 0)")
    parser.add_argument(
        "--config",
        metavar="NAME",
        help="preset (authors, huggingface_head) or YAML file with settings, such as the config.yaml of a seed",
    )
    add_set_flag(parser)
    add_objective_module_flag(parser)
    parser.add_argument(
        "--keep",
        choices=["best", "last", "all", "none"],
        help="checkpoints to keep of each seed (default: last; see train.keep; with --milestones: none)",
    )
    parser.add_argument(
        "--picture", action="store_true", help="also draw the confusion matrix of each seed; requires matplotlib"
    )
    _add_data_flags(parser)
    add_strategy_flags(parser)
    return parser


def _add_data_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data_dir", metavar="DIR", help="directory with GLUE's folders (TSV, parquet) or SQuAD's files"
    )
    parser.add_argument(
        "--train_file", metavar="FILE", help=".csv, .tsv, .jsonl, .parquet or .arrow; CoNLL columns for tagging"
    )
    parser.add_argument("--validation_file", metavar="FILE", help="the dev set, in the same format")
    parser.add_argument(
        "--test_file", metavar="FILE", help="scored once by the kept checkpoint of each seed; no part of training"
    )
    parser.add_argument("--text_columns", nargs="+", metavar="NAME", help="one or two columns of text (default: text)")
    parser.add_argument("--label_column", metavar="NAME", help="column of the label (default: label)")
    parser.add_argument(
        "--labels", nargs="+", metavar="LABEL", help="all labels, in this order (default: the labels of --train_file)"
    )
    parser.add_argument(
        "--stride", type=int, metavar="N", help="split long texts into windows that start N tokens apart"
    )
    parser.add_argument(
        "--class_weights", nargs="+", metavar="LABEL=W", help="weight of each label in the loss, or `balanced`"
    )
    parser.add_argument("--model_dir", metavar="DIR", help="--predict: directory of a fine-tuned seed")
    parser.add_argument("--input_file", metavar="FILE", help="--predict: texts or questions, formatted as --train_file")
    parser.add_argument("--output_file", metavar="FILE", help="--predict: file to write")


def _require(arguments: argparse.Namespace, *flags: str) -> None:
    if missing := [f"--{flag}" for flag in flags if getattr(arguments, flag) is None]:
        raise UserError(f"missing flags: {', '.join(missing)}; see --help")


def _finetune(arguments: argparse.Namespace, interruption: Interruption) -> None:
    values, source = read_values(arguments.config, [*_settings_of(arguments), *arguments.overrides], kind="finetune")
    for flag, setting in (("task", "name"), ("init_from", "init_from")):
        setattr(arguments, flag, values.get(setting))
    _require(arguments, "task", "init_from", "output_dir")
    strategy = strategy_of(arguments, shares_cores=_splits_batches(values, arguments.strategy == "tpu"))
    picture = _confusion_picture() if arguments.picture else None
    load_module(arguments.objective_module)

    from electra_tf.tasks.finetune.milestones import finetune_milestones
    from electra_tf.tasks.finetune.run import finetune
    from electra_tf.weights.source import load_pretrained

    options = {"seeds": arguments.seeds, "picture": picture}
    load = functools.partial(load_pretrained, values=values)
    where = arguments.output_dir, strategy
    if arguments.milestones:
        table = finetune_milestones(values, source, load, *where, **options, interruption=interruption)
    else:
        table = finetune(values, source, load(values["init_from"]), *where, **options, interruption=interruption)
    print(table)


def _settings_of(arguments: argparse.Namespace) -> list[tuple[str, Any]]:
    """The settings that flags stand for: path and value."""
    given = {setting: getattr(arguments, flag) or None for flag, setting in _SETTINGS.items()}
    given["task.stride"] = arguments.stride
    given["task.class_weights"] = _class_weights(arguments.class_weights)
    return [(setting, value) for setting, value in given.items() if value is not None]


def _splits_batches(values: dict, tpu: bool) -> bool:
    """Whether each batch is surely split. That of similarity depends on the data; wrong settings end the run later."""
    import_tensorflow(tpu=tpu)
    from electra_tf.tasks.finetune.config import FinetuningTrainConfig
    from electra_tf.tasks.finetune.kinds import KINDS
    from electra_tf.train.step import splits_batches

    with contextlib.suppress(TypeError, ValueError):
        train = FinetuningTrainConfig(**{"num_steps": 1} | (values.get("train") or {}))
        settings = getattr(KINDS.get(values["name"]), "settings", None)
        return not hasattr(settings, "rows_together") and splits_batches(train, rows_together=1)
    return False


def _confusion_picture() -> Callable[[dict, str], bytes]:
    from electra_tf.reports.pictures import confusion_picture, figure_class

    figure_class()  # fails now, not after the training
    return confusion_picture


def _class_weights(given: list[str] | None) -> str | dict[str, float] | None:
    if given is None or given == ["balanced"]:
        return given and given[0]
    try:
        weights = {label: float(weight) for label, _, weight in (text.rpartition("=") for text in given)}
    except ValueError:
        weights = {}
    if len(weights) < len(given) or not all(0 < weight < math.inf for weight in weights.values()):
        raise UserError(f"--class_weights {' '.join(given)}: expected LABEL=W with positive numbers, or balanced")
    return weights


def _predict(arguments: argparse.Namespace) -> None:
    others = [name for name in vars(arguments) if name not in _FLAGS_OF_PREDICT]
    refuse_flags(_flags(), arguments, others, "with --predict")
    _require(arguments, "model_dir", "input_file", "output_file")
    strategy = strategy_of(arguments, shares_cores=True)
    from electra_tf.tasks.finetune.predict import predict_file
    from electra_tf.weights.source import load_trained

    require_free(arguments, "output_file")
    columns = tuple(arguments.text_columns) if arguments.text_columns else None
    with strategy.scope():
        model = load_trained(arguments.model_dir, flag="--model_dir").finished()
    files = arguments.input_file, arguments.output_file
    if scores := predict_file(model, *files, columns, strategy, arguments.label_column):
        print(scores)
