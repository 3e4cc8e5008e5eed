import pytest
import tensorflow as tf

from electra_tf.text.packing import cut_contexts, cut_pair, cut_texts, join_words, pack, windows, word_windows
from electra_tf.text.vocabulary import SPECIAL_TOKENS, WordPieceVocabulary

TEXTS = tf.RaggedTensor.from_row_lengths([10, 11, 12, 20, 21, 22, 23, 24], [3, 0, 5])


def ragged(*rows: list[int]) -> tf.RaggedTensor:
    return tf.ragged.constant(rows, tf.int32)


def test_cut_pair_shortens_the_longer_text_first():
    first, second = cut_pair(TEXTS, ragged([1, 2], [1, 2, 3, 4, 5, 6], [1, 2, 3, 4]), room=5)
    assert first.to_list() == [[10, 11, 12], [], [20, 21, 22]]
    assert second.to_list() == [[1, 2], [1, 2, 3, 4, 5], [1, 2]]


def test_the_context_of_a_choice_is_cut_and_a_choice_only_if_it_does_not_fit_alone():
    choices = ragged([1, 2], [1], [1, 2, 3, 4, 5], [1, 2, 3, 4])
    contexts, kept = cut_contexts(TEXTS, choices, tf.constant([0, 1, 2, 2], tf.int64), room=4)
    assert contexts.to_list() == [[10, 11], [], [], []]
    assert kept.to_list() == [[1, 2], [1], [1, 2, 3, 4], [1, 2, 3, 4]]
    contexts, _ = cut_contexts(TEXTS, choices, tf.constant([0, 0, 2, 2]), room=6)
    assert contexts.to_list()[1:] == [[10, 11, 12], [20], [20, 21]]


def test_windows_have_a_stride_and_the_last_one_ends_with_its_text():
    parts, text = windows(TEXTS, room=2, stride=2)
    assert text.numpy().tolist() == [0, 0, 1, 2, 2, 2]
    assert parts.to_list() == [[10, 11], [11, 12], [], [20, 21], [22, 23], [23, 24]]


def test_a_word_without_pieces_is_joined_as_unknown():
    tokens, word = join_words(ragged([7, 8], [], [9]), tf.constant([0, 0, 2], tf.int64), 3, unknown_id=1)
    assert tokens.to_list() == [[7, 8, 1], [], [9]]
    assert word.to_list() == [[0, -1, 1], [], [2]]


def test_a_word_belongs_to_the_window_in_which_its_first_piece_is_furthest_from_an_edge_or_else_to_the_first():
    word = ragged([0], [], [1, 2, 3, 4, -1, 5, 6, 7, -1, 8])
    parts, text, words, is_cut = word_windows(word + 50, tf.cast(word, tf.int64), max_seq_length=7, stride=2)
    assert parts.to_list()[2:] == [
        [51, 52, 53, 54, 49],
        [53, 54, 49, 55, 56],
        [49, 55, 56, 57, 49],
        [55, 56, 57, 49, 58],
    ]
    assert text.numpy().tolist() == [0, 1, 2, 2, 2, 2]
    belong = [[0], [], [1, 2, 3, 4, -1], [-1, -1, -1, 5, -1], [-1, -1, 6, -1, -1], [-1, -1, 7, -1, 8]]
    assert words.to_list() == [[-1, *row, -1] for row in belong]
    assert not is_cut.numpy().any()


def test_packed_rows_have_special_tokens_segments_and_padding():
    vocabulary = WordPieceVocabulary.from_tokens((*SPECIAL_TOKENS, "a"))
    cls, sep, pad = vocabulary.cls_id, vocabulary.sep_id, vocabulary.pad_id
    rows = pack([TEXTS, ragged([30], [], [30])], vocabulary)
    assert rows.input_ids.numpy().tolist() == [
        [cls, 10, 11, 12, sep, 30, sep, pad, pad],
        [cls, sep, sep, pad, pad, pad, pad, pad, pad],
        [cls, 20, 21, 22, 23, 24, sep, 30, sep],
    ]
    assert rows.num_tokens.numpy().tolist() == [7, 3, 9]
    assert rows.segment_ids.numpy().tolist()[0] == [0, 0, 0, 0, 0, 1, 1, 0, 0]
    assert pack([TEXTS], vocabulary, width=11).input_mask.shape == (3, 11)
    assert pack([TEXTS[:0]], vocabulary, least_width=4).input_ids.shape == (0, 4)


@pytest.mark.parametrize(
    ("longest", "expected"), [(0, ""), (2, "a"), (3, "aé"), (5, "aé"), (6, "aé東"), (9, "aé東"), (10, "aé東😀")]
)
def test_a_text_is_cut_at_the_end_of_a_character(longest, expected):
    texts, is_cut = cut_texts(tf.constant(["aé東😀", "", "a"]), longest)
    assert [text.decode() for text in texts.numpy()] == [expected, "", "a"[:longest]]
    assert is_cut.numpy().tolist() == [longest < 10, False, longest < 1]


def test_an_invalid_byte_is_a_character_whose_next_bytes_may_go_with_it():
    texts, is_cut = cut_texts(tf.constant([b"a\xff\x80\x80b", b"\x80" * 9]), 4)
    assert (texts.numpy().tolist(), is_cut.numpy().tolist()) == ([b"a", b"\x80" * 4], [True, True])
