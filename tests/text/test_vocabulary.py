"""The vocabulary file: what is read, and what is refused with which words."""

import hashlib

import pytest

from electra_tf.config.errors import UserError
from electra_tf.text.vocabulary import Vocabulary

TOKENS = ["[PAD]", "the", "[UNK]", "[CLS]", "##s", "[SEP]", "[MASK]"]


def write(path, tokens):
    path.write_bytes("".join(f"{token}\n" for token in tokens).encode())
    return path


def test_the_line_number_is_the_id(tmp_path):
    vocabulary = Vocabulary.load(write(tmp_path / "vocab.txt", TOKENS))
    assert vocabulary.tokens == tuple(TOKENS)
    assert (vocabulary.size, vocabulary.pad_id, vocabulary.unk_id) == (7, 0, 2)
    assert (vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id) == (3, 5, 6)


def test_the_hash_is_that_of_the_file(tmp_path):
    path = write(tmp_path / "vocab.txt", TOKENS)
    assert Vocabulary.load(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_white_space_around_a_token_is_ignored(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("\r\n".join(TOKENS).encode() + b"\r\n\r\n")
    assert Vocabulary.load(path).tokens == tuple(TOKENS)


def test_a_unicode_line_separator_within_a_token_does_not_end_the_line(tmp_path):
    vocabulary = Vocabulary.load(write(tmp_path / "vocab.txt", [*TOKENS, "a\u2028b"]))
    assert vocabulary.tokens[7] == "a\u2028b"


@pytest.mark.parametrize("missing", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
def test_a_missing_special_token_is_named(tmp_path, missing):
    path = write(tmp_path / "vocab.txt", [token for token in TOKENS if token != missing])
    with pytest.raises(UserError) as error:
        Vocabulary.load(path)
    assert f"lacks {missing}," in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([*TOKENS, "the"], "'the' on lines 2 and 8"),
        (["the", *TOKENS[:1], *TOKENS[2:]], r"\[PAD\] as id 1, expected id 0"),
        ([*TOKENS[:4], "", *TOKENS[4:]], "an empty line 5"),
    ],
)
def test_a_broken_vocabulary_is_refused(tmp_path, tokens, message):
    with pytest.raises(UserError, match=message):
        Vocabulary.load(write(tmp_path / "vocab.txt", tokens))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot read the vocabulary .*absent\.txt: No such file"):
        Vocabulary.load(tmp_path / "absent.txt")


def test_a_file_that_is_not_utf_8_is_refused(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"[PAD]\n\xff\n")
    with pytest.raises(UserError, match="not UTF-8 at byte 6"):
        Vocabulary.load(path)
