"""The authors' thirteen numbers, and our figures beside the paper's tables."""

import subprocess
import sys
from fractions import Fraction

import pytest

from electra_tf.config.networks import EncoderConfig
from electra_tf.flops import paper
from electra_tf.flops.passes import HeadPass, NetworkPass
from electra_tf.flops.published import BASE, GPT, LARGE, PUBLISHED, ROBERTA, SMALL, bert, electra, xlnet


def test_the_thirteen_published_numbers_are_reproduced_to_every_digit():
    assert {name: float(flops) for name, flops in PUBLISHED.items()} == {
        "elmo": 3.4114394716164127e18,
        "xlnet": 3.856582065028608e21,
        "gpt": 3.968752230785352e19,
        "bert_small": 1.4187399146496e18,
        "bert_base": 6.428335104e19,
        "bert_large": 1.91720905883648e20,
        "electra_small": 1.293743798272e18,
        "electra_base": 6.424541834277683e19,
        "electra_400k": 7.117606040895488e20,
        "electra_1.75M": 3.113952642891776e21,
        "roberta": 3.187221435776e21,
        "albert": 3.113923955392512e22,
        "t5_11b": 4.581900124212429e22,
    }


def test_the_formulas_do_not_import_tensorflow():
    program = "import sys, electra_tf.flops.published, electra_tf.flops.budget; print('tensorflow' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"


def spanbert() -> Fraction:
    """BERT-Large, and a second softmax for the borders of spans: Joshi et al. 2019."""
    hidden = LARGE.hidden_size
    boundary = 2 * (3 * hidden) * hidden + 2 * hidden * hidden + 2 * hidden * LARGE.vocab_size
    return bert(LARGE, 256, 2_400_000) + 256 * 2_400_000 * 2 * paper.PREDICTED_FRACTION * 512 * boundary


def two_streams(model: EncoderConfig, batch_size: int, num_steps: int) -> int:
    """An XLNet (Yang et al. 2019) without memory: twice the matrix products of a forward pass."""
    hidden, length, predicted, vocab_size = model.hidden_size, 512, 85, 32_000  # one of six positions is predicted
    position_keys = 2 * length * 2 * hidden * hidden
    keys_and_values = length * 2 * (2 * hidden * hidden)
    # A position of either stream: query, output, feed-forward; scores by content and by position, weighted sum.
    position = (2 + 2 + 16) * hidden * hidden + 2 * hidden * (length + 2 * length + length)
    layer = position_keys + keys_and_values + (length + predicted) * position
    return 2 * batch_size * num_steps * (model.num_layers * layer + predicted * 2 * hidden * vocab_size)


def tinybert() -> Fraction:
    """BERT-Base, its teacher, and three epochs of general distillation (Jiao et al. 2019)."""
    student = BASE.model_copy(
        update={"hidden_size": 312, "embedding_size": 312, "num_layers": 4, "intermediate_size": 1200}
    )
    passes = [NetworkPass("teacher", BASE, (), trained=False), NetworkPass("student", student, ())]
    return PUBLISHED["bert_base"] + 3 * 2_500_000_000 // 128 * paper.example_flops(passes, 128)


def inference(model: EncoderConfig) -> Fraction:
    """A forward pass with the discriminator's head, which the paper assumes for all tasks."""
    return paper.example_flops([NetworkPass("encoder", model, (HeadPass("token", "all"),), trained=False)], 128)


# The figures in docs/notes/flops.md, beside the thirteen.
@pytest.mark.parametrize(
    ("flops", "figure"),
    [
        (electra(SMALL, 128, 128, 1_000_000, seq_length=128), 1.42e18),
        (electra(SMALL, 128, 128, 62_500, seq_length=128), 8.90e16),
        (electra(SMALL, 64, 128, 62_500, seq_length=128), 8.09e16),
        (bert(SMALL, 128, 1_500_000, seq_length=128), 1.47e18),
        (xlnet(2048), 9.64e20),
        (bert(ROBERTA, 8000, 100_000), 6.37e20),
        (bert(LARGE, 2048, 464_000), 7.12e20),
        (spanbert(), 4.67e20),
        (two_streams(BASE, 256, 1_000_000), 7.18e19),
        (tinybert(), 6.64e19),
        (inference(SMALL), 3.68e9),
        (inference(BASE), 2.86e10),
        (inference(GPT), 3.05e10),
        (inference(BASE.model_copy(update={"num_layers": 6})), 1.74e10),
        # ELMo: the authors' forward pass of 20 sequences, less two directions of a product of 512 x 8192 for each word.
        (Fraction(568_093_262_680, 20) - 128 * 2 * (2 * 512 * 8192), 2.63e10),
    ],
)
def test_the_figures_of_the_papers_tables(flops, figure):
    assert float(f"{float(flops):.2e}") == figure


def test_two_streams_agree_with_the_authors_count_for_xlnet():
    assert two_streams(LARGE, 2048, 500_000) == pytest.approx(float(xlnet(2048)), rel=0.004)
