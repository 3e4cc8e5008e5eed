"""Compares features, answers and scores of SQuAD with those of the authors' code.

Differences are numbers of entries that differ, or largest absolute differences.
"""

import functools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from official.nlp.data.squad_lib import get_final_text

from benchmarks.parity.golden import Arrays, Differences, GoldenSet
from benchmarks.parity.text import tokenizer_of
from electra_tf.tasks.finetune.kinds.answers import PredictedAnswer, predicted_answers
from electra_tf.tasks.finetune.kinds.squad import Question, read_squad, squad_v1_scores, squad_v2_scores
from electra_tf.tasks.finetune.kinds.squad_features import SquadWindows, squad_windows, training_windows
from electra_tf.text.vocabulary import CONTINUATION_PREFIX
from electra_tf.text.wordpiece import BertTokenizer

_realign = functools.partial(get_final_text, do_lower_case=True)  # BERT's function, which the authors have copied


def feature_differences(golden: GoldenSet) -> Differences:
    """Counts rows that differ from features.jsonl.xz, and rows and questions that only one side has."""
    tokenizer, lengths, differences = tokenizer_of(golden), _lengths(golden), {}
    for split in ("train", "dev"):
        expected, questions = golden.features(split), _questions(golden, split)
        if split == "train":
            # Ours keeps answers with a no-break space, which theirs drops.
            questions = [each for each in questions if not any("\u00a0" in answer.text for answer in each.answers[:1])]
            windows, dropped = training_windows(questions, tokenizer, **lengths)
            kept = {line["qas_id"] for line in expected}
            differences["train/dropped"] = len(set(dropped) ^ {each.id for each in questions if each.id not in kept})
        else:
            windows = squad_windows(questions, tokenizer, **lengths)
        num_rows = windows.features.num_rows
        differences[f"{split}/missing_rows"] = abs(len(expected) - num_rows)
        pairs = zip(expected, range(num_rows), strict=False)
        differences[f"{split}/differing_rows"] = sum(_row(windows, row) != _expected_row(line) for line, row in pairs)
    return differences


def answer_differences(golden: GoldenSet) -> tuple[Differences, Differences]:
    """Compares answers, n-best lists, null odds and scores for the model's outputs and for invented outputs.

    Texts are cut from the context by the authors' rule, not by ours, so they must be equal.

    Returns: the differences of all but the probabilities in n-best lists, and of these.
    """
    differences, of_probabilities, settings = {}, {}, golden.settings
    tokenizer, version_2 = tokenizer_of(golden), settings["task"] == "squad"
    windows = squad_windows(_questions(golden, "dev"), tokenizer, **_lengths(golden))
    for source, file in (("model", "inference.npz"), ("planted", "planted_raw.npz")):
        expected, outputs = golden.json(f"postprocess_{source}.json.xz"), golden.arrays(file)
        answers = predicted_answers(
            windows,
            _outputs(settings, outputs),
            version_2=version_2,
            texts_of=realigned_texts(tokenizer),
            **{name: settings[name] for name in ("max_answer_length", "n_best_size")},
        )
        scores, probabilities = _span_differences(expected, answers)
        for name, value in {
            **_differing_answers(expected, answers),
            "nbest_scores": scores,
            "metrics": _metric_difference(expected, windows.questions, answers, settings),
        }.items():
            differences[f"{source}/{name}"] = value
        if version_2:
            odds = {answer.id: answer.null_odds for answer in answers}
            gaps = (abs(odds[key] - value) for key, value in expected["null_odds"].items())
            differences[f"{source}/null_odds"] = max(gaps)
        of_probabilities[f"{source}/nbest_probabilities"] = probabilities
    return differences, of_probabilities


def _lengths(golden: GoldenSet) -> dict[str, int]:
    return {name: golden.settings[name] for name in ("max_seq_length", "doc_stride", "max_query_length")}


def _questions(golden: GoldenSet, split: str) -> list[Question]:
    return read_squad(golden.input_file(f"{golden.settings['task']}_{split}.json"))


def _outputs(settings: dict, outputs: Arrays) -> Arrays:
    """Outputs by our names, as far as our answers depend on them."""
    answerable_logits = outputs.pop("answerable_logit", None)
    if settings["answerable_classifier"]:  # else zeros in the authors' graph
        outputs["answerable_logits"] = answerable_logits
    if not settings["joint_prediction"]:
        for name in ("start_logits", "end_logits"):
            outputs[name] = _only_best(outputs[name], settings["n_best_size"])
    return outputs


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


def _differing_answers(expected: dict, answers: Sequence[PredictedAnswer]) -> Differences:
    """The numbers of questions whose answer, number of spans, or first three spans differ."""
    ours = {
        "preds": {answer.id: answer.text or "empty" for answer in answers},  # the authors' word for no span
        "nbest_length": {answer.id: max(1, len(answer.spans)) for answer in answers},
        "nbest": {answer.id: [span.text for span in answer.spans[:3]] or ["empty"] for answer in answers},
    }
    theirs = {**expected, "nbest": {key: [span["text"] for span in spans] for key, spans in expected["nbest"].items()}}
    return {
        name: sum(values.get(key) != theirs[name].get(key) for key in values.keys() | theirs[name].keys())
        for name, values in ours.items()
    }


def _span_differences(expected: dict, answers: Sequence[PredictedAnswer]) -> tuple[float, float]:
    """The largest differences of scores and of probabilities in n-best lists."""
    scores = probabilities = 0.0
    for answer in answers:
        for span, other in zip(answer.spans, expected["nbest"][answer.id], strict=False):
            of_span = (span.start_score - other["start_logit"], span.end_score - other["end_logit"])
            scores = max(scores, *map(abs, of_span))
            probabilities = max(probabilities, abs(span.probability - other["probability"]))
    return scores, probabilities


def _metric_difference(
    expected: dict, questions: Sequence[Question], answers: Sequence[PredictedAnswer], settings: dict
) -> float:
    """The largest difference of the official scripts' metrics."""
    predictions = {answer.id: answer.text or "empty" for answer in answers}
    if settings["task"] == "squad":
        odds = {answer.id: answer.null_odds for answer in answers}
        # The script's threshold is 1.0, the set's another; the best scores do not depend on it.
        shifted = {key: 1.0 + (value > settings["qa_na_threshold"]) for key, value in odds.items()}
        metrics, best = (squad_v2_scores(questions, predictions, each) for each in (shifted, odds))
        metrics |= {name: value for name, value in best.items() if name.startswith("best_")}
    else:
        metrics = squad_v1_scores(questions, predictions)
    return max(abs(metrics[key] - value) for key, value in expected["metrics"].items())
