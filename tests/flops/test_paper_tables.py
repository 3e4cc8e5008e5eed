"""The FLOPs columns of the paper's tables: what agrees, and that a reason stands wherever something does not."""

import pytest

from electra_tf.flops.paper_tables import Row, table_lines, tables, two_streams_of_xlnet
from electra_tf.flops.published_models import xlnet

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


def row_of(table: int, model: str) -> Row:
    (row,) = [row for row in tables()[table].rows if row.model == model]
    return row


@pytest.mark.parametrize(
    ("table", "model", "attribute", "flops"),
    [
        (1, "SpanBERT", "train", 467_099_698_082_611_200_000),
        (2, "XLNet-Base", "train", 71_790_042_808_320_000_000),
        (3, "TinyBERT", "train", 66_386_252_550_000_000_000),
        (0, "DistilBERT", "inference", 17_398_042_368),
        # 568,093,262,680 for 20 sequences, less 128 words x 2 directions x 2 x 512 x 8192.
        (0, "ELMo", "inference", 28_404_663_134 - 2_147_483_648),
    ],
)
def test_a_row_that_the_authors_published_no_count_of_has_this_value(table, model, attribute, flops):
    assert getattr(row_of(table, model), attribute) == flops


def test_a_bound_is_printed_as_one():
    cells = next(line for line in table_lines(tables()[3]) if line.startswith("| TinyBERT |")).split(" | ")
    assert cells[1:3] == ["6.64e19+", "6.4e19+"]
    assert cells[7] == "bound"


@pytest.mark.parametrize(
    ("table", "model", "said"),
    [
        (0, "BERT-Small", "section 3.3 says 1.5 M"),
        (0, "ELMo", "is our explanation"),
        (1, "RoBERTa", "batches of 8,000"),
        (1, "SpanBERT", "BERT's uncased vocabulary"),
        (3, "TinyBERT", "a lower bound"),
    ],
)
def test_what_was_assumed_for_a_row_is_said(table, model, said):
    assert said in row_of(table, model).note
