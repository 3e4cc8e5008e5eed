"""Compares our segments with those of the ELECTRA authors' builder, on the same novels.

    python -m benchmarks.segment_statistics GOLDEN_JSON BOOKS_DIR --vocab_file=V

Prints one JSON object and exits 0 if both checks hold, else 1.

`exact`: with one `random.Random(seed)` shared by all files, as the authors' code has it, the ids of every golden run
are repeated: the sha256 of all input ids, padded to max_length, as little-endian int32, in order, must be equal.

`statistics`: with a generator of its own for every document, as our builder has it, no run can be repeated, so each
statistic's mean over our n seeds is compared with the golden mean over its m (3). The standard deviation over seeds,
sigma, is the larger of two estimates: ours over n seeds, and the golden spread (max - min) / 1.693 (the expected range
of three normal draws in sigmas). The means of two samples of one distribution differ by sigma * sqrt(1/n + 1/m); the
tolerance is 4 times that, which chance exceeds in 1 of 16,000 comparisons.
"""

import hashlib
import json
import math
import random
import statistics
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.identity import document_digest, random_source
from data_prep.segments import Segmenter, Segments, draw_target_length
from electra_tf.cli.flags import flag_parser, run_command

EXPECTED_RANGE_OF_3 = 1.693
MAX_SIGMAS = 4.0


class Corpus(NamedTuple):
    """Novels as token ids: each file's ids, and its documents' row splits into these."""

    token_ids: list[list[int]]
    documents: list[list[list[int]]]

    @property
    def num_tokens(self) -> int:
        return sum(len(ids) for ids in self.token_ids)


def read_corpora(names: list[str], books_dir: Path, vocab_file: str) -> dict[bool, Corpus]:
    """The novels tokenized, with blank lines separating documents (True) and with a document a file (False)."""
    from electra_tf.text.tokenizer import BertTokenizer
    from electra_tf.text.vocabulary import Vocabulary

    tokenizer = BertTokenizer(Vocabulary.load(vocab_file))
    separated, whole = Corpus([], []), Corpus([], [])
    for name in names:
        lines = [line.strip() for line in (books_dir / f"{name}.txt").read_text(encoding="utf-8").split("\n")]
        ragged = tokenizer.tokenize(lines)
        token_ids, row_splits = ragged.flat_values.numpy().tolist(), ragged.row_splits.numpy().tolist()
        separated.token_ids.append(token_ids)
        whole.token_ids.append(token_ids)
        whole.documents.append([row_splits])
        ends = [i for i, line in enumerate(lines) if not line] + [len(lines)]
        begins = [0, *(end + 1 for end in ends[:-1])]
        separated.documents.append(
            [row_splits[begin : end + 1] for begin, end in zip(begins, ends, strict=True) if begin < end]
        )
    return {True: separated, False: whole}


def segments_with_one_source(corpus: Corpus, max_length: int, seed: int) -> Iterator[Segments]:
    """As the authors' code draws: one generator and one running target length through all documents."""
    segmenter = Segmenter(max_length, random.Random(seed), target_length=max_length)
    for token_ids, documents in zip(corpus.token_ids, corpus.documents, strict=True):
        for row_splits in documents:
            yield from segmenter.split_document(token_ids, row_splits)


def segments_with_a_source_each(corpus: Corpus, max_length: int, seed: int) -> Iterator[Segments]:
    """As our builder draws: a generator for each document, keyed by the seed and the document's content."""
    for token_ids, documents in zip(corpus.token_ids, corpus.documents, strict=True):
        for row_splits in documents:
            # The builder hashes the text; its ids are as good.
            content = " ".join(map(str, token_ids[row_splits[0] : row_splits[-1]]))
            source = random_source(document_digest(seed, [content]))
            segmenter = Segmenter(max_length, source, draw_target_length(max_length, source))
            yield from segmenter.split_document(token_ids, row_splits)


def sha256_of_ids(segments: Iterator[Segments], max_length: int, cls_id: int, sep_id: int) -> str:
    """Of the padded input ids of all examples, in order."""
    digest = hashlib.sha256()
    for first, second in segments:
        ids = [cls_id, *first, sep_id, *second, *([sep_id] if second else [])]
        digest.update(np.asarray(ids + [0] * (max_length - len(ids)), "<i4").tobytes())
    return digest.hexdigest()


