"""The files from which transformers builds a tokenizer that gives our ids."""

import json

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from electra_tf.text.tokenizer import MAX_CHARACTERS_PER_WORD
from electra_tf.text.vocabulary import CLS, CONTINUATION_PREFIX, MASK, PAD, SEP, SPECIAL_TOKENS, UNK, Vocabulary

_SPECIAL_TOKENS = {"unk_token": UNK, "sep_token": SEP, "pad_token": PAD, "cls_token": CLS, "mask_token": MASK}


def tokenizer_files(
    vocabulary: Vocabulary, vocabulary_file: bytes, lower_case: bool, strip_accents: bool, max_length: int
) -> dict[str, bytes]:
    """vocab.txt, tokenizer.json, tokenizer_config.json and special_tokens_map.json by name.

    Args:
        vocabulary_file: the content of vocab.txt.        max_length: the longest input of the model, in tokens.
    """
    config = {
        # Of an ElectraTokenizer or BertTokenizer transformers 5 ignores tokenizer.json, and with it the length of the
        # longest word: its limit is 100 characters, BERT's and ours 200.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "model_max_length": max_length,
        "do_lower_case": lower_case,
        "strip_accents": lower_case and strip_accents,
        "tokenize_chinese_chars": True,
        "clean_up_tokenization_spaces": False,
        **_SPECIAL_TOKENS,
    }
    tokenizer = fast_tokenizer(vocabulary, lower_case, strip_accents)
    return {
        "vocab.txt": vocabulary_file,
        "tokenizer.json": tokenizer.to_str(pretty=True).encode(),
        "tokenizer_config.json": _json(config),
        "special_tokens_map.json": _json(_SPECIAL_TOKENS),
    }


def fast_tokenizer(vocabulary: Vocabulary, lower_case: bool, strip_accents: bool) -> Tokenizer:
    """BERT's tokenization by the library `tokenizers`: one text or two, with [CLS] and [SEP]."""
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    tokenizer = Tokenizer(
        models.WordPiece(
            ids,
            unk_token=UNK,
            max_input_chars_per_word=MAX_CHARACTERS_PER_WORD,
            continuing_subword_prefix=CONTINUATION_PREFIX,
        )
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower_case, strip_accents=lower_case and strip_accents)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(CONTINUATION_PREFIX)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(CLS, vocabulary.cls_id), (SEP, vocabulary.sep_id)],
    )
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def _json(content: dict) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
