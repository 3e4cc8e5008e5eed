"""What the pages promise: each promise stands in `promises.yaml` beside the test that shows it.

Who takes a guard away meets the test of its promise, and who rewords a promise meets this file.
"""

import re

import pytest
import yaml

from tests.docs.commands import PROJECT
from tests.docs.test_pages import PAGES

PAGE_OF = {page.stem: page for page in [*PAGES, PROJECT / "SECURITY.md"]}
PROMISES = yaml.safe_load((PROJECT / "tests/docs/promises.yaml").read_text(encoding="utf-8"))
# What a sentence says of damage, interruptions and mistakes.
SOUNDS_LIKE_A_PROMISE = re.compile(
    r"\b(refuses|refused|continues?|never|up to its fault|to the bit|exit status|checksums?"
    r"|(is|are) (counted|named|reported|skipped|kept|left out|checked|an error))\b"
)


def prose(page: str) -> str:
    """A page without its blocks, its white space as single blanks."""
    text = PAGE_OF[page].read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("page", PROMISES)
def test_each_promise_stands_on_its_page(page):
    text = prose(page)
    assert [promise for promise in PROMISES[page] if promise not in text] == []


@pytest.mark.parametrize("page", PROMISES)
def test_each_promise_has_a_test(page):
    for promise, test in PROMISES[page].items():
        path, _, name = test.partition("::")
        assert re.search(rf"^ *def {name}\(", (PROJECT / path).read_text(encoding="utf-8"), re.MULTILINE), promise


@pytest.mark.parametrize("page", PAGE_OF)
def test_each_sentence_that_sounds_like_a_promise_is_listed(page):
    sentences = re.split(r"(?<=[.;])\s|\s\|\s", prose(page))
    listed = PROMISES.get(page, {})
    suspects = [sentence for sentence in sentences if SOUNDS_LIKE_A_PROMISE.search(sentence)]
    assert [each for each in suspects if not any(promise in each or each in promise for promise in listed)] == []
