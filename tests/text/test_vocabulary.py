"""The vocabulary file: what is read, and what is refused with which words."""

import hashlib

import pytest

from electra_tf.config.errors import UserError
from electra_tf.text.tokenizer import BertTokenizer
from electra_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary

TOKENS = ["[PAD]", "the", "[UNK]", "[CLS]", "##s", "[SEP]", "[MASK]"]


def write(path, tokens):
    path.write_bytes("".join(f"{token}\n" for token in tokens).encode())
    return path


def test_the_line_number_is_the_id_and_the_hash_that_of_the_file(tmp_path):
    # A Unicode line separator within a token does not end the line.
    path = write(tmp_path / "vocab.txt", [*TOKENS, "a\u2028b"])
    vocabulary = Vocabulary.load(path)
    assert vocabulary.tokens == (*TOKENS, "a\u2028b")
    assert (vocabulary.size, vocabulary.pad_id, vocabulary.unk_id) == (8, 0, 2)
    assert (vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id) == (3, 5, 6)
    assert vocabulary.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


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
        ([*TOKENS, "é" * 129], "a token of 258 bytes on line 8, 'éé.*'..., expected at most 256"),
        ([*TOKENS, "a", "##" + "b" * 257], "a token of 257 bytes on line 9, '##bb"),
        ([*TOKENS, "a\0b"], r"NUL character in the token 'a\\x00b' on line 8"),
        (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], "no piece of a word among its 5 tokens"),
        (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "##", "a-b"], "no piece of a word among its 8"),
        (["\ufeff[PAD]", *TOKENS[1:]], "begins with a UTF-8 byte order mark"),
    ],
)
def test_a_broken_vocabulary_is_refused(tmp_path, tokens, message):
    with pytest.raises(UserError, match=message):
        Vocabulary.load(write(tmp_path / "vocab.txt", tokens))


@pytest.mark.parametrize("token", ["é" * 128, "##" + "b" * 256, "##s", "!"])
def test_the_tokenizer_takes_what_the_vocabulary_allows(tmp_path, token):
    vocabulary = Vocabulary.load(write(tmp_path / "vocab.txt", [*SPECIAL_TOKENS, token]))
    assert BertTokenizer(vocabulary).tokenize(["a"]).to_list() == [[1]]


def test_a_file_that_is_not_utf_8_is_refused(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"[PAD]\n\xff\n")
    with pytest.raises(UserError, match="not UTF-8 at byte 6"):
        Vocabulary.load(path)
