"""Converts a trained model to a Hugging Face folder or a TensorFlow 1 checkpoint of the authors' code.

    electra-tf convert --from=RUN --to=hugging_face --output_dir=DIR
    electra-tf convert --from=RUN/milestones/step-500 --to=tf1 --output_dir=DIR
    electra-tf convert --from=AUTHORS/electra_small --to=hugging_face --output_dir=DIR --vocab_file=vocab.txt
    electra-tf convert --from=RUN --to=sentence_transformers --layers=8 --output_dir=DIR
    electra-tf convert --from=RUN --to=bert --output_dir=DIR

--from takes a run's directory, one of its checkpoints or milestones, the directory of a fine-tuned seed, a checkpoint
of the authors' code, a folder with model.safetensors, tf_model.h5 or pytorch_model.bin, or a directory with the folders
discriminator/ and generator/. Weights are copied bit for bit. See docs/interop.md.
"""

import electra_tf
from electra_tf.cli.configuration import print_order
from electra_tf.cli.flags import add_objective_module_flag, flag_parser, positive_int
from electra_tf.weights import FORMATS


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--from", required=True, dest="source", metavar="PATH", help="the model to convert")
    parser.add_argument("--to", required=True, dest="format", choices=FORMATS, help="format to write")
    parser.add_argument("--output_dir", required=True, metavar="DIR", help="new or empty directory to write to")
    parser.add_argument("--vocab_file", metavar="FILE", help="vocabulary, for sources without one")
    parser.add_argument("--cased", action="store_true", help="the vocabulary is cased: text is not lower-cased")
    parser.add_argument(
        "--num_heads", type=positive_int, metavar="N", help="number of attention heads (default: hidden size / 64)"
    )
    parser.add_argument("--generator_num_heads", type=positive_int, metavar="N", help="the same for the generator")
    parser.add_argument(
        "--text_columns", nargs="+", metavar="NAME", help="columns of a published model's texts, two of one for pairs"
    )
    parser.add_argument(
        "--layers", type=int, metavar="N", help="write the encoder alone, with its first N layers (default: whole)"
    )
    add_objective_module_flag(parser)
    # `electra_tf.convert` imports TensorFlow, which takes seconds: only after the flags are parsed.
    return print_order(parser.parse_args(argv), lambda **flags: electra_tf.convert(**flags))
