"""GLUE and tagging: what is read, features and scores beside those of the authors' own code.

Each function takes a golden set (a directory with config.json, features.jsonl.xz, ...; vocab.txt and inputs/ stand
beside it) or the directory of the sets, and returns differences by name: a count of entries that differ, or the largest
absolute difference of a number. Where the authors' code is wrong, what is compared instead stands at the function.
"""

import math
import re
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from seqeval.metrics.sequence_labeling import get_entities

from benchmarks.golden import Arrays, load_arrays, read_json, read_lines
from electra_tf.tasks.finetune.glue import GLUE_TASKS, GlueTask, read_glue
from electra_tf.tasks.finetune.metrics import OWN_METRICS, sentence_scores, tagging_scores
from electra_tf.tasks.finetune.tagged import read_tagged
from electra_tf.tasks.finetune.text_examples import TextExamples, scaled_targets, with_swapped_pairs
from electra_tf.tasks.finetune.text_features import tagging_features, text_features
from electra_tf.text.tokenizer import BertTokenizer
from electra_tf.text.vocabulary import Vocabulary

_TASKS = {"sst": "sst2", "sts": "stsb"}  # the authors' names
_SPLITS = {"dev": "validation", "diagnostic": "test"}
_PERCENT = 100.0
_CJK = re.compile("[\u4e00-\u9fff]")


def glue_differences(golden: Path) -> dict[str, float]:
    """Rows of glue_features.jsonl.xz that differ, read by our reader from the raw files of all tasks and splits.

    The labels of test splits are the authors' filling, so they are not compared; class labels are compared by name,
    because we number them as Hugging Face does.
    """
    groups: dict[tuple, list[dict]] = {}
    for line in read_lines(golden / "glue_features.jsonl.xz"):
        if "eid" in line:  # else a note of the rows that were dropped
            groups.setdefault((line["task"], line["split"], line["double_unordered"]), []).append(line)
    tokenizer = BertTokenizer(Vocabulary.load(golden / "vocab.txt"))
    max_seq_length = read_json(golden / "settings.json")["glue_max_seq_length"]
    found = {"texts": 0.0, "labels": 0.0, "targets": 0.0, "rows": 0.0}
    with tempfile.TemporaryDirectory() as directory, tarfile.open(golden / "inputs" / "glue_tsv.tar.xz") as archive:
        archive.extractall(directory, filter="data")
        for (name, split, is_doubled), lines in groups.items():
            task, split = _task_and_split(name, split)
            examples = read_glue(task, directory, split)
            # The authors number rows by their line, and the swapped copies from there on.
            header = 1 if name != "cola" or split == "test" else 0
            index_of = {line - 1 - header: index for index, line in enumerate(examples.rows)}
            if is_doubled and task.unordered and split == "train":
                index_of |= {len(examples) + eid: len(examples) + index for eid, index in index_of.items()}
                examples = with_swapped_pairs(examples)
            chosen = _chosen(examples, [index_of[line["eid"]] for line in lines])
            for key, value in _compare_examples(task, chosen, lines, tokenizer, max_seq_length).items():
                found[key] = max(found[key], value) if key == "targets" else found[key] + value
    return found


def feature_differences(directory: Path) -> dict[str, float]:
    """Rows of the features.jsonl.xz of a set of a GLUE task that differ, and how far the count of those cut does."""
    config = read_json(directory / "config.json")
    lines = read_lines(directory / "features.jsonl.xz")
    tokenizer = BertTokenizer(Vocabulary.load(directory.parent / "vocab.txt"), config["do_lower_case"])
    columns = ("text_a",) if lines[0]["text_b"] is None else ("text_a", "text_b")
    texts = [[line[name] for line in lines] for name in columns]
    ours = text_features(texts, {}, tokenizer, config["max_seq_length"], None)
    num_truncated = sum(line["truncated"] for line in lines)
    return {"rows": _differing_rows(ours.features, lines), "truncated": abs(ours.num_truncated - num_truncated)}


