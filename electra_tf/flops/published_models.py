"""The thirteen training costs that the authors published with their code, from the models' sizes.

Beside the rules of `electra_tf.flops.paper` they depend on what a model is taken to be, QUIRK again marking what
one would not expect:

- ELMo and XLNet are no BERT-like encoders: the authors counted their forward passes with TensorFlow's profiler and
  published the counts, which are taken from there;
- XLNet is counted at batch 8192, the paper's 9.6e20 at 2048;
- GPT predicts every token; its sequences have 512;
- every vocabulary but those of GPT, RoBERTa, ALBERT and T5 has 30,522 entries;
- RoBERTa, ALBERT and T5 are counted as if they were BERTs of their sizes.

Every head has 64 units unless told otherwise. No TensorFlow is needed here.
"""

from collections.abc import Callable
from fractions import Fraction

from electra_tf.flops.paper import PaperNetwork

BERT_VOCAB_SIZE = 30522
# "568093262680 FLOPs per example", of a batch of 20 sequences of 128 words; 768,648,884 words, ten times.
_ELMO_FORWARD, _ELMO_WORDS = 568_093_262_680, 10 * 768_648_884
# "15064773691518 is FLOPs for forward pass on 32 examples" of 512 tokens.
_XLNET_FORWARD, _XLNET_EXAMPLES = 15_064_773_691_518, 32
XLNET_STEPS = 500_000


def network(
    hidden_size: int,
    num_layers: int,
    *,
    seq_length: int = 512,
    vocab_size: int = BERT_VOCAB_SIZE,
    embedding_size: int | None = None,
    intermediate_size: int | None = None,
    num_heads: int | None = None,
    head_size: int = 64,
    is_decoder: bool = False,
) -> PaperNetwork:
    """A transformer of BERT's proportions but for what is given otherwise."""
    return PaperNetwork(
        hidden_size=hidden_size,
        num_layers=num_layers,
        seq_length=seq_length,
        vocab_size=vocab_size,
        embedding_size=embedding_size or hidden_size,
        intermediate_size=intermediate_size or 4 * hidden_size,
        num_heads=num_heads or max(1, hidden_size // head_size),
        attention_size=num_heads * head_size if num_heads else hidden_size,
        is_decoder=is_decoder,
    )


SMALL = network(256, 12, seq_length=128, embedding_size=128)
BASE = network(768, 12)
LARGE = network(1024, 24)
# GPT's own vocabulary has 40,478 entries.
GPT = network(768, 12, vocab_size=40_000)


def elmo() -> Fraction:
    """ELMo: forward and backward over every word, as counted for batches of 20 x 128."""
    # QUIRK: the batch's FLOPs are called an example's, and divided by the batch's words: the outcome is right.
    return Fraction(2 * _ELMO_WORDS * _ELMO_FORWARD, 20 * 128)


def xlnet(batch_size: int) -> Fraction:
    """XLNet-Large, 500,000 steps."""
    return Fraction(2 * XLNET_STEPS * batch_size * _XLNET_FORWARD, _XLNET_EXAMPLES)


def gpt() -> Fraction:
    """GPT: 960,800 batches of 128."""
    return 128 * 960_800 * GPT.masked_lm_training(fraction=Fraction(1))


def bert(model: PaperNetwork, batch_size: int, num_steps: int) -> Fraction:
    """A masked language model alone."""
    return batch_size * num_steps * model.masked_lm_training()


def electra(discriminator: PaperNetwork, generator_hidden_size: int, batch_size: int, num_steps: int) -> Fraction:
    """A discriminator, and a generator of the same depth with embeddings of the discriminator's size."""
    generator = network(
        generator_hidden_size,
        discriminator.num_layers,
        seq_length=discriminator.seq_length,
        embedding_size=discriminator.embedding_size,
    )
    return batch_size * num_steps * (discriminator.token_training() + generator.masked_lm_training())


def t5_11b() -> Fraction:
    """T5 of 11 billion parameters: an encoder without, a decoder with a softmax at every position, 512 tokens each."""
    sizes = {"vocab_size": 32_000, "intermediate_size": 65_536, "num_heads": 128, "head_size": 128}
    encoder, decoder = network(1024, 24, **sizes), network(1024, 24, **sizes, is_decoder=True)
    example = encoder.masked_lm_training(Fraction(0)) + decoder.masked_lm_training(Fraction(1))
    return 2048 * 1_000_000 * example


_PUBLISHED: dict[str, Callable[[], Fraction]] = {
    "elmo": elmo,
    "xlnet": lambda: xlnet(batch_size=8192),
    "gpt": gpt,
    "bert_small": lambda: bert(SMALL, 128, 1_450_000),
    "bert_base": lambda: bert(BASE, 256, 1_000_000),
    "bert_large": lambda: bert(LARGE, 256, 1_000_000),
    "electra_small": lambda: electra(SMALL, 64, 128, 1_000_000),
    "electra_base": lambda: electra(BASE, 256, 256, 766_000),
    "electra_400k": lambda: electra(LARGE, 256, 2048, 400_000),
    "electra_1.75M": lambda: electra(LARGE, 256, 2048, 1_750_000),
    "roberta": lambda: bert(network(1024, 24, vocab_size=50_265), 8000, 500_000),
    "albert": lambda: bert(network(4096, 12, vocab_size=30_000, embedding_size=128), 4096, 1_500_000),
    "t5_11b": t5_11b,
}


def published_flops() -> dict[str, float]:
    """The thirteen numbers, by the authors' names."""
    return {name: float(count()) for name, count in _PUBLISHED.items()}
