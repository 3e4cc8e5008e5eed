"""Compares readers, features and scores of GLUE and tagging with those of the authors' code.

A directory is a golden set: config.json, features.jsonl.xz, ...; vocab.txt and inputs/ are beside it. Differences are
numbers of entries that differ, or largest absolute differences. Where the authors' code is wrong, the docstring
describes what is compared instead.
"""

import math
import re
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from seqeval.metrics.sequence_labeling import get_entities

from benchmarks.parity.golden import Arrays, Differences, load_arrays, read_json, read_lines
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
_PERCENT = 100.0
_CJK = re.compile("[\u4e00-\u9fff]")


def glue_differences(file: Path) -> Differences:
    """Reads the raw files of all tasks and splits, and counts rows that differ from glue_features.jsonl.xz.

    Class labels are compared by name, because we number them as Hugging Face does. Test splits have no labels.
    """
    groups: dict[tuple, list[dict]] = {}
    for line in read_lines(file):
        if "eid" in line:  # else a note about dropped rows
            groups.setdefault((line["task"], line["split"], line["double_unordered"]), []).append(line)
    golden = file.parent
    tokenizer = BertTokenizer(Vocabulary.load(golden / "vocab.txt"))
    max_seq_length = read_json(golden / "settings.json")["glue_max_seq_length"]
    differences = {"texts": 0.0, "labels": 0.0, "targets": 0.0, "rows": 0.0}
    with tempfile.TemporaryDirectory() as directory, tarfile.open(golden / "inputs" / "glue_tsv.tar.xz") as archive:
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
            for key, value in _compare_examples(task, examples, rows, lines, tokenizer, max_seq_length).items():
                differences[key] = max(differences[key], value) if key == "targets" else differences[key] + value
    return differences


def feature_differences(directory: Path) -> Differences:
    """Counts rows that differ from features.jsonl.xz of a GLUE task, and compares the numbers of truncated rows."""
    config = read_json(directory / "config.json")
    lines = read_lines(directory / "features.jsonl.xz")
    tokenizer = _tokenizer(directory, config)
    columns = ("text_a",) if lines[0]["text_b"] is None else ("text_a", "text_b")
    texts = [[line[name] for line in lines] for name in columns]
    ours = text_features(texts, {}, tokenizer, config["max_seq_length"], None)
    num_truncated = sum(line["truncated"] for line in lines)
    return {"rows": _differing_rows(ours.features, lines), "truncated": abs(ours.num_truncated - num_truncated)}


def tagging_differences(directory: Path) -> Differences:
    """Counts sentences of a tagging set whose words, labels, ids or labelled positions differ.

    Labels are compared where tags are unambiguous (see `_has_one_reading`). The authors cut sentences too early, so ids
    and positions are compared up to their cut. For some sentences only words and labels are compared: those with a word
    without tokens (the authors drop it, ours becomes [UNK]) and those with Chinese characters (the authors' tagging,
    unlike their pre-training, does not split them). Segments are not compared: theirs are 1, ours 0.
    """
    config, mapping = read_json(directory / "config.json"), read_json(directory / "label_mapping.json")
    tokenizer = _tokenizer(directory, config)
    differing = dict.fromkeys(("words", "labels", "ids", "labelled_positions"), 0.0)
    labels = sorted(mapping, key=mapping.get)
    for split in ("train", "dev"):
        lines = [line for line in read_lines(directory / "features.jsonl.xz") if line["split"] == split]
        examples = read_tagged(directory.parent / "inputs" / f"{config['task']}_{split}.txt")
        targets = [[labels.index(tag) for tag in _in_bioes(tags)] for tags in examples.labels]
        features = tagging_features(examples.inputs[0], targets, tokenizer, config["max_seq_length"]).features
        for row, line in enumerate(lines):
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


def dev_score_differences(directory: Path) -> Differences:
    """Compares our scores of the outputs in dev_outputs.npz with dev_eval.json: in percent, but for squared errors."""
    outputs, differences = load_arrays(directory / "dev_outputs.npz"), {}
    for rows, case in read_json(directory / "dev_eval.json").items():
        if not isinstance(case, dict):
            continue  # their code fails, because one sentence has no word to score
        used = outputs["labels_mask"].any(axis=1) if "labels_mask" in outputs else slice(None)
        ours = _dev_scores(directory, {name: values[used] for name, values in outputs.items()})
        differences |= {f"{rows}/{name}": _difference(ours[name], value) for name, value in case["results"].items()}
    return differences


