import subprocess
import sys

from electra_tf.flops.published import PUBLISHED


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
