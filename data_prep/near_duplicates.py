"""Near-copies of documents, which MinHash (the library rensa) finds by the sequences of five tokens that they share.

Phase 1 stores in each run a signature for every document. Between the phases, the documents are taken in the order of
their hashes, and one is dropped if its signature is close enough to that of one which was kept. So neither the order of
the input nor its division matters. Documents with the lowest hashes are held out: they come first, and no training
document that is kept is a near-copy of a held-out one.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from data_prep.shuffle import ENTRY, ExampleBatch, ShardRange, gather

SIGNATURES = "signatures"  # beside the splits in a run

_SHINGLE_TOKENS = 5
_NUM_HASHES = 128  # the standard error of a similarity of 0.8 is 0.035
_MIN_RECALL = 0.85  # of the pairs that are just close enough
_NUM_RANGES = 64  # one is in memory
_SEED = 0  # of the hashes: whether two documents are near-copies does not depend on the seed of the build


def signatures_of(documents: Iterable[tuple[int, np.ndarray]], examples: ExampleBatch) -> ExampleBatch:
    """Returns an entry for each document, whose "token ids" are bytes: A the keys of its examples, B its signature.

    Args:
        documents: the place in the order of all documents, and the token ids, [num_tokens] int32, at least one.
        examples: of these documents, in their order.
    """
    from rensa import RMinHash

    contents, entries = [], []
    begins = np.flatnonzero(examples.entries["is_first"])
    splits = examples.entries["is_split"][begins]
    keys_of = np.split(examples.entries["key"], begins[1:])
    for (place, token_ids), keys, is_split in zip(documents, keys_of, splits, strict=True):
        length = token_ids.itemsize * min(_SHINGLE_TOKENS, len(token_ids))
        content = token_ids.tobytes()
        signature = RMinHash(_NUM_HASHES, _SEED)
        signature.update([content[i : i + length] for i in range(0, len(content) - length + 1, token_ids.itemsize)])
        contents += [keys.tobytes(), signature.__getstate__()]
        entries.append((place, 0, sum(map(len, contents[-2:])), keys.nbytes, True, place, is_split))
    batch = ExampleBatch(np.array(entries, ENTRY), np.frombuffer(b"".join(contents), np.uint8))
    batch.entries["begin"] = np.cumsum(batch.entries["num_tokens"], dtype=np.uint64) - batch.entries["num_tokens"]
    return batch


def keys_of_near_duplicates(runs: Sequence[Path], threshold: float) -> np.ndarray:
    """Returns the keys of all examples of the documents to drop, sorted, [num_examples] uint64.

    Args:
        runs: of all spills.
        threshold: the estimated Jaccard similarity, at least 0.5, from which on a document is dropped.
    """
    from rensa import RMinHash, RMinHashDeduplicator

    # Two documents are compared if their signatures are equal in one band.
    num_bands = next(n for n in (8, 16, 32) if 1 - (1 - threshold ** (_NUM_HASHES // n)) ** n >= _MIN_RECALL)
    kept = RMinHashDeduplicator(threshold, _NUM_HASHES, True, num_bands, _SEED)
    dropped = [np.zeros(0, np.uint64)]
    for index in range(_NUM_RANGES):
        batch = gather(runs, ShardRange(SIGNATURES, index, _NUM_RANGES), vocab_size=256).sort().without_copies()
        last_place, is_kept = None, True
        for place, (content, (num_key_bytes, _)) in zip(batch.entries["key"].tolist(), batch.rows(), strict=True):
            # Two of one text, which was divided into sentences in two ways, have the same keys: both stay, or none.
            if place != last_place:
                signature = RMinHash(_NUM_HASHES, _SEED)
                signature.__setstate__(content[num_key_bytes:].tobytes())
                is_kept = kept.add(str(kept.len()), signature)
            if not is_kept:
                dropped.append(np.frombuffer(content[:num_key_bytes].tobytes(), np.uint64))
            last_place = place
    return np.sort(np.concatenate(dropped))