def _dev_scores(directory: Path, outputs: Arrays) -> Differences:
    """Our scores of a dev set's outputs, by the authors' names."""
    predictions, loss = outputs["predictions"], float(np.mean(outputs["loss"], dtype=np.float64))
    for targets, problem in (("targets", "regression"), ("label_ids", "classification")):
        if targets in outputs:
            return {**_sentence_scores(problem, predictions, outputs[targets]), "loss": loss}
    mapping = read_json(directory / "label_mapping.json")
    names, masks = sorted(mapping, key=mapping.get), outputs["labels_mask"] > 0
    tags = [
        [[names[label] for label in ids[mask]] for ids, mask in zip(labels, masks, strict=True)]
        for labels in (predictions, outputs["labels"])
    ]
    # The mean over words, which the authors add twice.
    loss = 2.0 * float(np.sum(outputs["loss"], dtype=np.float64) / np.sum(masks))
    return {**_span_scores(*tags), "loss": loss}


def _sentence_scores(problem: str, predictions: np.ndarray, targets: np.ndarray) -> Differences:
    """Our scores by the authors' names."""
    scores = sentence_scores(KINDS[problem].metrics, predictions, targets)
    names = {"pearson": "pearson", "spearmanr": "spearman", "accuracy": "accuracy", "matthews_correlation": "mcc"}
    in_percent = {theirs: scores[ours] * _PERCENT for ours, theirs in names.items() if ours in scores}
    return in_percent | ({"mse": scores["mse"]} if "mse" in scores else {})


def _span_scores(predictions: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> Differences:
    """Our scores of tags after they were read by the authors' rule, which joins some spans."""
    scores = tagging_scores(*([_as_they_read(tags) for tags in each] for each in (predictions, gold)), "iob2")
    return {name: scores[name] * _PERCENT for name in ("precision", "recall", "f1")}


def _tokenizer(directory: Path, config: dict) -> BertTokenizer:
    vocabulary = Vocabulary.load(directory.parent / "vocab.txt")
    return BertTokenizer(vocabulary, TextSettings(lower_case=config["do_lower_case"]))


def _task_and_examples(name: str, split: str, directory: Path) -> tuple[Benchmark, Examples]:
    task = GLUE_TASKS[_TASKS.get(name, name)]
    if split.startswith(("test", "diagnostic")):
        folder = next(folder for folder in task.folders if (directory / folder).is_dir())
        return task, read_glue_texts(task, str(directory / folder / f"{split}.tsv"), None)
    if split == "dev":
        split = "validation_matched" if name == "mnli" else "validation"
    return task, read_glue(task, directory, split)


def _compare_examples(
    task: Benchmark, examples: Examples, rows: list[int], lines: list[dict], tokenizer: BertTokenizer, length: int
) -> Differences:
    """Compares some rows of a split with their golden lines."""
    ours = [[column[row] for row in rows] for column in examples.inputs]
    theirs = [[line[name] for line in lines] for name in ("text_a", "text_b")[: len(ours)]]
    differing = {
        "texts": sum(a != b for pair in zip(ours, theirs, strict=True) for a, b in zip(*pair, strict=True)),
        "rows": _differing_rows(text_features(ours, {}, tokenizer, length, None).features, lines),
    }
    if examples.labels is None:
        return differing
    if task.kind == "regression":
        targets = scaled_targets(examples, task.smallest, task.largest)[rows]
        return differing | {"targets": float(np.abs(targets - np.float32([line["target"] for line in lines])).max())}
    in_files = dict(zip(task.labels, task.tsv_labels, strict=True))
    labels = [in_files[examples.labels[row]] for row in rows]
    return differing | {"labels": sum(a != line["label"] for a, line in zip(labels, lines, strict=True))}


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


def _spans_of(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """The type, first and last word of each span, as seqeval scores them."""
    return get_entities([{"L": "E", "U": "S"}.get(tag[0], tag[0]) + tag[1:] for tag in tags])


def _in_bioes(tags: Sequence[str]) -> list[str]:
    """The tags in the scheme that the authors train with."""
    written = ["O"] * len(tags)
    for kind, first, last in _spans_of(tags):
        ending = "" if kind == "_" else f"-{kind}"  # seqeval's name for the type of a bare B
        prefixes = "S" if first == last else f"B{'I' * (last - first - 1)}E"
        written[first : last + 1] = [prefix + ending for prefix in prefixes]
    return written


def _as_they_read(tags: Sequence[str]) -> list[str]:
    """The tags in IOB2 as the authors' code reads them: only O, B and S end a span, and its last tag gives its type."""
    written, last = [], ""
    for position in reversed(range(len(tags))):
        prefix, _, kind = tags[position].partition("-")
        if prefix == "O":
            written.append("O")
            last = ""
            continue
        last = last or kind
        begins = prefix in "BS" or position == 0 or tags[position - 1] == "O"
        written.append(f"{'B' if begins else 'I'}-{last}")
        last = "" if begins else last
    return written[::-1]


def _difference(ours: float, theirs: float) -> float:
    return 0.0 if math.isnan(ours) and math.isnan(theirs) else abs(ours - theirs)
