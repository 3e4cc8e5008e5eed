"""The authors' thirteen numbers and the paper's tables are reproduced, or have a reason for a difference."""

import subprocess
import sys

import pytest

from electra_tf.flops.published import LARGE, PUBLISHED, TABLES, Row, two_streams, xlnet


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


def test_two_streams_agree_with_the_authors_count_for_xlnet():
    assert two_streams(LARGE, 2048, 500_000) == pytest.approx(float(xlnet(2048)), rel=0.004)


def test_rows_that_differ_from_the_paper_have_a_reason():
    small = {f"{share}% trained" for share in (50, 25, 12.5, 6.25)} | {"ELECTRA-Small"}
    assert [(table.title[:7], len(table.rows)) for table in TABLES] == [
        *(("table 1", 11), ("table 2", 7), ("table 3", 10), ("table 7", 6)),
    ]
    disagreeing = [{row.model for row in table.rows if not row.agrees} for table in TABLES]
    assert disagreeing == [{"ELMo", "DistilBERT"} | small, {"SpanBERT"}, {"SpanBERT", "XLNet-Base"}, {"ELECTRA-Small"}]
    assert all(row.agrees or len(row.note) > 40 for table in TABLES for row in table.rows)


def test_a_printed_lower_bound_agrees_with_any_larger_number():
    assert Row("m", "2.0e9+", "1x", train=2_100_000_000).agrees
    assert not Row("m", "2.0e9+", "1x", train=1_900_000_000).agrees
    assert not Row("m", "2.0e9", "1x", train=None).agrees
