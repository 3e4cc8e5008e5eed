"""Exports a trained model as a SavedModel that takes raw text, in TensorFlow Serving's layout.

    electra-tf export --model_dir=RUN --output_dir=EXPORT
    electra-tf export --model_dir=FINETUNED/seed_0 --output_dir=EXPORT

A run of electra-tf pretrain gets the signatures embed (text -> vectors) and detect (text -> each token's probability of
having been replaced). A seed of electra-tf finetune gets embed and one of classify, regress, tag, answer and choose, or
similarity and sentence_embed, which give the same results as --predict. Each signature but similarity has a variant
with the suffix _ids, for callers with their own tokenizer. A program that loads EXPORT/1 needs tensorflow and
tensorflow_text, but not this project.
See docs/serving.md.
"""

import electra_tf
from electra_tf.cli.configuration import print_order
from electra_tf.cli.flags import add_objective_module_flag, flag_parser, positive_int


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--model_dir", required=True, metavar="DIR", help="a run, a fine-tuned seed, or a folder")
    parser.add_argument("--output_dir", required=True, metavar="DIR", help="the SavedModel is written to DIR/1")
    parser.add_argument(
        "--max_seq_length",
        type=int,
        metavar="N",
        help="maximum length in tokens; longer texts are truncated or split into windows (default: the run's)",
    )
    parser.add_argument(
        "--pad_to_max_length",
        action="store_true",
        help="pad every text to --max_seq_length tokens, so that shapes are static",
    )
    parser.add_argument(
        "--batch_size", type=positive_int, metavar="N", help="fixed number of texts in a call (default: any)"
    )
    parser.add_argument("--precision", choices=["float32", "bfloat16"], help="compute precision (default: the run's)")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing DIR/1 on a local disk")
    add_objective_module_flag(parser)
    # `electra_tf.export` imports TensorFlow, which takes seconds: only after the flags are parsed.
    return print_order(parser.parse_args(argv), lambda **flags: electra_tf.export(**flags))
