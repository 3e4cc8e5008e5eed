"""SQuAD: features, answers and scores beside those of the authors' own code.

Each function takes a golden set (a directory with config.json, features.jsonl.xz, ...; vocab.txt and inputs/ stand
beside it) or the directory of the sets, and returns differences by name: a count of entries that differ, or the largest
absolute difference of a number.
"""

import functools
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.golden import load_arrays, read_json, read_lines
from electra_tf.tasks.finetune.answers import PredictedAnswer, TextOf, predicted_answers
from electra_tf.tasks.finetune.squad import Answer, Question, read_squad
from electra_tf.tasks.finetune.squad_features import SquadWindows, squad_windows, training_windows
from electra_tf.tasks.finetune.squad_scores import (
    exact_score,
    f1_score_v1,
    f1_score_v2,
    normalize_answer,
    squad_v1_scores,
    squad_v2_scores,
)
from electra_tf.text.normalization import BasicTokenizer
from electra_tf.text.tokenizer import BertTokenizer
from electra_tf.text.vocabulary import CONTINUATION_PREFIX, Vocabulary

_WINDOW_SETTINGS = ("max_seq_length", "doc_stride", "max_query_length")
_OUTPUT_NAMES = {"answerable_logit": "answerable_logits"}


def feature_differences(directory: Path) -> dict[str, float]:
    """Rows of features.jsonl.xz that differ in any id, segment, position or target; rows missing; questions dropped."""
    config = read_json(directory / "config.json")
    lines = read_lines(directory / "features.jsonl.xz")
    return _compare_features(config["task"], config, lines, directory.parent / "vocab.txt", directory.parent)


def bert_vocabulary_differences(golden: Path, vocabulary: Path) -> dict[str, float]:
    """As `feature_differences`, of the windows made with BERT's uncased vocabulary, which is not among the sets."""
    head, *lines = read_lines(golden / "squad_features_bert_vocab.jsonl.xz")
    return _compare_features("squad", head["config"], lines, vocabulary, golden)


def answer_differences(directory: Path) -> dict[str, float]:
    """Answers, n-best lists, null odds and scores from the model's and from invented outputs.

    The authors' realignment gives the texts, and their word "empty" stands for no span, so all must be equal.
    """
    found = {}
    for kind, outputs in (("model", "inference.npz"), ("planted", "planted_raw.npz")):
        golden = read_json(directory / f"postprocess_{kind}.json.xz")
        text_of = realigned_text(Vocabulary.load(directory.parent / "vocab.txt"))
        config, windows, answers = answers_of(directory, outputs, text_of)
        for name, value in _compare_answers(golden, windows.questions, answers, config).items():
            found[f"{kind}/{name}"] = value
    return found


def answers_of(directory: Path, outputs: str, text_of: TextOf) -> tuple[dict, SquadWindows, list[PredictedAnswer]]:
    """The settings of a golden set, the windows of its dev questions, and our answers from one of its output files."""
    config = read_json(directory / "config.json")
    questions = read_squad(directory.parent / "inputs" / f"{config['task']}_dev.json")
    tokenizer = BertTokenizer(Vocabulary.load(directory.parent / "vocab.txt"))
    windows = squad_windows(questions, tokenizer, **{name: config[name] for name in _WINDOW_SETTINGS})
    arrays = load_arrays(directory / outputs)
    by_name = {_OUTPUT_NAMES.get(name, name): values for name, values in arrays.items()}
    if not config["answerable_classifier"]:
        del by_name["answerable_logits"]  # their graph gives zeros
    if not config["joint_prediction"]:
        for name in ("start_logits", "end_logits"):
            by_name[name] = _only_best(by_name[name], config["n_best_size"])
    settings = {name: config[name] for name in ("max_answer_length", "n_best_size")}
    version_2 = config["task"] == "squad"
    return config, windows, predicted_answers(windows, by_name, version_2=version_2, text_of=text_of, **settings)


def answer_metric_differences(golden: Path) -> dict[str, float]:
    """Pairs of answers in squad_answer_metrics.json that the official scripts normalize or score otherwise."""
    differing = 0
    for case in read_json(golden / "squad_answer_metrics.json"):
        pair = case["gold"], case["pred"]
        found = [[normalize_answer(text) for text in pair], exact_score(*pair), f1_score_v2(*pair), f1_score_v1(*pair)]
        differing += found != [case[name] for name in ("v2_normalized", "v2_exact", "v2_f1", "v1_f1")]
    return {"answers": differing}


