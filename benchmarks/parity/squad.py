"""Compares features, answers and scores of SQuAD with those of the authors' code.

A directory is a golden set: config.json, features.jsonl.xz, ...; vocab.txt and inputs/ are beside it. Differences are
numbers of entries that differ, or largest absolute differences.
"""

import functools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from official.nlp.data.squad_lib import get_final_text

from benchmarks.parity.golden import Arrays, Differences, load_arrays, read_json, read_lines
from electra_tf.tasks.finetune.kinds.answers import PredictedAnswer, predicted_answers
from electra_tf.tasks.finetune.kinds.squad import Question, read_squad, squad_v1_scores, squad_v2_scores
from electra_tf.tasks.finetune.kinds.squad_features import SquadWindows, squad_windows, training_windows
from electra_tf.text.vocabulary import CONTINUATION_PREFIX, Vocabulary
from electra_tf.text.wordpiece import BertTokenizer

_WINDOW_SETTINGS = ("max_seq_length", "doc_stride", "max_query_length")
_realign = functools.partial(get_final_text, do_lower_case=True)  # BERT's function, which the authors have copied


def feature_differences(directory: Path) -> Differences:
    """Counts rows that differ from features.jsonl.xz, and rows and questions that only one side has."""
    config, lines = read_json(directory / "config.json"), read_lines(directory / "features.jsonl.xz")
    tokenizer = BertTokenizer(Vocabulary.load(directory.parent / "vocab.txt"))
    lengths = {name: config[name] for name in _WINDOW_SETTINGS}
    differences = {}
    for split in ("train", "dev"):
        expected = [line for line in lines if line["split"] == split]
        questions = read_squad(directory.parent / "inputs" / f"{config['task']}_{split}.json")
        if split == "train":
            # Ours keeps answers with a no-break space, which theirs drops.
            questions = [each for each in questions if not any("\u00a0" in answer.text for answer in each.answers[:1])]
            windows, dropped = training_windows(questions, tokenizer, **lengths)
            kept = {line["qas_id"] for line in expected}
            dropped_by_them = {question.id for question in questions} - kept
            differences["train/dropped"] = len(set(dropped) ^ dropped_by_them)
        else:
            windows = squad_windows(questions, tokenizer, **lengths)
        num_rows = windows.features.num_rows
        differences[f"{split}/missing_rows"] = abs(len(expected) - num_rows)
        pairs = zip(expected, range(num_rows), strict=False)
        differences[f"{split}/differing_rows"] = sum(_row(windows, row) != _expected_row(line) for line, row in pairs)
    return differences


def answer_differences(directory: Path) -> Differences:
    """Compares answers, n-best lists, null odds and scores for the model's outputs and for invented outputs.

    Texts are cut from the context by the authors' rule, not by ours, so they must be equal.
    """
    differences, config = {}, read_json(directory / "config.json")
    tokenizer = BertTokenizer(Vocabulary.load(directory.parent / "vocab.txt"))
    questions = read_squad(directory.parent / "inputs" / f"{config['task']}_dev.json")
    windows = squad_windows(questions, tokenizer, **{name: config[name] for name in _WINDOW_SETTINGS})
    for kind, outputs in (("model", "inference.npz"), ("planted", "planted_raw.npz")):
        golden = read_json(directory / f"postprocess_{kind}.json.xz")
        answers = _answers(config, windows, load_arrays(directory / outputs), realigned_texts(tokenizer))
        for name, value in _compare_answers(golden, windows.questions, answers, config).items():
            differences[f"{kind}/{name}"] = value
    return differences


def _answers(config: dict, windows: SquadWindows, outputs: Arrays, texts_of: Callable) -> list[PredictedAnswer]:
    """Our answers from outputs by their golden names, with the settings of a golden set."""
    by_name = dict(outputs)
    answerable_logits = by_name.pop("answerable_logit", None)
    if config["answerable_classifier"]:  # else zeros in the authors' graph
        by_name["answerable_logits"] = answerable_logits
    if not config["joint_prediction"]:
        for name in ("start_logits", "end_logits"):
            by_name[name] = _only_best(by_name[name], config["n_best_size"])
    settings = {name: config[name] for name in ("max_answer_length", "n_best_size")}
    return predicted_answers(windows, by_name, version_2=config["task"] == "squad", texts_of=texts_of, **settings)


