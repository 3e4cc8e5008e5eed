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

from electra_tf.cli.configuration import load_module, local_or_url
from electra_tf.cli.flags import (
    FLAGS_OF_DEVICES,
    add_objective_module_flag,
    add_segment_flag,
    add_set_flag,
    add_strategy_flags,
    flag_parser,
    refuse_flags,
    require_flags,
)
from electra_tf.cli.process import import_tensorflow, training_process

_FLAGS_OF_PREDICT = (
    *("model_dir", "input_file", "output_file", "text_columns", "label_column", "segment"),
    *FLAGS_OF_DEVICES,
)
_FLAGS_OF_FINETUNE = (
    *("task", "output_dir", "data_dir", "seeds", "milestones", "config", "text_columns", "label_column", "labels"),
    *("stride", "keep", "untrained", "vocab_file", "cased", "segment", *FLAGS_OF_DEVICES),
)


def main(argv: list[str] | None = None) -> int:
    arguments = _flags().parse_args(argv)
    with training_process(arguments.strategy, ends_process=argv is None) as status:
        if arguments.predict:
            others = [name for name in vars(arguments) if name not in (*_FLAGS_OF_PREDICT, "predict")]
            refuse_flags(_flags(), arguments, others, "with --predict")
        require_flags(arguments, *(_FLAGS_OF_PREDICT[:3] if arguments.predict else ["output_dir"]))
        import_tensorflow(tpu=arguments.strategy == "tpu")
        from electra_tf.api.finetuning import finetune, predict

        if arguments.predict:
            if scores := predict(**{name: getattr(arguments, name) for name in _FLAGS_OF_PREDICT}):
                print(scores)
            return status.code
        load_module(arguments.objective_module)
        weights = arguments.class_weights
        if weights not in (None, ["balanced"]):
            weights = [dict(text.rpartition("=")[::2] for text in weights)]
        result = finetune(
            **{name: getattr(arguments, name) for name in _FLAGS_OF_FINETUNE},
            train=arguments.train_file,
            validation=arguments.validation_file,
            test=arguments.test_file,
            init_from=local_or_url(arguments.init_from),
            settings=arguments.overrides,
            class_weights=weights and weights[0],
        )
        print(result.table)
    return status.code


def _flags() -> argparse.ArgumentParser:
    parser = flag_parser(__doc__)
    parser.add_argument("--predict", action="store_true", help="predict --input_file with the model in --model_dir")
    parser.add_argument(
        "--task",
        metavar="NAME",
        help="a GLUE task, glue (the paper's eight tasks), squad_v1, squad_v2, or for your own data classification,"
        " tagging, ...; see docs/finetuning.md",
    )
    parser.add_argument(
        "--init_from",
        metavar="PATH",
        help="the encoder: run, checkpoint, milestone, Hugging Face folder, hf://owner/name, TF1 checkpoint",
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
    add_segment_flag(parser)
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
    parser.add_argument("--model_dir", metavar="DIR", help="--predict: a fine-tuned seed, or a fine-tuned folder")
    parser.add_argument("--input_file", metavar="FILE", help="--predict: texts or questions, formatted as --train_file")
    parser.add_argument("--output_file", metavar="FILE", help="--predict: file to write")
    add_strategy_flags(parser)
    return parser
