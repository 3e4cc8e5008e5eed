"""Compares readers, features and scores of GLUE and tagging with those of the authors' code.

Differences are numbers of entries that differ, or largest absolute differences. Where the authors' code is wrong, the
docstring describes what is compared instead.
"""

import math
import re
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from seqeval.metrics.sequence_labeling import get_entities

from benchmarks.parity.golden import Differences, GoldenSet, read_json, read_lines
from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS, Benchmark, read_glue, read_glue_texts
from electra_tf.tasks.finetune.examples import Examples, with_swapped_pairs
from electra_tf.tasks.finetune.features import text_features
from electra_tf.tasks.finetune.kinds import KINDS
from electra_tf.tasks.finetune.kinds.conll import read_tagged
from electra_tf.tasks.finetune.kinds.regression import scaled_targets
from electra_tf.tasks.finetune.kinds.tagging import tagging_features
from electra_tf.tasks.finetune.scores import sentence_scores, tagging_scores
from electra_tf.text.vocabulary import TextSettings, Vocabulary
from electra_tf.text.wordpiece import BertTokenizer

_TASKS = {"sst": "sst2", "sts": "stsb"}  # the authors' names
_SCORES = {"pearson": "pearson", "spearmanr": "spearman", "accuracy": "accuracy", "matthews_correlation": "mcc"}
_CJK = re.compile("[\u4e00-\u9fff]")


def tokenizer_of(golden: GoldenSet) -> BertTokenizer:
    vocabulary = Vocabulary.load(golden.directory.parent / "vocab.txt")
    return BertTokenizer(vocabulary, TextSettings(lower_case=golden.settings["do_lower_case"]))


def glue_differences(file: Path) -> Differences:
    """Reads the raw files of all tasks and splits, and counts rows that differ from glue_features.jsonl.xz.

    Class labels are compared by name, because we number them as Hugging Face does. Test splits have no labels.
    """
    groups: dict[tuple, list[dict]] = defaultdict(list)
    for line in read_lines(file):
        if "eid" in line:  # else a note about dropped rows
            groups[line["task"], line["split"], line["double_unordered"]].append(line)
    tokenizer = BertTokenizer(Vocabulary.load(file.parent / "vocab.txt"))
    max_seq_length = read_json(file.parent / "settings.json")["glue_max_seq_length"]
    differences: Counter = Counter()
    with tempfile.TemporaryDirectory() as directory, tarfile.open(file.parent / "inputs/glue_tsv.tar.xz") as archive:
        archive.extractall(directory, filter="data")
        for (name, split, is_doubled), lines in groups.items():
            task, examples = _task_and_examples(name, split, Path(directory))
            # The authors number rows by their line, and then the swapped copies.
            header = 1 if name != "cola" or split == "test" else 0
            index_of = {line - 1 - header: index for index, line in enumerate(examples.rows)}
            if is_doubled and task.unordered and split == "train":
                index_of |= {len(examples) + eid: len(examples) + index for eid, index in index_of.items()}
                examples = with_swapped_pairs(examples)
            rows = [index_of[line["eid"]] for line in lines]
            ours = [[column[row] for row in rows] for column in examples.inputs]
            theirs = [[line[name] for line in lines] for name in ("text_a", "text_b")[: len(ours)]]
            differences["texts"] += ours != theirs
            features = text_features(ours, {}, tokenizer, max_seq_length, None).features
            differences["rows"] += _differing_rows(features, lines)
            if examples.labels is not None:
                differences["labels"] += _differing_labels(task, examples, rows, lines)
    return dict(differences)


def feature_differences(golden: GoldenSet) -> Differences:
    """Counts rows that differ from features.jsonl.xz of a GLUE task, and compares the numbers of truncated rows."""
    lines = golden.features()
    columns = ("text_a",) if lines[0]["text_b"] is None else ("text_a", "text_b")
    texts = [[line[name] for line in lines] for name in columns]
    ours = text_features(texts, {}, tokenizer_of(golden), golden.settings["max_seq_length"], None)
    num_truncated = sum(line["truncated"] for line in lines)
    return {"rows": _differing_rows(ours.features, lines), "truncated": abs(ours.num_truncated - num_truncated)}


def tagging_differences(golden: GoldenSet) -> Differences:
    """Counts sentences of a tagging set whose words, labels, ids or labelled positions differ.

    Labels are compared where tags are unambiguous (see `_has_one_reading`). The authors cut sentences too early, so ids
    and positions are compared up to their cut. For some sentences only words and labels are compared: those with a word
    without tokens (the authors drop it, ours becomes [UNK]) and those with Chinese characters (the authors' tagging,
    unlike their pre-training, does not split them). Segments are not compared: theirs are 1, ours 0.
    """
    tokenizer, labels = tokenizer_of(golden), _labels(golden)
    differing = dict.fromkeys(("words", "labels", "ids", "labelled_positions"), 0.0)
    for split in ("train", "dev"):
        examples = read_tagged(golden.input_file(f"{golden.settings['task']}_{split}.txt"))
        targets = [[labels.index(tag) for tag in _in_bioes(tags)] for tags in examples.labels]
        max_seq_length = golden.settings["max_seq_length"]
        features = tagging_features(examples.inputs[0], targets, tokenizer, max_seq_length, None).features
        for row, line in enumerate(golden.features(split)):
            words, tokens = examples.inputs[0][row], features.row(row)
            differing["words"] += words != line["words"]
            differing["labels"] += _has_one_reading(examples.labels[row]) and targets[row] != line["label_ids"]
            if any(map(_CJK.search, words)) or not all(tokenizer.tokenize(words).row_lengths().numpy()):
                continue
            kept, labelled = line["num_tokens"] - 1, line["num_labeled"]  # the last of their tokens is [SEP]
            differing["ids"] += features.input_ids[tokens][:kept].tolist() != line["input_ids"][:kept]
            positions = np.flatnonzero(features.token_targets["label_weights"][tokens])
            differing["labelled_positions"] += positions[:labelled].tolist() != line["labeled_positions"][:labelled]
    return differing


