"""The vocabulary file: its tokens and ids, and the mistakes in it."""

import hashlib

import pytest

from electra_tf.config.errors import UserError
from electra_tf.text.vocabulary import Vocabulary

TOKENS = ["[PAD]", "the", "[UNK]", "[CLS]", "##s", "[SEP]", "[MASK]"]


def write(path, tokens):
    path.write_bytes("".join(f"{token}\n" for token in tokens).encode(errors="surrogateescape"))
    return path


def test_tokens_ids_and_hash_of_a_file(tmp_path):
    # A Unicode line separator within a token does not end the line.
    path = write(tmp_path / "vocab.txt", [*TOKENS, "a\u2028b"])
    vocabulary = Vocabulary.load(path)
    assert vocabulary.tokens == (*TOKENS, "a\u2028b")
    assert (vocabulary.size, vocabulary.pad_id, vocabulary.unk_id) == (8, 0, 2)
    assert (vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id) == (3, 5, 6)
    assert vocabulary.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([*TOKENS, "the"], "'the' on lines 2 and 8"),
        ([*TOKENS[:3], *TOKENS[4:]], r"lacks \[CLS\]"),
        (["the", *TOKENS[:1], *TOKENS[2:]], r"\[PAD\] on line 2"),
        ([*TOKENS[:4], "", *TOKENS[4:]], "line 5"),
        (["", *TOKENS], "empty first line"),
        ([*TOKENS, "##" + "é" * 129], "a token of 258 bytes on line 8, expected up to 256"),
        (["\ufeff[PAD]", *TOKENS[1:]], "UTF-8 byte order mark"),
        (["[PAD]", "\udcff"], "not UTF-8 at byte 6"),
    ],
)
def test_a_wrong_vocabulary_is_a_user_error(tmp_path, tokens, message):
    with pytest.raises(UserError, match=f"vocab.txt .*{message}"):
        Vocabulary.load(write(tmp_path / "vocab.txt", tokens))