def tagging_differences(directory: Path) -> dict[str, float]:
    """What differs of a tagging set: words read, labels, ids, and the labelled places.

    The authors' labels are compared where tags can be read in one way (see `_has_one_reading`). Their sentences are cut
    too early, so ids and places are compared up to their cut. Sentences are passed over if a word has no token, which
    we feed as [UNK] and they do not feed, or Chinese characters, into which their tagging, unlike their pre-training,
    does not divide it. All of their tokens have segment 1, ours 0.
    """
    config, mapping = read_json(directory / "config.json"), read_json(directory / "label_mapping.json")
    tokenizer = BertTokenizer(Vocabulary.load(directory.parent / "vocab.txt"), config["do_lower_case"])
    found = dict.fromkeys(("words", "labels", "ids", "labelled_places"), 0.0)
    labels = sorted(mapping, key=mapping.get)
    for split in ("train", "dev"):
        lines = [line for line in read_lines(directory / "features.jsonl.xz") if line["split"] == split]
        examples = read_tagged(directory.parent / "inputs" / f"{config['task']}_{split}.txt")
        targets = [[labels.index(tag) for tag in _in_bioes(tags)] for tags in examples.tags]
        features = tagging_features(examples.words, targets, tokenizer, config["max_seq_length"]).features
        for row, line in enumerate(lines):
            words, tokens = examples.words[row], features.row(row)
            found["words"] += words != line["words"]
            found["labels"] += _has_one_reading(examples.tags[row]) and targets[row] != line["label_ids"]
            if any(map(_CJK.search, words)) or not all(tokenizer.tokenize(words).row_lengths().numpy()):
                continue
            kept, labelled = line["num_tokens"] - 1, line["num_labeled"]  # the last of their tokens is [SEP]
            found["ids"] += features.input_ids[tokens][:kept].tolist() != line["input_ids"][:kept]
            places = np.flatnonzero(features.token_targets["label_weights"][tokens])
            found["labelled_places"] += places[:labelled].tolist() != line["labeled_positions"][:labelled]
    return found


def span_differences(golden: Path) -> dict[str, float]:
    """Sequences of tag_spans.jsonl.xz with one reading whose spans, as we score them, differ."""
    found = {"spans": 0.0, "bioes": 0.0}
    for line in read_lines(golden / "tag_spans.jsonl.xz"):
        tags = line["tags"]
        if isinstance(line["spans"], str) or not _has_one_reading(tags):
            continue  # their code stops, or joins what are two spans
        found["spans"] += [[first, last, kind] for kind, first, last in _spans_of(tags)] != line["spans"]
        found["bioes"] += "bioes" in line and _in_bioes(tags) != line["bioes"]
    return found


def scorer_differences(golden: Path) -> dict[str, float]:
    """How far our scores are from scorers.json, in percent but for the squared error; NaN equals NaN.

    Their F1 of classes is not the F1 (precision is recall) and no task uses it. The tags of the tagging scorer are read
    by their rule, which joins spans, before they are counted by ours.
    """
    found: dict[str, float] = {}
    for name, case in read_json(golden / "scorers.json").items():
        if "labels" in case:
            ours = sentence_scores(
                OWN_METRICS["classification"], np.array(case["predictions"]), np.array(case["labels"])
            )
            pairs = (("accuracy", "AccuracyScorer", "accuracy"), ("matthews_correlation", "MCCScorer", "mcc"))
            for metric, scorer, theirs in pairs:
                difference = _difference(ours[metric] * _PERCENT, case[scorer]["results"][theirs])
                found[f"{name}/{metric}"] = difference
        elif "targets" in case:
            ours = sentence_scores(
                OWN_METRICS["regression"], np.float32(case["predictions"]), np.float32(case["targets"])
            )
            theirs = case["RegressionScorer"]["results"]
            found[f"{name}/pearson"] = _difference(ours["pearson"] * _PERCENT, theirs["pearson"])
            found[f"{name}/spearmanr"] = _difference(ours["spearmanr"] * _PERCENT, theirs["spearman"])
            found[f"{name}/mse"] = _difference(ours["mse"], theirs["mse"])
        elif name == "tagging":
            predictions, gold = ([_as_they_read(tags) for tags in case[key]] for key in ("pred", "gold"))
            ours = tagging_scores(predictions, gold, "iob2")
            theirs = case["EntityLevelF1Scorer"]["results"]
            for metric in ("precision", "recall", "f1"):
                found[f"tagging/{metric}"] = _difference(ours[metric] * _PERCENT, theirs[metric])
            accuracy = tagging_scores(case["pred"], case["gold"], "bioes")["accuracy"]
            theirs = case["AccuracyScorer"]["results"]["accuracy"]
            found["tagging/accuracy"] = _difference(accuracy * _PERCENT, theirs)
    return found


def dev_score_differences(directory: Path) -> dict[str, float]:
    """How far our scores of the outputs in dev_outputs.npz are from dev_eval.json, as `scorer_differences`."""
    outputs, found = load_arrays(directory / "dev_outputs.npz"), {}
    for rows, case in read_json(directory / "dev_eval.json").items():
        if not isinstance(case, dict):
            continue  # their code stops: a sentence has no word that is scored
        used = outputs["labels_mask"].any(axis=1) if "labels_mask" in outputs else slice(None)
        ours = _dev_scores(directory, {name: values[used] for name, values in outputs.items()})
        found |= {f"{rows}/{name}": _difference(ours[name], value) for name, value in case["results"].items()}
    return found


