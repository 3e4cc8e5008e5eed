"""The numbers that the authors published, to every digit."""

import subprocess
import sys
from dataclasses import replace

import pytest

from electra_tf.flops.published_models import BASE, SMALL, electra, published_flops, xlnet

PUBLISHED = {
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


def test_the_thirteen_published_numbers_are_reproduced_to_every_digit():
    assert published_flops() == PUBLISHED


def test_the_small_electra_of_the_paper_fits_a_generator_of_128_and_its_xlnet_a_batch_of_2048():
    assert float(electra(SMALL, 128, 128, 1_000_000)) == pytest.approx(1.42e18, rel=0.005)
    assert float(xlnet(2048)) == pytest.approx(9.64e20, rel=0.001)


# Table 1 of the paper.
@pytest.mark.parametrize(("network", "printed"), [(SMALL, 3.7e9), (BASE, 2.9e10)])
def test_inference_over_128_tokens_is_the_papers(network, printed):
    assert replace(network, seq_length=128).inference() == pytest.approx(printed, rel=0.015)


def test_the_formulas_need_no_tensorflow():
    modules = "electra_tf.flops.paper_tables, electra_tf.flops.budget"
    program = f"import sys, {modules}; print('tensorflow' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"
