"""Small byte-level BPEs in ModernBERT's layout: special tokens after the others, [MASK] takes the space before it."""

from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# A byte's id is the place of its character: "!" is 0, "a" 64, "Ġ" (a space) 220.
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = ["h e", "t he", "Ġ the", "a t", "c at", "Ġ cat", "Ã ©", "ã ģ", "ãģ ¯", "Ġ ð", "o n"]  # ids from 256 on
SPACES = "   "  # 267: a token that is added but not special, as ModernBERT's runs of spaces
MODERNBERT = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")  # ids from 268 on
MMBERT = ("<unk>", "<bos>", "<eos>", "<pad>", "<mask>")


def byte_level(special: tuple[str, ...] = MODERNBERT, prefix_space: bool = False, further: Iterable[str] = ()) -> bytes:
    """The content of a tokenizer.json with the tokens of `MERGES`.

    Args: special: the tokens for unknown, the begin, the end, padding and masks.        further: those before them.
    """
    pairs = [tuple(merge.split()) for merge in MERGES]
    tokens = [*ALPHABET, *map("".join, pairs)]
    model = models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=pairs)
    return _file(Tokenizer(model), special, prefix_space, further)


def trained(lines: Iterable[str], vocab_size: int) -> bytes:
    """The content of a tokenizer.json that is trained on a text, with `vocab_size` entries in all."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    size = vocab_size - 1 - len(MODERNBERT)
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=ALPHABET, show_progress=False)
    tokenizer.train_from_iterator(lines, trainer)
    return _file(tokenizer, MODERNBERT)


def _file(
    tokenizer: Tokenizer, special: tuple[str, ...], prefix_space: bool = False, further: Iterable[str] = ()
) -> bytes:
    _, cls, sep, _, mask = special
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([SPACES])
    tokenizer.add_special_tokens([*further, *special[:-1], AddedToken(mask, lstrip=True, special=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (cls, sep)],
    )
    tokenizer.enable_truncation(9)  # as in some published files; the length is the reader's to choose
    return tokenizer.to_str(pretty=True).encode()
