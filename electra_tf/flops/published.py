"""The thirteen training costs that the authors published with their code, computed again.

They are BERT-like networks in the convention of `electra_tf.flops.paper`, with steps and batches from table 5 or from
the papers that describe the models. docs/notes/flops.md compares them, and the paper's other figures, with its tables.
QUIRK marks what is unexpected:

- ELMo and XLNet are not BERT-like: the authors counted their forward passes with TensorFlow's profiler, and their
  counts are used here;
- the authors' code counts XLNet at batch 8192, the paper's 9.6e20 is for 2048;
- GPT predicts every token, in sequences of 512;
- every vocabulary but those of GPT, RoBERTa, ALBERT and T5 has 30,522 entries;
- RoBERTa, ALBERT and T5 are counted as BERTs of their sizes.
"""

from fractions import Fraction
from typing import Any, Literal

from electra_tf.config.networks import EncoderConfig
from electra_tf.flops import paper
from electra_tf.flops.passes import HeadPass, NetworkPass


def _encoder(hidden_size: int, num_layers: int, **sizes: Any) -> EncoderConfig:
    """An encoder with BERT's vocabulary and proportions, except for the given sizes."""
    like_bert: dict[str, Any] = {
        "vocab_size": 30_522,
        "embedding_size": hidden_size,
        "num_heads": max(1, hidden_size // 64),
        "intermediate_size": 4 * hidden_size,
    }
    return EncoderConfig(hidden_size=hidden_size, num_layers=num_layers, **{**like_bert, **sizes})


SMALL = _encoder(256, 12, embedding_size=128)
BASE = _encoder(768, 12)
LARGE = _encoder(1024, 24)
ROBERTA = _encoder(1024, 24, vocab_size=50_265)
GPT = _encoder(768, 12, vocab_size=40_000)  # its own vocabulary has 40,478 entries

_ELMO_BATCH = 568_093_262_680  # forward; "FLOPs per example", of a batch of 20 sequences of 128 words
_ELMO_WORDS = 10 * 768_648_884
_XLNET_BATCH = 15_064_773_691_518  # "FLOPs for forward pass on 32 examples" of 512 tokens
_XLNET_STEPS = 500_000


def xlnet(batch_size: int) -> Fraction:
    """FLOPs of training XLNet-Large for 500,000 steps."""
    return Fraction(2 * _XLNET_STEPS * batch_size * _XLNET_BATCH, 32)


def _masked_lm(model: EncoderConfig, positions: Literal["masked", "all"] = "masked") -> NetworkPass:
    return NetworkPass("masked_lm", model, (HeadPass("vocabulary", positions),))


def bert(model: EncoderConfig, batch_size: int, num_steps: int, seq_length: int = 512) -> Fraction:
    """FLOPs of training a masked language model, in the paper's convention."""
    return batch_size * num_steps * paper.example_flops([_masked_lm(model)], seq_length)


def electra(
    model: EncoderConfig, generator_hidden_size: int, batch_size: int, num_steps: int, seq_length: int = 512
) -> Fraction:
    """FLOPs of training a discriminator, and a generator with the same depth and embedding size."""
    generator = _encoder(generator_hidden_size, model.num_layers, embedding_size=model.embedding_size)
    passes = [_masked_lm(generator), NetworkPass("discriminator", model, (HeadPass("token", "all"),))]
    return batch_size * num_steps * paper.example_flops(passes, seq_length)


def _t5_11b() -> Fraction:
    """FLOPs of training T5 with 11 B parameters: 512 tokens in encoder and decoder, a prediction of every token."""
    model = _encoder(1024, 24, vocab_size=32_000, intermediate_size=65_536, num_heads=128)
    attention = paper.attention(model, 512, attention_size=128 * 128)
    others = paper.embeddings(model, 512) + paper.feed_forward(model, 512)
    # QUIRK: the decoder's attention to the encoder counts as a second attention over the decoder's length, residual and
    # LayerNorm included.
    decoder = 2 * attention + others + paper.head_flops(model, HeadPass("vocabulary", "all"), 512)
    return 2048 * 1_000_000 * 2 * (attention + others + decoder)


# By the names in the authors' code.
PUBLISHED: dict[str, Fraction] = {
    # QUIRK: the authors' code calls these FLOPs "per example", but divides by the words of a batch, which is right.
    "elmo": Fraction(2 * _ELMO_WORDS * _ELMO_BATCH, 20 * 128),
    "xlnet": xlnet(batch_size=8192),
    "gpt": 128 * 960_800 * paper.example_flops([_masked_lm(GPT, "all")], 512),
    "bert_small": bert(SMALL, 128, 1_450_000, seq_length=128),
    "bert_base": bert(BASE, 256, 1_000_000),
    "bert_large": bert(LARGE, 256, 1_000_000),
    "electra_small": electra(SMALL, 64, 128, 1_000_000, seq_length=128),
    "electra_base": electra(BASE, 256, 256, 766_000),
    "electra_400k": electra(LARGE, 256, 2048, 400_000),
    "electra_1.75M": electra(LARGE, 256, 2048, 1_750_000),
    "roberta": bert(ROBERTA, 8000, 500_000),
    "albert": bert(_encoder(4096, 12, vocab_size=30_000, embedding_size=128), 4096, 1_500_000),
    "t5_11b": _t5_11b(),
}
