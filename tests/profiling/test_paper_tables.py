"""The FLOPs columns of the paper's tables: what agrees, and that a reason stands wherever something does not."""

import pytest

from electra_tf.profiling.paper_tables import Row, table_lines, tables, two_streams_of_xlnet
from electra_tf.profiling.published_models import xlnet

ROWS = [pytest.param(row, id=f"{table.title[:7]} {row.model}") for table in tables() for row in table.rows]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_agrees_to_the_two_digits_that_are_printed_or_says_why_not(row):
    assert row.agrees or len(row.note) > 40


def test_the_rows_that_do_not_agree_are_these():
    small = {f"{share}% trained" for share in (50, 25, 12.5, 6.25)} | {"ELECTRA-Small"}
    found = [{row.model for row in table.rows if not row.agrees} for table in tables()]
    assert found == [{"ELMo", "DistilBERT"} | small, {"SpanBERT"}, {"SpanBERT", "XLNet-Base"}, {"ELECTRA-Small"}]


def test_every_row_of_the_four_tables_is_there():
    assert [len(table.rows) for table in tables()] == [11, 7, 10, 6]


# As the paper prints them, from its own rounded numbers.
@pytest.mark.parametrize(
    ("table", "model", "printed"),
    [(0, "GPT", 1.6), (0, "BERT-Small", 45), (1, "BERT", 0.27), (1, "RoBERTa", 4.5), (2, "BERT-Base", 0.09)],
)
def test_a_speed_up_is_the_papers(table, model, printed):
    found = tables()[table]
    (row,) = [row for row in found.rows if row.model == model]
    assert found.factor(row.train, "train") == pytest.approx(printed, rel=0.02)


def test_two_streams_cost_what_the_authors_counted_for_xlnet():
    assert two_streams_of_xlnet() == pytest.approx(float(xlnet(2048)), rel=0.004)


def test_a_bound_is_kept_by_what_is_not_below_it():
    assert Row("m", "2.0e9+", "1x", train=2_100_000_000).agrees
    assert not Row("m", "2.0e9+", "1x", train=1_900_000_000).agrees
    assert not Row("m", "2.0e9", "1x", train=None).agrees


def test_a_table_is_printed_with_a_cell_for_every_column():
    lines = table_lines(tables()[0])
    assert {line.count("|") for line in lines[1:]} == {10}
    assert "| BERT-Base | 6.43e19 | 6.4e19 | 2.86e10 | 2.9e10 | 1x / 1x | 1x / 1x | yes |  |" in lines
