"""Small SentencePiece models."""

import io

from sentencepiece import SentencePieceTrainer

LINES = [
    "the cat sat on the mat, and the cat ate the hat",
    "was für ein schöner Käse, ein Käse für schöne Käfer",
    "これは日本語の文です。日本語の文はこれです",
    "hello Hello don't [MASK] one, two",
]


def train(model_type: str, **options) -> bytes:
    """The content of a model of `LINES`, with the special tokens of `Vocabulary`."""
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        model_type=model_type,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        pad_piece="[PAD]",
        unk_piece="[UNK]",
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        num_threads=1,
        minloglevel=2,
        **{"normalization_rule_name": "identity", "vocab_size": 83, "character_coverage": 1.0} | options,
    )
    return model.getvalue()
