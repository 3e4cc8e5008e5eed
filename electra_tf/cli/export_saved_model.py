"""Exports a run of run_pretraining.py as a SavedModel that takes raw text, in TensorFlow Serving's layout.

    python export_saved_model.py --model_dir=RUN --output_dir=EXPORT

Signatures: embed (also the default): text -> pooled and token vectors; detect: text -> each token's probability of
having been replaced. A program that loads EXPORT/1 needs tensorflow and tensorflow_text, but not this project.
"""

import sys

from electra_tf.cli.configuration import add_objective_module_flag, load_module
from electra_tf.cli.flags import flag_parser, run_command
from electra_tf.config.errors import UserError


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--model_dir", required=True, metavar="DIR", help="directory of the run")
    parser.add_argument("--output_dir", required=True, metavar="DIR", help="the SavedModel is written to DIR/1")
    parser.add_argument(
        "--max_seq_length", type=int, metavar="N", help="tokens at which texts are cut; None: the run's own length"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a DIR/1 that is there")
    add_objective_module_flag(parser)
    arguments = parser.parse_args(argv)
    return run_command(lambda: _export(arguments))


def _export(arguments) -> None:
    from electra_tf.export.load import load_run, load_tokenizer
    from electra_tf.export.saved_model import TextEncoder, export_saved_model

    if arguments.objective_module:
        load_module(arguments.objective_module)
    objective = load_run(arguments.model_dir)
    longest = objective.config.encoder.max_position_embeddings
    max_seq_length = arguments.max_seq_length
    if max_seq_length is None:
        max_seq_length = objective.config.data.max_seq_length
    if not 3 <= max_seq_length <= longest:
        raise UserError(f"--max_seq_length={max_seq_length}: expected 3 to {longest}, the model's number of positions")
    text_encoder = TextEncoder(objective, load_tokenizer(arguments.model_dir), max_seq_length)
    version_dir = export_saved_model(text_encoder, arguments.output_dir, arguments.overwrite)
    print(f"wrote {version_dir}: signatures {', '.join(sorted(text_encoder.signatures()))}")


if __name__ == "__main__":
    sys.exit(main())
