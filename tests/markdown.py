"""Markdown tables in printed texts."""

import re


def cells(text: str) -> list[list[str]]:
    """The cells of the tables in a text: a list for each row, headings included."""
    rows = (line.strip().removeprefix("|").removesuffix("|") for line in text.splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in row.split("|")] for row in rows if not re.fullmatch(r"[-:|]+", row)]
