import hashlib
import random

import numpy as np

from data_prep.build import build
from data_prep.counts import ReadCounts
from data_prep.examples import document_hash, is_held_out, place_of
from data_prep.near_duplicates import SIGNATURES, find_near_duplicates, signatures_of
from data_prep.store import Portion, runs_of, write_spill
from electra_tf.data.manifest import MANIFEST_FILE
from tests.data_prep.reading import contents, records

LENGTH = 40  # words of a document: 36 sequences of five
SEED, HELD_OUT_FRACTION = 1, 0.25


def digest(text: str) -> bytes:
    return document_hash(SEED, [text])


def make_documents() -> tuple[list[str], list[str], list[str]]:
    """Twelve documents, near-copies of them, in the order of places, and documents that share less with them."""
    draw = random.Random(0)
    kept, dropped, different = [], [], []
    for words in (draw.choices(range(39), k=LENGTH) for _ in range(12)):
        other_end = [*words[:-1], 39]  # 35 of 37 sequences are in both
        others = [39 if i % 6 == 3 else word for i, word in enumerate(words)]  # 6 of 66 sequences at most
        near, far, other = (" ".join(f"w{word}" for word in each) for each in (words, other_end, others))
        first, second = sorted((near, far), key=lambda text: place_of(digest(text)))
        kept.append(first)
        dropped.append(second)
        different.append(other)
    return kept, dropped, different


def test_the_first_of_near_copies_stays_whatever_the_order_of_files(tmp_path, build_settings, monkeypatch, caplog):
    kept, dropped, different = make_documents()
    # Without the second phase's order, training text would have near-copies of held-out documents.
    splits = [[is_held_out(digest(text), HELD_OUT_FRACTION) for text in texts] for texts in (kept, dropped)]
    assert (True, False) in zip(*splits, strict=True)
    texts = [*kept, *dropped, *different, kept[0], dropped[1]]
    changes = {"held_out_fraction": HELD_OUT_FRACTION, "max_seq_length": LENGTH + 3, "near_duplicates": 0.85}
    for name, order in (("one", texts), ("other", texts[::-1])):
        for i in range(3):
            path = tmp_path / name / f"{i}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text("\n\n".join(order[i * 13 : (i + 1) * 13]))
    with caplog.at_level("INFO"):
        manifest = build(build_settings([f"text:{tmp_path}/one/*"], tmp_path / "data", **changes))
    assert (manifest.counts.num_documents_duplicate, manifest.counts.num_documents_near_duplicate) == (2, 12)
    assert manifest.counts.num_documents == 24
    assert "left out: 2 duplicate, 12 near-duplicate" in caplog.text
    for split, is_held in (("train", False), ("held_out", True)):
        rows = records(tmp_path / "data", split)
        found = {" ".join(f"w{token - 5}" for token in ids if token >= 5) for ids, _ in rows}
        assert found == {t for t in kept + different if is_held_out(digest(t), HELD_OUT_FRACTION) == is_held}
    monkeypatch.setattr("data_prep.inputs._MIN_UNIT_BYTES", 256)
    monkeypatch.setattr("data_prep.inputs._MAX_UNIT_BYTES", 256)
    build(build_settings([f"text:{tmp_path}/other/*"], tmp_path / "again", **changes))
    built, again = (contents(tmp_path / name) for name in ("data", "again"))
    assert {**again, MANIFEST_FILE: b""} == {**built, MANIFEST_FILE: b""}


def test_signatures_are_the_same_on_every_machine():
    signatures = signatures_of([5, 6], [np.arange(1000, dtype=np.int32), np.array([3], np.int32)])
    assert signatures.entries[["key", "document"]].tolist() == [(5, 5), (6, 6)]
    (first, _), (second, _) = signatures.rows()
    assert hashlib.sha256(first.tobytes() + second.tobytes()).hexdigest()[:16] == "cece83034da2df04"


def test_one_text_that_was_divided_in_two_ways_is_no_near_copy_of_itself(tmp_path):
    # The first two have one text, with lines that were split or not; the third has another, and is a near-copy.
    signatures = signatures_of([5, 4, 6], [np.arange(50, dtype=np.int32)] * 3)
    write_spill(tmp_path / "unit", [Portion({SIGNATURES: signatures}, ReadCounts())])
    assert find_near_duplicates(runs_of([tmp_path / "unit"]), 0.8).tolist() == [6, 7]