def official_score_differences(golden: Path) -> dict[str, float]:
    """Results in squad_official_eval.json, of the script for version 2, that are not ours key for key."""
    official = read_json(golden / "squad_official_eval.json")
    questions = [
        Question(qa["id"], "", "", "", tuple(Answer(answer["text"], 0) for answer in qa["answers"]), not qa["answers"])
        for qa in official["questions"]
    ]
    preds, odds = official["preds"], official["null_odds"]
    results = {
        "threshold_minus_2_75": squad_v2_scores(questions, preds, odds, -2.75),
        "threshold_1": squad_v2_scores(questions, preds, odds),
        "without_null_odds": squad_v2_scores(questions, preds),
    }
    return {name: float(list(found.items()) != list(official[name].items())) for name, found in results.items()}


def realignment_differences(golden: Path) -> dict[str, float]:
    """Texts of final_text.jsonl.xz that `realign` gives otherwise."""
    cases = read_lines(golden / "final_text.jsonl.xz")
    return {"texts": sum(realign(case["pred_text"], case["orig_text"]) != case["final_text"] for case in cases)}


def realigned_text(vocabulary: Vocabulary) -> TextOf:
    """Gives a span's text as the authors find it: its pieces, joined, are looked for in the words that hold them."""

    def text_of(windows: SquadWindows, row: int, start: int, end: int) -> str:
        context = windows.questions[windows.features.example_index[row]].context
        shift = int(windows.windows.first_token[row] - windows.windows.position[row])
        words, begins = _words(context)
        first, last = (bisect_right(begins, int(windows.token_starts[at + shift])) - 1 for at in (start, end))
        ids = windows.features.input_ids[windows.features.row(row)][start : end + 1]
        pieces = " ".join(vocabulary.tokens[i] for i in ids)
        joined = pieces.replace(f" {CONTINUATION_PREFIX}", "").replace(CONTINUATION_PREFIX, "")
        return realign(" ".join(joined.split()), " ".join(words[first : last + 1]))

    return text_of


def realign(piece_text: str, words_text: str) -> str:
    """The part of `words_text` that `piece_text`, normalized, stands for; all of it if that cannot be said.

    Both are compared by their characters other than the space. Where normalization changes the number of these
    characters, all of the words are the answer.
    """
    normalized = _normalized(words_text)
    at = normalized.find(piece_text)
    places = [i for i, character in enumerate(words_text) if character != " "]
    if not piece_text or at < 0 or len(places) != len(normalized.replace(" ", "")):
        return words_text
    first = len(normalized[:at].replace(" ", ""))
    last = first + len(piece_text.replace(" ", "")) - 1
    return words_text[places[first] : places[last] + 1]


@functools.lru_cache(maxsize=64)
def _words(context: str) -> tuple[list[str], list[int]]:
    matches = list(re.finditer("[^ \t\r\n\u202f]+", context))
    return [match.group() for match in matches], [match.start() for match in matches]


@functools.cache
def _basic_words() -> Callable[[tf.Tensor], tf.Tensor]:
    return tf.function(BasicTokenizer(lower_case=True, strip_accents=True).words, autograph=False,
                       input_signature=[tf.TensorSpec([None], tf.string)])  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _normalized(text: str) -> str:
    return b" ".join(_basic_words()(tf.constant([text.encode()]))[0].numpy()).decode()


def _only_best(logits: np.ndarray, n_best_size: int) -> np.ndarray:
    """Logits of only the best positions and of [CLS].

    The invented logits have large values in the padding, which take places among the authors' best positions. A model
    has none there, and our code looks at no padding.
    """
    best = np.argsort(-logits, axis=1, kind="stable")[:, :n_best_size]
    kept = np.full_like(logits, -np.inf)
    kept[:, 0] = logits[:, 0]
    np.put_along_axis(kept, best, np.take_along_axis(logits, best, axis=1), axis=1)
    return kept


