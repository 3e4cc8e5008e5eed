"""Near-copies of documents, which MinHash (the library rensa) finds by the sequences of five tokens that they share.

Phase 1 stores in each run a signature for every document. Between the phases, the documents are taken in the order of
their hashes, and one is dropped if its signature is close enough to that of one which was kept. So neither the order of
the input nor its division matters. Documents with the lowest hashes are held out: they come first, and no training
document that is kept is a near-copy of a held-out one.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from data_prep.store import ENTRY, ExampleBatch, ShardRange, gather

SIGNATURES = "signatures"  # beside the splits in a run

_SHINGLE_TOKENS = 5
_NUM_HASHES = 128  # the standard error of a similarity of 0.8 is 0.035
_MIN_RECALL = 0.85  # of the pairs that are just close enough
_NUM_RANGES = 64  # one is in memory
_SEED = 0  # of the hashes: whether two documents are near-copies does not depend on the seed of the build


def signatures_of(documents: Sequence[int], token_ids: Iterable[np.ndarray]) -> ExampleBatch:
    """Returns an entry for each document, whose key is the document and whose "token ids" are the bytes of a signature.

    Args:
        documents: see `ENTRY`.
        token_ids: of each document, [num_tokens] int32, at least one.
    """
    from rensa import RMinHash

    contents = []
    for ids in token_ids:
        length = ids.itemsize * min(_SHINGLE_TOKENS, len(ids))
        content = ids.tobytes()
        signature = RMinHash(_NUM_HASHES, _SEED)
        signature.update([content[i : i + length] for i in range(0, len(content) - length + 1, ids.itemsize)])
        contents.append(signature.__getstate__())
    entries = np.zeros(len(documents), ENTRY)
    entries["key"] = entries["document"] = documents
    entries["num_tokens"] = list(map(len, contents))
    return ExampleBatch.in_order(entries, np.frombuffer(b"".join(contents), np.uint8))


def find_near_duplicates(runs: Sequence[Path], threshold: float) -> np.ndarray:
    """Returns the documents to drop, uint64: see `ENTRY`.

    Args:
        runs: of all spills.
        threshold: the estimated Jaccard similarity, at least 0.5, from which on a document is dropped.
    """
    from rensa import RMinHash, RMinHashDeduplicator

    # Two documents are compared if their signatures are equal in one band.
    num_bands = next(n for n in (8, 16, 32) if 1 - (1 - threshold ** (_NUM_HASHES // n)) ** n >= _MIN_RECALL)
    kept = RMinHashDeduplicator(threshold, _NUM_HASHES, True, num_bands, _SEED)
    dropped: list[int] = []
    for index in range(_NUM_RANGES):
        batch = gather(runs, ShardRange(SIGNATURES, index, _NUM_RANGES), vocab_size=256).sort()
        # One for each text: if it was divided into sentences in two ways, both stay, or none.
        numbers, first = np.unique(batch.entries["document"] // 2, return_index=True)
        for number, (content, _) in zip(numbers.tolist(), batch.take(first).rows(), strict=True):
            signature = RMinHash(_NUM_HASHES, _SEED)
            signature.__setstate__(content.tobytes())
            if not kept.add(str(kept.len()), signature):
                dropped += [2 * number, 2 * number + 1]
    return np.array(dropped, np.uint64)
