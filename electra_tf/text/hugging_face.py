"""The tokenizer of each kind of vocabulary for the library `tokenizers`; needs no TensorFlow."""

from sentencepiece import SentencePieceProcessor
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from electra_tf.text.characters import DELETED, ISOLATED, NONSPACING_MARK, SPACE, character_class
from electra_tf.text.vocabulary import (
    CONTINUATION_PREFIX,
    MASK,
    UNK,
    WORD_MARKER,
    SentencePieceVocabulary,
    TextSettings,
    Vocabulary,
    WordPieceVocabulary,
)

MAX_CHARACTERS_PER_WORD = 200  # a longer word is [UNK], as in the authors' WordpieceTokenizer
# Characters that become a space before a SentencePiece model; NFKC alone makes some of them one.
SPACES = f"\t\n\x0b\x0c\r\x85\xa0{WORD_MARKER}\u2000-\u200b\u2028\u2029\u202f\u205f\u3000"


class SentencePieceModel:
    """The scores of a model's pieces.

    Attributes:
        scores: by id.
        score_of: by piece of text, which is neither a special token nor a single byte.
        is_bpe: whether it is a BPE, or a unigram model.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        processor = SentencePieceProcessor(model_proto=vocabulary.content)
        self.scores: list[float] = [processor.get_score(index) for index in range(vocabulary.size)]
        # BPE's scores are 0, -1, -2 ..., in the order of the merges; unigram's are log probabilities.
        self.is_bpe = all(score.is_integer() for score in self.scores)
        others = processor.is_control, processor.is_unknown, processor.is_byte
        self.score_of = {
            token: score
            for index, (token, score) in enumerate(zip(vocabulary.tokens, self.scores, strict=True))
            if not any(is_other(index) for is_other in others)
        }


def hugging_face_tokenizer(vocabulary: Vocabulary, settings: TextSettings) -> HuggingFaceTokenizer:
    """The tokenizer of a vocabulary, without special tokens around a text; see `kinds.create_tokenizer`."""
    if isinstance(vocabulary, WordPieceVocabulary):
        return _of_word_pieces(vocabulary, settings)
    if isinstance(vocabulary, SentencePieceVocabulary):
        return _of_sentence_pieces(vocabulary)
    return HuggingFaceTokenizer.from_buffer(vocabulary.content)


def _of_word_pieces(vocabulary: Vocabulary, settings: TextSettings) -> HuggingFaceTokenizer:
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    tokenizer = HuggingFaceTokenizer(
        models.WordPiece(
            ids,
            unk_token=UNK,
            max_input_chars_per_word=MAX_CHARACTERS_PER_WORD,
            continuing_subword_prefix=CONTINUATION_PREFIX,
        )
    )
    # BertNormalizer and BertPreTokenizer have tables of Unicode 8 and delete no unassigned characters.
    deleted, space, mark, isolated = (
        Regex(character_class(bits, settings)) for bits in (DELETED, SPACE, NONSPACING_MARK, ISOLATED)
    )
    bert = normalizers.BertNormalizer(
        clean_text=False,  # which deletes all format characters
        handle_chinese_chars=settings.isolate_cjk,
        lowercase=settings.lower_case,
        strip_accents=settings.strips_accents,
    )
    stripped = [normalizers.Replace(mark, "")] if settings.strips_accents else []
    cleaned = normalizers.Replace(deleted, ""), normalizers.Replace(space, " ")
    tokenizer.normalizer = normalizers.Sequence([*cleaned, bert, *stripped])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(isolated, "isolated"), pre_tokenizers.BertPreTokenizer()]
    )
    tokenizer.decoder = decoders.WordPiece(CONTINUATION_PREFIX)
    return tokenizer


def _of_sentence_pieces(vocabulary: Vocabulary) -> HuggingFaceTokenizer:
    tokenizer = HuggingFaceTokenizer(_model_of(vocabulary))
    tokenizer.normalizer = normalizers.Sequence(
        [
            # `tokenizers` has the tables of Unicode 9. Of the later compatibility forms, one is usual in text: the
            # sign of the Japanese era since 2019.
            normalizers.Replace("\u32ff", "令和"),
            normalizers.NFKC(),
            normalizers.Replace(Regex(f"[{SPACES}]"), " "),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Replace(Regex("^ +| +$"), ""),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(WORD_MARKER, prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(WORD_MARKER, prepend_scheme="always")
    # Without its spaces: a masked word loses the space in its marker.
    tokenizer.add_special_tokens([AddedToken(MASK, lstrip=True, special=True)])
    return tokenizer


def _model_of(vocabulary: Vocabulary) -> models.Model:
    model, tokens, has_bytes = SentencePieceModel(vocabulary), vocabulary.tokens, bool(vocabulary.byte_ids)
    if not model.is_bpe:
        return models.Unigram(list(zip(tokens, model.scores, strict=True)), vocabulary.unk_id, has_bytes)
    merges = [
        (token[:end], token[end:])
        for token in sorted(model.score_of, key=model.score_of.__getitem__, reverse=True)
        for end in range(1, len(token))
        if token[:end] in model.score_of and token[end:] in model.score_of
    ]
    ids = {token: index for index, token in enumerate(tokens)}
    return models.BPE(vocab=ids, merges=merges, unk_token=UNK, fuse_unk=True, byte_fallback=has_bytes)
