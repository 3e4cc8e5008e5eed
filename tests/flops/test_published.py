"""The paper's own figures: the authors' thirteen numbers, and its tables, with a reason wherever they disagree."""

import subprocess
import sys

import pytest

from electra_tf.flops.published import LARGE, PUBLISHED, TABLES, Row, table_lines, two_streams, xlnet


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


def test_the_formulas_need_no_tensorflow():
    program = "import sys, electra_tf.flops.published, electra_tf.flops.budget; print('tensorflow' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"


def test_two_streams_cost_what_the_authors_counted_for_xlnet():
    assert two_streams(LARGE, 2048, 500_000) == pytest.approx(float(xlnet(2048)), rel=0.004)


def test_the_rows_that_do_not_agree_to_two_digits_are_these_and_say_why():
    small = {f"{share}% trained" for share in (50, 25, 12.5, 6.25)} | {"ELECTRA-Small"}
    assert [(table.title[:7], len(table.rows)) for table in TABLES] == [
        *(("table 1", 11), ("table 2", 7), ("table 3", 10), ("table 7", 6)),
    ]
    disagreeing = [{row.model for row in table.rows if not row.agrees} for table in TABLES]
    assert disagreeing == [{"ELMo", "DistilBERT"} | small, {"SpanBERT"}, {"SpanBERT", "XLNet-Base"}, {"ELECTRA-Small"}]
    assert all(row.agrees or len(row.note) > 40 for table in TABLES for row in table.rows)


def test_a_printed_lower_bound_agrees_with_what_is_not_below_it():
    assert Row("m", "2.0e9+", "1x", train=2_100_000_000).agrees
    assert not Row("m", "2.0e9+", "1x", train=1_900_000_000).agrees
    assert not Row("m", "2.0e9", "1x", train=None).agrees


# As the paper prints them: savings in table 1, multiples in the others.
@pytest.mark.parametrize(
    ("table", "line"),
    [
        (0, "| BERT-Base | 6.43e19 | 6.4e19 | 2.86e10 | 2.9e10 | 1x / 1x | 1x / 1x | yes |  |"),
        (0, "| GPT | 3.97e19 | 4.0e19 | 3.05e10 | 3.0e10 | 1.62x / 0.939x | 1.6x / 0.97x | yes | vocabulary of"),
        # Inference: 568,093,262,680 for 20 sequences, less 128 words x 2 directions x 2 x 512 x 8192.
        (0, "| ELMo | 3.41e18 | 3.3e18 | 2.63e10 | 2.6e10 | 18.8x / 1.09x | 19x / 1.2x | NO | the authors' count"),
        (0, "| DistilBERT | - | - | 1.74e10 | 1.4e10 | - / 1.64x | - / 2x | NO | six layers"),
        (1, "| SpanBERT | 4.67e20 | 7.1e20 | - | - | 0.656x | 1x | NO | BERT-Large"),
        (2, "| XLNet-Base | 7.18e19 | 6.6e19 | - | - | 0.101x | 0.09x | NO | 1 M batches"),
        (3, "| TinyBERT | 6.64e19+ | 6.4e19+ | - | - | 51.3x | 45x+ | bound | a lower bound"),
    ],
)
def test_a_row_is_printed_beside_the_papers_with_speed_ups_and_a_verdict(table, line):
    assert any(printed.startswith(line) for printed in table_lines(TABLES[table]))