def realigned_texts(tokenizer: BertTokenizer) -> Callable[..., tf.Tensor]:
    """The authors' rule for the texts of spans: they search for the joined pieces in the words of the span."""
    names = tokenizer.vocabulary.tokens

    def texts_of(contexts: tf.Tensor, context: tf.Tensor, start: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        ids, starts, _ = (each.to_list() for each in tokenizer.tokenize_with_offsets(contexts))
        contexts, texts = [each.decode() for each in contexts.numpy()], []
        for of_span, *characters in zip(*(each.numpy().tolist() for each in (context, start, end)), strict=True):
            first, last = (bisect_left(starts[of_span], at) for at in characters)
            words, begins = _words(contexts[of_span])
            first_word, last_word = (bisect_right(begins, starts[of_span][at]) for at in (first, last - 1))
            pieces = " ".join(names[i] for i in ids[of_span][first:last])
            joined = pieces.replace(f" {CONTINUATION_PREFIX}", "").replace(CONTINUATION_PREFIX, "")
            texts.append(_realign(" ".join(joined.split()), " ".join(words[first_word - 1 : last_word])))
        return tf.constant(texts, tf.string)

    return texts_of


@functools.lru_cache(maxsize=64)
def _words(context: str) -> tuple[list[str], list[int]]:
    """The words of a context as the authors split it, and the position at which each begins."""
    matches = list(re.finditer("[^ \t\r\n\u202f]+", context))
    return [match.group() for match in matches], [match.start() for match in matches]


def _only_best(logits: np.ndarray, n_best_size: int) -> np.ndarray:
    """The logits of the best positions and of [CLS], and -inf elsewhere.

    The invented logits have large values in the padding, which are among the authors' best positions. Our code ignores
    padding, so it would choose further positions in their place.
    """
    best = np.argsort(-logits, axis=1, kind="stable")[:, :n_best_size]
    kept = np.full_like(logits, -np.inf)
    kept[:, 0] = logits[:, 0]
    np.put_along_axis(kept, best, np.take_along_axis(logits, best, axis=1), axis=1)
    return kept


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
    targets = [int(line[name]) for name in ("start_position", "end_position", "is_impossible") if name in line]
    same = {name: line[name] for name in ("input_ids", "segment_ids", "not_max_context")}
    return {"id": line["qas_id"], **same, "words": line["token_to_orig_map"], "targets": targets}


def _compare_answers(
    golden: dict, questions: Sequence[Question], answers: Sequence[PredictedAnswer], config: dict
) -> Differences:
    predictions = {answer.id: answer.text or "empty" for answer in answers}  # the authors' word for no span
    lengths = {answer.id: max(1, len(answer.spans)) for answer in answers}
    texts = {answer.id: [span.text for span in answer.spans[:3]] or ["empty"] for answer in answers}
    their_texts = {key: [span["text"] for span in spans] for key, spans in golden["nbest"].items()}
    differences = {
        "differing_predictions": _count(predictions, golden["preds"]),
        "nbest_scores": 0.0,
        "nbest_probabilities": 0.0,
        "differing_nbest_lengths": _count(lengths, golden["nbest_length"]),
        "differing_nbest_texts": _count(texts, their_texts),
    }
    for answer in answers:
        for span, other in zip(answer.spans, golden["nbest"][answer.id], strict=False):
            scores = (span.start_score - other["start_logit"], span.end_score - other["end_logit"])
            differences["nbest_scores"] = max(differences["nbest_scores"], *map(abs, scores))
            difference = abs(span.probability - other["probability"])
            differences["nbest_probabilities"] = max(differences["nbest_probabilities"], difference)
    if config["task"] == "squad":
        odds = {answer.id: answer.null_odds for answer in answers}
        differences["null_odds"] = max(abs(odds[key] - value) for key, value in golden["null_odds"].items())
        # The script's threshold is 1.0, the set's another; the best scores do not depend on it.
        shifted = {key: 1.0 + (value > config["qa_na_threshold"]) for key, value in odds.items()}
        metrics, best = (squad_v2_scores(questions, predictions, each) for each in (shifted, odds))
        metrics |= {name: value for name, value in best.items() if name.startswith("best_")}
    else:
        metrics = squad_v1_scores(questions, predictions)
    return {**differences, "metrics": max(abs(metrics[key] - value) for key, value in golden["metrics"].items())}


def _count(ours: dict, theirs: dict) -> int:
    """The number of keys whose values differ."""
    return sum(ours.get(key) != theirs.get(key) for key in ours.keys() | theirs.keys())