def summary(segments: Iterator[Segments], max_length: int, num_tokens: int) -> dict[str, float]:
    """The statistics of the golden file's `summary_over_seeds`."""
    sizes = np.array([(len(first), len(second)) for first, second in segments])
    is_single = sizes[:, 1] == 0
    lengths = sizes.sum(axis=1) + np.where(is_single, 2, 3)
    return {
        "examples": len(sizes),
        "examples_per_1M_input_tokens": len(sizes) / num_tokens * 1e6,
        "fraction_single_segment": float(is_single.mean()),
        "fraction_full_length": float((lengths == max_length).mean()),
        "padding_share": float(1 - lengths.sum() / (len(sizes) * max_length)),
        "fraction_tokens_dropped": float(1 - sizes.sum() / num_tokens),
        "fraction_shorter_than_half": float((lengths < max_length / 2).mean()),
    }


def compare(ours: list[float], golden: dict[str, float], num_golden: int) -> dict[str, float | bool]:
    """One statistic over our seeds against the golden one; the module's docstring derives the tolerance."""
    sigma = max(statistics.stdev(ours), (golden["max"] - golden["min"]) / EXPECTED_RANGE_OF_3)
    tolerance = MAX_SIGMAS * sigma * math.sqrt(1 / len(ours) + 1 / num_golden)
    difference = statistics.mean(ours) - golden["mean"]
    return {
        "ours": statistics.mean(ours),
        "ours_min": min(ours),
        "ours_max": max(ours),
        "golden": golden["mean"],
        "golden_min": golden["min"],
        "golden_max": golden["max"],
        "difference": difference,
        "tolerance": tolerance,
        "holds": abs(difference) <= tolerance,
    }


def run(flags: Namespace) -> bool:
    """Prints the comparison; returns whether everything holds."""
    from electra_tf.text.vocabulary import Vocabulary

    vocabulary = Vocabulary.load(flags.vocab_file)
    golden = json.loads(Path(flags.golden_json).read_text())
    corpora = read_corpora(golden["files"], Path(flags.books_dir), flags.vocab_file)

    exact = []
    for wanted in golden["runs"]:
        setting = {name: wanted[name] for name in ("blanks_separate_docs", "max_length", "seed")}
        segments = segments_with_one_source(
            corpora[setting["blanks_separate_docs"]], setting["max_length"], setting["seed"]
        )
        sha256 = sha256_of_ids(segments, setting["max_length"], vocabulary.cls_id, vocabulary.sep_id)
        exact.append({**setting, "sha256": sha256, "holds": sha256 == wanted["sha256_of_serialized_ids"]})

    comparisons = {}
    for blanks_separate_docs, max_length in sorted({(r["blanks_separate_docs"], r["max_length"]) for r in exact}):
        corpus = corpora[blanks_separate_docs]
        ours = [
            summary(segments_with_a_source_each(corpus, max_length, seed), max_length, corpus.num_tokens)
            for seed in range(flags.num_seeds)
        ]
        name = f"blanks_separate_docs={blanks_separate_docs},max_length={max_length}"
        num_golden = sum(
            (r["blanks_separate_docs"], r["max_length"]) == (blanks_separate_docs, max_length) for r in exact
        )
        comparisons[name] = {
            statistic: compare([each[statistic] for each in ours], values, num_golden)
            for statistic, values in golden["summary_over_seeds"][name].items()
        }
    holds = all(each["holds"] for each in exact) and all(
        each["holds"] for statistics_of in comparisons.values() for each in statistics_of.values()
    )
    print(
        json.dumps({"holds": holds, "num_seeds": flags.num_seeds, "exact": exact, "statistics": comparisons}, indent=1)
    )
    return holds


def main() -> None:
    parser = flag_parser(__doc__)
    parser.add_argument("golden_json", help="builder_stats.json: the authors' builder on the novels it names")
    parser.add_argument("books_dir", help="directory with those novels, NAME.txt each")
    parser.add_argument(
        "--vocab_file", required=True, help="the WordPiece vocabulary that the golden file was made with"
    )
    parser.add_argument("--num_seeds", type=int, default=16, help="seeds of ours to take statistics over, at least 3")
    flags = parser.parse_args()
    results: list[bool] = []
    status = run_command(lambda: results.append(run(flags)))
    sys.exit(status or int(not all(results)))


if __name__ == "__main__":
    main()
