"""What a reader yields, taken apart: documents, and counts of what it left out."""

from collections.abc import Iterable, Iterator

from data_prep.counts import ReadCounts
from data_prep.documents import Document


def documents_of(items: Iterable[Document | ReadCounts], counts: ReadCounts | None = None) -> Iterator[Document]:
    """Yields the documents; the counts are added to `counts`."""
    counts = counts or ReadCounts()
    for item in items:
        if isinstance(item, Document):
            yield item
        else:
            counts.add(item)