def _compare_features(task: str, settings: dict, lines: list[dict], vocabulary: Path, golden: Path) -> dict[str, float]:
    tokenizer = BertTokenizer(Vocabulary.load(vocabulary))
    lengths = {name: settings[name] for name in _WINDOW_SETTINGS}
    found = {}
    for split in ("train", "dev"):
        expected = [line for line in lines if line["split"] == split]
        questions = read_squad(golden / "inputs" / f"{task}_{split}.json")
        if split == "train":
            windows, dropped = training_windows(questions, tokenizer, **lengths)
            kept = {line["qas_id"] for line in expected}
            found["train/dropped"] = len(
                set(dropped) ^ {question.id for question in questions if question.id not in kept}
            )
        else:
            windows = squad_windows(questions, tokenizer, **lengths)
        num_rows = windows.features.num_rows
        found[f"{split}/missing_rows"] = abs(len(expected) - num_rows)
        pairs = zip(expected, range(num_rows), strict=False)
        found[f"{split}/differing_rows"] = sum(_row(windows, row) != _expected_row(line) for line, row in pairs)
    return found


def _row(windows: SquadWindows, row: int) -> dict:
    features, where = windows.features, windows.features.row(row)
    question = windows.questions[features.example_index[row]]
    first_token, is_max_context = int(windows.windows.first_token[row]), windows.windows.is_max_context[row].numpy()
    positions = range(int(windows.windows.position[row]), int(features.lengths[row]) - 1)
    _, begins = _words(question.context)
    starts = windows.token_starts[first_token : first_token + len(positions)].numpy()
    words = (np.searchsorted(begins, starts, side="right") - 1).tolist()
    return {
        "id": question.id,
        "input_ids": features.input_ids[where].tolist(),
        "segment_ids": features.segment_ids[where].tolist(),
        "words": dict(zip(map(str, positions), words, strict=True)),
        "not_max_context": [at for at, is_max in zip(positions, is_max_context, strict=True) if not is_max],
        "targets": [int(values[row]) for values in features.row_targets.values()],
    }


def _expected_row(line: dict) -> dict:
    targets = ("start_position", "end_position", "is_impossible")
    return {
        "id": line["qas_id"],
        **{name: line[name] for name in ("input_ids", "segment_ids", "not_max_context")},
        "words": line["token_to_orig_map"],
        "targets": [int(line[name]) for name in targets if name in line],
    }


def _compare_answers(
    golden: dict, questions: Sequence[Question], answers: Sequence[PredictedAnswer], config: dict
) -> dict[str, float]:
    predictions = {answer.id: answer.text or "empty" for answer in answers}
    found = {
        "differing_predictions": _count(predictions, golden["preds"]),
        "nbest_scores": 0.0,
        "nbest_probabilities": 0.0,
    }
    found["differing_nbest_lengths"] = _count({a.id: max(1, len(a.spans)) for a in answers}, golden["nbest_length"])
    texts = {a.id: [span.text for span in a.spans[:3]] or ["empty"] for a in answers}
    found["differing_nbest_texts"] = _count(
        texts, {i: [s["text"] for s in spans] for i, spans in golden["nbest"].items()}
    )
    for answer in answers:
        expected = golden["nbest"][answer.id] if answer.spans else ()
        for span, other in zip(answer.spans, expected, strict=False):
            by_name = {
                "nbest_scores": (span.start_score - other["start_logit"], span.end_score - other["end_logit"]),
                # Theirs are off by the rounding of an old numpy's float32 exponential function, 2e-8.
                "nbest_probabilities": (span.probability - other["probability"],),
            }
            for name, differences in by_name.items():
                found[name] = max(found[name], *map(abs, differences))
    if config["task"] == "squad":
        odds = {answer.id: answer.null_odds for answer in answers}
        found["null_odds"] = max(abs(odds[key] - value) for key, value in golden["null_odds"].items())
        metrics = squad_v2_scores(questions, predictions, odds, config["qa_na_threshold"])
    else:
        metrics = squad_v1_scores(questions, predictions)
    return {**found, "metrics": max(abs(metrics[key] - value) for key, value in golden["metrics"].items())}


def _count(ours: dict, theirs: dict) -> int:
    return sum(ours.get(key) != theirs.get(key) for key in ours.keys() | theirs.keys())
