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
        ([*TOKENS[:3], *TOKENS[4:]], r"lacks \[CLS\]"),
        (["the", *TOKENS[:1], *TOKENS[2:]], r"\[PAD\] on line 2"),
        (["", *TOKENS], "is damaged, or no spm.model"),
        (["\ufeff[PAD]", *TOKENS[1:]], r"lacks \[PAD\]"),
        (["[PAD]", "\udcff"], "is damaged, or no vocab.txt: .utf-8. codec .* position 6"),
    ],
)
def test_a_wrong_vocabulary_is_a_user_error(tmp_path, tokens, message):
    with pytest.raises(UserError, match=f"vocab.txt .*{message}"):
        Vocabulary.load(write(tmp_path / "vocab.txt", tokens))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("\u2028\na", ["\u2028", "a"]),  # as in BERT's Chinese vocabulary
        ("\u00a0\n\x1c\na", ["\u00a0", "\x1c", "a"]),
        (" \n\t\r\na", [8, 9, "a"]),
        ("a\nb\na", [8, "b", "a"]),  # the last line counts, as in a dictionary that is filled line by line
        ("[UNK]\na", ["[UNK]", "a"]),
        ("a \r\n b\r\n", ["a", "b"]),
        ("a\n\n\n", ["a"]),
        ("a\n\u3000\n", ["a", "\u3000"]),
        ("a\rb\n\vc\u2028d", ["a\rb", "c\u2028d"]),
    ],
)
def test_every_line_of_a_published_vocabulary_keeps_its_id(content, expected):
    vocabulary = Vocabulary.from_bytes(("".join(f"{token}\n" for token in TOKENS) + content).encode(), "vocab.txt")
    assert list(vocabulary.tokens[7:]) == [f"[line {each}]" if isinstance(each, int) else each for each in expected]
    assert vocabulary.unk_id == (7 if expected[0] == "[UNK]" else 2)
    assert len(set(vocabulary.tokens)) == vocabulary.size


@pytest.mark.parametrize(("num_rows", "fits"), [(6, False), (7, True), (1031, True), (1032, False)])
def test_a_word_table_may_have_up_to_1024_rows_without_a_token(num_rows, fits):
    vocabulary = Vocabulary.from_bytes("".join(f"{token}\n" for token in TOKENS).encode(), "vocab.txt")
    assert vocabulary.fits(num_rows) == fits
