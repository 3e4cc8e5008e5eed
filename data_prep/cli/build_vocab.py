"""Builds a vocabulary from text, WordPiece or SentencePiece, and reports how well it fits.

    electra-tf build-vocab --input='wikipedia:dumps/*.bz2' --vocab_size=30522 --output=vocab.txt --num_processes=8
    electra-tf build-vocab --input='text:ja/*.txt' --model=bpe --vocab_size=32000 --output=spm.model

The input formats and compressions are those of electra-tf build-data: FORMAT:GLOB, or GLOB if the format can be
detected. Plain text needs no format here, because document boundaries do not matter.

The special tokens come first: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4. A WordPiece vocabulary with
--num_unused_tokens=99 or more has the ids of BERT's: [PAD], [unused0] to [unused98], [UNK] (100), [CLS] ...
The same text gives the same bytes, for any order of files and any number of processes and threads.

Text in scripts without spaces, such as Japanese and Thai, needs --model=bpe, or else spaces between its words.
WordPiece refuses text in scripts that its default settings damage, and names the flags to decide by.

The file OUTPUT.json holds the settings, which the builder reads, and how well the vocabulary fits the text of
--coverage_input (use text that is not in --input) or, without this flag, the training text.
"""

import argparse

from data_prep.settings import VocabularySettings, add_setting_flags, settings_of
from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command
from electra_tf.data.manifest import DatasetSettings


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = flag_parser(__doc__)
    add_setting_flags(parser, VocabularySettings, set(DatasetSettings.model_fields) - set(VocabularySettings.USED))
    return parser.parse_args(arguments)


def build_vocab(flags: argparse.Namespace) -> None:
    """Builds the vocabulary that the flags describe. Raises: UserError: see `build_vocabulary`."""
    from data_prep.vocabulary import build_vocabulary

    report = build_vocabulary(settings_of(flags, VocabularySettings))
    training, coverage, text = report["training_text"], report["coverage"], report["coverage_text"]
    read = f"{training['num_files']} files, {training['num_words']} words"
    print(f"{flags.output}: {report['vocab_size']} tokens from {read}")
    measured_on = (
        text if isinstance(text, str) else f"{text['num_files']} files of --coverage_input, {text['num_words']} words"
    )
    print(
        f"on {measured_on}: {100 * coverage['unknown_fraction']:.3f} % of the tokens are [UNK],"
        f" {coverage['tokens_per_word']:.3f} tokens per word,"
        f" {coverage['characters_per_token']:.2f} characters per token,"
        f" {100 * coverage['single_piece_fraction']:.1f} % of the words are one piece"
    )


def main(argv: list[str] | None = None) -> int:
    flags = parse_flags(argv)
    return run_command(lambda: build_vocab(flags))