def _dev_scores(directory: Path, outputs: Arrays) -> dict[str, float]:
    """By the authors' names."""
    predictions, loss = outputs["predictions"], float(np.mean(outputs["loss"], dtype=np.float64))
    if "targets" in outputs:
        scores = sentence_scores(OWN_METRICS["regression"], predictions, outputs["targets"])
        percent = {"pearson": scores["pearson"], "spearman": scores["spearmanr"]}
        return {**{name: value * _PERCENT for name, value in percent.items()}, "mse": scores["mse"], "loss": loss}
    if "label_ids" in outputs:
        scores = sentence_scores(OWN_METRICS["classification"], predictions, outputs["label_ids"])
        percent = {"accuracy": scores["accuracy"], "mcc": scores["matthews_correlation"]}
        return {**{name: value * _PERCENT for name, value in percent.items()}, "loss": loss}
    mapping = read_json(directory / "label_mapping.json")
    names = sorted(mapping, key=mapping.get)
    sentences = [
        [_as_they_read([names[label] for label in ids[mask > 0]]) for ids, mask in zip(labels, masks, strict=True)]
        for labels, masks in ((each, outputs["labels_mask"]) for each in (predictions, outputs["labels"]))
    ]
    scores = tagging_scores(*sentences, "iob2")
    # Of a word; it is added twice there.
    loss = 2.0 * float(np.sum(outputs["loss"], dtype=np.float64) / np.sum(outputs["labels_mask"] > 0))
    return {**{name: scores[name] * _PERCENT for name in ("precision", "recall", "f1")}, "loss": loss}


def _task_and_split(name: str, split: str) -> tuple[GlueTask, str]:
    if split == "diagnostic":
        return GLUE_TASKS["ax"], "test"
    split = "validation_matched" if (name, split) == ("mnli", "dev") else _SPLITS.get(split, split)
    return GLUE_TASKS[_TASKS.get(name, name)], split


def _chosen(examples: TextExamples, rows: Sequence[int]) -> TextExamples:
    def of(values: Sequence) -> list:
        return [values[row] for row in rows]

    labels = None if examples.labels is None else of(examples.labels)
    return TextExamples(tuple(map(of, examples.texts)), labels, of(examples.ids), examples.source, of(examples.rows))


def _compare_examples(
    task: GlueTask, examples: TextExamples, lines: list[dict], tokenizer: BertTokenizer, max_seq_length: int
) -> dict[str, float]:
    theirs = [[line[name] for line in lines] for name in ("text_a", "text_b")[: len(examples.texts)]]
    ours = text_features(examples.texts, {}, tokenizer, max_seq_length, None)
    found = {
        "texts": sum(a != b for pair in zip(examples.texts, theirs, strict=True) for a, b in zip(*pair, strict=True)),
        "rows": _differing_rows(ours.features, lines),
    }
    if examples.labels is None:
        return found
    if task.problem == "regression":
        targets = scaled_targets(examples, task.smallest, task.largest)
        return found | {"targets": float(np.abs(targets - np.float32([line["target"] for line in lines])).max())}
    return found | {"labels": sum(a != line["label"] for a, line in zip(examples.labels, lines, strict=True))}


def _differing_rows(features, lines: list[dict]) -> float:
    differing = 0
    for row, line in enumerate(lines):
        tokens, length = features.row(row), line.get("num_tokens", len(line["input_ids"]))
        ids, segments = features.input_ids[tokens].tolist(), features.segment_ids[tokens].tolist()
        differing += ids != line["input_ids"][:length] or segments != line["segment_ids"][:length]
    return differing


def _has_one_reading(tags: Iterable[str]) -> bool:
    """Whether each I and E goes on with a span of its type or stands after O: their code goes on with any span."""
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
    """The tags in the scheme in which the authors' code trains."""
    written = ["O"] * len(tags)
    for kind, first, last in _spans_of(tags):
        ending = "" if kind == "_" else f"-{kind}"  # seqeval's name for the type of a bare B
        prefixes = "S" if first == last else f"B{'I' * (last - first - 1)}E"
        written[first : last + 1] = [prefix + ending for prefix in prefixes]
    return written


def _as_they_read(tags: Sequence[str]) -> list[str]:
    """The tags in IOB2 as the authors' code reads them: only O, B and S end a span, whose type is that of its end."""
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