def dev_score_differences(golden: GoldenSet) -> Differences:
    """Compares our scores of the outputs in dev_outputs.npz with dev_eval.json: in percent, but for squared errors."""
    outputs, differences = golden.arrays("dev_outputs.npz"), {}
    for rows, case in golden.json("dev_eval.json").items():
        if not isinstance(case, dict):
            continue  # their code fails, because one sentence has no word to score
        ours = _span_scores(golden) if "labels" in outputs else _sentence_scores(outputs)
        differences |= {f"{rows}/{name}": _difference(ours[name], value) for name, value in case["results"].items()}
    return differences


def _sentence_scores(outputs: dict[str, np.ndarray]) -> Differences:
    """Our scores of a dev set's outputs, by the authors' names."""
    name, kind = ("targets", "regression") if "targets" in outputs else ("label_ids", "classification")
    scores = sentence_scores(KINDS[kind].metrics, outputs["predictions"], outputs[name])
    in_percent = {theirs: 100.0 * scores[ours] for ours, theirs in _SCORES.items() if ours in scores}
    return {**in_percent, "mse": scores.get("mse", 0.0), "loss": float(np.mean(outputs["loss"], dtype=np.float64))}


def _span_scores(golden: GoldenSet) -> Differences:
    """Our scores of the tags in dev_outputs.npz, of sentences with a word to score.

    The authors' scorer joins spans whose tags break the scheme, ours does not; in their set both find no right span.
    """
    outputs, names = golden.arrays("dev_outputs.npz"), _labels(golden)
    masks = outputs["labels_mask"] > 0
    predictions, tags = (
        [[names[label] for label in ids[mask]] for ids, mask in zip(outputs[name], masks, strict=True) if mask.any()]
        for name in ("predictions", "labels")
    )
    scores = tagging_scores(predictions, tags, "bioes")
    # The mean over words, which the authors add twice.
    loss = 2.0 * float(np.sum(outputs["loss"], dtype=np.float64) / np.sum(masks))
    return {**{name: 100.0 * scores[name] for name in ("precision", "recall", "f1")}, "loss": loss}


def _labels(golden: GoldenSet) -> list[str]:
    mapping = golden.json("label_mapping.json")
    return sorted(mapping, key=mapping.get)


def _task_and_examples(name: str, split: str, directory: Path) -> tuple[Benchmark, Examples]:
    task = GLUE_TASKS[_TASKS.get(name, name)]
    if split.startswith(("test", "diagnostic")):
        folder = next(folder for folder in task.folders if (directory / folder).is_dir())
        return task, read_glue_texts(task, str(directory / folder / f"{split}.tsv"), None)
    if split == "dev":
        split = "validation_matched" if name == "mnli" else "validation"
    return task, read_glue(task, directory, split)


def _differing_labels(task: Benchmark, examples: Examples, rows: list[int], lines: list[dict]) -> int:
    if task.kind == "regression":
        targets = scaled_targets(examples, task.smallest, task.largest)[rows]
        return int(np.sum(targets != np.float32([line["target"] for line in lines])))
    in_files = dict(zip(task.labels, task.tsv_labels, strict=True))
    return sum(in_files[examples.labels[row]] != line["label"] for row, line in zip(rows, lines, strict=True))


def _differing_rows(features, lines: list[dict]) -> float:
    differing = 0
    for row, line in enumerate(lines):
        tokens, length = features.row(row), line.get("num_tokens", len(line["input_ids"]))
        ids, segments = features.input_ids[tokens].tolist(), features.segment_ids[tokens].tolist()
        differing += ids != line["input_ids"][:length] or segments != line["segment_ids"][:length]
    return differing


def _has_one_reading(tags: Iterable[str]) -> bool:
    """Whether the authors' rule and ours give the same spans: each I and E continues its own type, or follows O."""
    before = "O"
    for tag in tags:
        if tag[0] in "IE" and before != "O" and (before[0] not in "BI" or before[1:] != tag[1:]):
            return False
        before = tag
    return True


def _in_bioes(tags: Sequence[str]) -> list[str]:
    """The tags in the scheme that the authors train with."""
    written = ["O"] * len(tags)
    for kind, first, last in get_entities([{"L": "E", "U": "S"}.get(tag[0], tag[0]) + tag[1:] for tag in tags]):
        ending = "" if kind == "_" else f"-{kind}"  # seqeval's name for the type of a bare B
        prefixes = "S" if first == last else f"B{'I' * (last - first - 1)}E"
        written[first : last + 1] = [prefix + ending for prefix in prefixes]
    return written


def _difference(ours: float, theirs: float) -> float:
    return 0.0 if math.isnan(ours) and math.isnan(theirs) else abs(ours - theirs)
