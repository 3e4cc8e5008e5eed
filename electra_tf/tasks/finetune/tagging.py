"""Tagging: sentences with a tag for each word, the model, its features, scores and predictions."""

import functools
import itertools
import logging
import os
import re
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.settings import DropoutRate, Settings
from electra_tf.data.batch import Batch
from electra_tf.data.bucketing import Features
from electra_tf.data.tables import Table, read_table, read_text
from electra_tf.models.layers import ForwardContext
from electra_tf.tasks.finetune.examples import Examples, ids_of, label_ids
from electra_tf.tasks.finetune.features import batches, joined_features
from electra_tf.tasks.finetune.kind import EncodedExamples, Kind, Split, cell
from electra_tf.tasks.finetune.scores import TagScheme, class_report, span_report, tagging_scores
from electra_tf.tasks.finetune.task import FinetuningTask, Head, head_layer
from electra_tf.text.packing import cut, cut_texts, join, join_words, max_bytes
from electra_tf.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from electra_tf.tasks.finetune.config import FinetuningConfig

logger = logging.getLogger(__name__)

_WORD_NAMES, _TAG_NAMES = ("words", "tokens"), ("tags", "labels", "ner_tags")
_NEW_DOCUMENT = "-DOCSTART-"
_SEQEVAL_NAMES = {"bioes": "IOBES"}  # the other schemes have their own name there, in upper case
_MAX_BYTES_PER_CHARACTER = 4  # UTF-8
_NUMBER = re.compile(r"\d+([-.]\d+)?")  # of a word in CoNLL-U
_SPAN_TAG = re.compile("O|[BIESLU]-.+")
_LANGUAGE = re.compile("^[a-z]{2,3}(-[a-z]+)*:")


class TaggingConfig(Settings):
    """Predicts a label for each word."""

    kind: Literal["tagging"]
    labels: tuple[str, ...] = ()  # in the order of their ids; by default those of the training file, sorted
    # How tags mark spans, as seqeval names it (bioes is its IOBES). plain: no spans, such as parts of speech.
    scheme: TagScheme = "iob2"
    # linear: one dense layer. huggingface: as in transformers' class, which with the modern block has two layers more.
    head: Head = "linear"
    dropout: DropoutRate = 0.0  # rate in the head, as in the authors' code


class TaggingTask(FinetuningTask):
    """Tags words at their first piece: logits [B, S, C] float32 of a dense layer, as in ElectraForTokenClassification.

    With the modern block and `head: huggingface` other layers are below it, as in ModernBertForTokenClassification.
    The loss of a sentence is the sum over its words.
    Source: finetune/tagging/tagging_tasks.py of the authors' code.
    """

    target_tensors = {"label_ids": ("S", tf.int32), "label_weights": ("S", tf.float32)}

    def __init__(self, config: "FinetuningConfig", **model_options):
        super().__init__(config, **model_options)
        self.output_layer = head_layer(len(config.task.labels), "classifier")
        self.add_hidden_layers()

    def forward(self, batch: Batch, context: ForwardContext) -> tf.Tensor:
        """[B, S, C] float32 logits."""
        return self.output_layer(self.head_input(self.encode(batch, context).sequence_output, context))

    def row_losses(self, batch: Batch, forward: tf.Tensor) -> tf.Tensor:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label_ids"], logits=forward)
        return tf.reduce_sum(losses * batch["label_weights"], axis=1)

    def predictions(self, batch: Batch, forward: tf.Tensor) -> dict[str, tf.Tensor]:
        label_ids = tf.argmax(forward, axis=-1, output_type=tf.int32)
        return {"label_ids": label_ids, "probabilities": tf.reduce_max(tf.nn.softmax(forward), axis=-1)}


class Tagging(Kind):
    """P is for each sentence the tags of its words and their probabilities; truncated words have none."""

    name, settings, model = "tagging", TaggingConfig, TaggingTask

    def read(self, path, config, new=None):
        return read_tagged(path, None if new is None else config.task.labels)

    def derive(self, train, task):
        """The labels that follow from the training sentences and the tag scheme."""
        return {"labels": list(tag_labels(train, task.scheme))}

    def encode(self, examples, config, tokenizer, is_training):
        targets = None if examples.labels is None else tag_targets(examples, config.task.labels)
        encoded = tagging_features(examples.inputs[0], targets, tokenizer, config.data.max_seq_length)
        num_words = sum(map(len, examples.inputs[0]))
        if num_cut := num_words - int(encoded.features.token_targets["label_weights"].sum()):
            lack = "training" if is_training else f"prediction: beyond data.max_seq_length {config.data.max_seq_length}"
            logger.warning("%s: %d of %d words get no %s", examples.source, num_cut, num_words, lack)
        return encoded if is_training else replace(encoded, gold=examples.labels)

    def metric_names(self, split):
        names = ("accuracy",) if split.task.scheme == "plain" else ("f1", "precision", "recall", "accuracy")
        return names + ("truncated_words",) * bool(split.encoded.num_truncated)

    def predict(self, split, outputs):
        labels, features = split.task.labels, split.encoded.features
        of_words = (values_of_words(features, outputs[name]) for name in ("label_ids", "probabilities"))
        return [([labels[tag] for tag in tags], shares.tolist()) for tags, shares in zip(*of_words, strict=True)]

    def scores(self, split, predictions):
        tags = _scored_tags(split, predictions)
        share = float(np.mean([tag == "" for tag in itertools.chain(*tags)]))
        scores = tagging_scores(tags, split.examples.labels, split.task.scheme) | {"truncated_words": share}
        return {name: scores[name] for name in self.metric_names(split)}

    def report(self, split, predictions):
        predicted, tags = _scored_tags(split, predictions), split.examples.labels
        if split.task.scheme == "plain":
            return class_report(split.task.labels, *(list(itertools.chain(*each)) for each in (predicted, tags)))
        return span_report(predicted, tags)

    def rows(self, split, predictions):
        """The prediction for each sentence: lists with a value for each word, None for a truncated one."""
        lines = []
        for index, words in enumerate(split.examples.inputs[0]):
            tags, shares = ([*values, *[None] * (len(words) - len(values))] for values in predictions[index])
            known = {} if split.examples.labels is None else {"label": split.examples.labels[index]}
            lines.append({"word": words, **known, "prediction": tags, "probability": shares})
        return lines

    def content_of(self, rows: list[dict[str, Any]]) -> bytes:
        """Returns a line for each word of a sentence, with tabs between its values, and an empty line."""
        sentences = [
            [
                "\t".join(cell(name, value) for name, value in zip(row, values, strict=True))
                for values in zip(*row.values(), strict=True)
            ]
            for row in rows
        ]
        return "".join("\n".join([*lines, "", ""]) for lines in sentences).encode()

    def python_values(self, rows: list[dict[str, Any]]) -> list[list[tuple]]:
        return [list(zip(row["word"], row["prediction"], row["probability"], strict=True)) for row in rows]

    def alarm(self, split, predictions):
        predicted = {tag for tags, _ in predictions for tag in tags}
        return f"all words of the dev set are tagged {predicted.pop()!r}" if len(predicted) == 1 else None


def _scored_tags(split: Split, predictions: list) -> list[list[str]]:
    """A tag for each word; a truncated one has "", which is wrong, and outside of all spans."""
    pairs = zip(predictions, split.examples.inputs[0], strict=True)
    return [[*tags, *[""] * (len(words) - len(tags))] for (tags, _), words in pairs]


def tagging_features(
    sentences: Sequence[Sequence[str]],
    label_ids: Sequence[Sequence[int]] | None,
    tokenizer: Tokenizer,
    max_seq_length: int,
) -> EncodedExamples:
    """Returns the features of tagged sentences: the label of a word belongs to its first piece.

    A sentence that is too long loses its end; `values_of_words` gives one value for each word that is left. A word
    without a piece, such as a control character, becomes [UNK], so that its label has a position. The words with spaces
    between them are read up to `max_bytes`.

    Args:
        sentences: N lists of words.
        label_ids: the label of each word; None for prediction.
    Returns: features with the token targets `label_ids`, 0 elsewhere, and `label_weights`, 1 on the first
        piece of a word; without `label_ids` the weights alone.
    """
    room = max_seq_length - 2
    rows, first_pieces, num_truncated = [], [np.zeros(0, np.int64)], 0
    read = [_read_words(sentence, max_bytes(max_seq_length)) for sentence in sentences]
    is_cut = np.array([part is not whole for part, whole in zip(read, sentences, strict=True)], bool)
    num_words = np.array([len(sentence) for sentence in read], np.int64)
    for begin, end in batches(len(sentences)):
        words = [word for each in read[begin:end] for word in tokenizer.vocabulary.in_context(each)]
        pieces = tokenizer.tokenize(tf.constant(words, tf.string))
        sentence = np.repeat(np.arange(end - begin), num_words[begin:end])
        tokens, first_piece = join_words(pieces, sentence, end - begin, tokenizer.vocabulary.unk_id)
        rows.append((*join([cut(tokens, room)], tokenizer.vocabulary), tf.range(begin, end)))
        first_pieces.append(first_piece.numpy())
        num_truncated += np.count_nonzero(is_cut[begin:end] | (tokens.row_lengths() > room))
    features = joined_features(rows)

    first_piece = np.concatenate(first_pieces)
    fits = first_piece < room
    position = (np.repeat(features.row_splits[:-1], num_words) + 1 + first_piece)[fits]
    values = {"label_weights": np.ones(len(fits), np.float32)}
    if label_ids is not None:
        labels_of_read = (labels[: len(words)] for labels, words in zip(label_ids, read, strict=True))
        values["label_ids"] = np.array([label for labels in labels_of_read for label in labels], np.int32)
    token_targets = {name: np.zeros(len(features.input_ids), of_words.dtype) for name, of_words in values.items()}
    for name, of_words in values.items():
        token_targets[name][position] = of_words[fits]
    return EncodedExamples(replace(features, token_targets=token_targets), num_truncated)


def _read_words(words: Sequence[str], longest: int) -> Sequence[str]:
    """The words that the first `longest` bytes of their text contain, the last one cut; `words` itself if all are."""
    if sum(len(word) + 1 for word in words) * _MAX_BYTES_PER_CHARACTER <= longest:  # saves a call for each sentence
        return words
    (text,), (is_cut,) = cut_texts(tf.constant([" ".join(words)]), longest)
    if not is_cut:
        return words
    text, read, first = text.numpy().decode(), [], 0
    for word in words:
        if first >= len(text):
            break
        read.append(text[first : first + len(word)])
        first += len(word) + 1
    return read


def values_of_words(features: Features, values: np.ndarray) -> list[np.ndarray]:
    """Selects the values of the first pieces of words. Truncated words have none.

    Args:
        features: the result of `tagging_features`.
        values: [N, S], a value for each token of each row.
    Returns: N arrays, the values of the words of each sentence.
    """
    is_word = features.token_targets["label_weights"] > 0
    return [values[row, : features.lengths[row]][is_word[features.row(row)]] for row in range(features.num_rows)]


def read_tagged(path: str | os.PathLike, known: Sequence[str] | None = None) -> Examples:
    """Reads sentences with their tags.

    Args:
        path: `.jsonl`, `.json`, `.parquet` or `.arrow`: a sentence a row, with lists `words` or `tokens` and `tags`,
            `labels` or `ner_tags`. Any other ending: CoNLL columns, one word a line, the word first and its tag last,
            and an empty line after each sentence.
        known: the tags of a model, for sentences to predict, whose tags may be missing: the last of several CoNLL
            columns holds tags if it has any of these. None: each word must have a tag.
    Raises: UserError: the file cannot be read, or has no sentences; lines differ in their number of columns, or the
        words and tags of a sentence in theirs; the first column counts words; a word or tag has a tab or line break.
    """
    if isinstance(path, Table) or os.fspath(path).lower().endswith((".jsonl", ".json", ".parquet", ".arrow")):
        table = read_table(path)
        tags = (tags for name in _TAG_NAMES if name in table.columns for tags in table.labels(name))
        are_names = (isinstance(tag, str) for each in tags if isinstance(each, list) for tag in each)  # no ids
        return _sentences_of(table, _TAG_NAMES if known is None or any(are_names) else ())
    return _read_columns(os.fspath(path), known)


def _read_columns(path: str, known: Sequence[str] | None) -> Examples:
    table, width = _rows_of(path)
    found, word, tag = list(filter(None, table)), 0, -1
    is_numbered = all(_NUMBER.fullmatch(fields[0]) for fields in found)
    if width > 2 and is_numbered:
        if width != 4 or not all(_SPAN_TAG.fullmatch(value) for fields in found for value in fields[2:]):
            raise UserError(f"{path}: the first column numbers the words; expected the word first and its tag last")
        word, tag = 1, 2
        logger.info("%s: the words are in column 2, their tags in 3 (outer spans); 1 and 4 are left out", path)
    has_tags = known is None or any(len(fields) == width > 1 and fields[tag] in known for fields in found)
    word = 1 if is_numbered and width == 2 and not has_tags else word  # GermEval's without tags
    words, tags, rows = columns = [], [], []
    least, is_inside = 2 if has_tags else 1, False  # whether a sentence has begun
    for line, fields in enumerate(table, start=1):
        if not fields:
            is_inside = False
            continue
        if len(fields) != width or width < least:
            columns_expected = f"{max(width, least)}: one word a line{', its tag last' * has_tags}"
            raise UserError(f"{path}:{line} has {len(fields)} columns, expected {columns_expected}")
        _refuse_breaks(fields, f"{path}:{line}")
        for column, value in zip(columns, (fields[word] or " ", fields[tag], line), strict=True):
            column.extend([] if is_inside else [[]])
            column[-1].append(value)
        is_inside = True
    tags, ids = tags if has_tags else None, list(map(str, range(len(words))))
    return Examples((_without_language(words, path),), tags, ids, path, rows)


def _rows_of(path: str) -> tuple[list[list[str]], int]:
    """The columns of each line, none for an empty line or a comment; and the number of columns in most lines.

    A line that begins with # is a comment if it has another number of columns, as in CoNLL-U, GermEval and MultiCoNER;
    or, as in KLUE, if every sentence begins with # or ## and that line's last column is no other line's tag.
    """
    lines = [line.rstrip(" \t\r") for line in read_text(path).split("\n")]
    plain = [line for line in lines if line and not line.startswith(("#", _NEW_DOCUMENT))] or list(filter(None, lines))
    if not plain:
        raise UserError(f"{path} has no sentences; expected one word a line")
    has_tabs = 2 * sum("\t" in line for line in plain) > len(plain)

    def columns(line: str) -> list[str]:
        # A no-break space, for example, may be part of a word.
        return [each.strip(" ") for each in line.split("\t")] if has_tabs else re.split(" +", line.strip(" "))

    width, tags = statistics.mode(len(columns(line)) for line in plain), {columns(line)[-1] for line in plain}
    begins = [columns(line)[0] for before, line in itertools.pairwise(["", *lines]) if line and not before]
    are_marked = width > 1 and all(word == "#" or word.startswith("##") for word in begins)
    rows = []
    for line in lines:
        fields = columns(line)
        if not has_tabs and line.startswith(" ") and len(fields) == width - 1:
            fields = ["", *fields]  # the word is a space
        is_comment = line.startswith("#") and (len(fields) != width or (are_marked and fields[-1] not in tags))
        rows.append([] if not line or is_comment or fields[0] == _NEW_DOCUMENT else fields)
    return rows, width


def _without_language(sentences: list[list[str]], source: str) -> list[list[str]]:
    """The words without the code of the language that PAN-X has before each: `tr:Ankara`."""
    if not all(map(_LANGUAGE.match, itertools.chain(*sentences))):
        return sentences
    logger.info("%s: the code of a language before every word, such as %.20s, is left out", source, sentences[0][0])
    return [[_LANGUAGE.sub("", word, count=1) or " " for word in words] for words in sentences]


def _sentences_of(table: Table, tag_names: Sequence[str]) -> Examples:
    words = _lists_of_texts(table, _WORD_NAMES)
    tags = _lists_of_texts(table, tag_names) if tag_names else None
    for row, sentence in enumerate(words):
        if not sentence:
            raise UserError(f"{table.where(row)} has no words")
        if tags is not None and len(tags[row]) != len(sentence):
            raise UserError(
                f"{table.where(row)} has {len(sentence)} words and {len(tags[row])} tags; give one for each"
            )
    rows = [[number] * len(sentence) for number, sentence in zip(table.rows, words, strict=True)]
    return Examples((_without_language(words, table.source),), tags, ids_of(table), table.source, rows)


def _lists_of_texts(table: Table, names: Sequence[str]) -> list[list[str]]:
    name = next((name for name in names if name in table.columns), names[0])
    values = table.labels(name)
    for row, value in enumerate(values):
        if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
            raise UserError(
                f"{table.where(row)} has {value!r:.80} as {name!r}, expected a list of texts, none of them empty"
            )
        _refuse_breaks(value, table.where(row))
    return values


def _refuse_breaks(texts: Sequence[Any], where: str) -> None:
    """Refuses tabs and line breaks, because predictions are written in columns."""
    for text in texts:
        if re.search("[\t\r\n]", text):
            raise UserError(f"{where} has {text!r}, expected a word or tag without tabs and line breaks")


def tag_labels(examples: Examples, scheme: TagScheme) -> tuple[str, ...]:
    """Returns the tags to learn, sorted. In a scheme of spans, each type in the training split has all prefixes.

    For example, B-PER in training gives B-PER and I-PER, so I-PER is known in the dev set.

    Raises: UserError: all words have the same tag, or a tag does not belong to the scheme.
    """
    tags = {tag for sentence in examples.labels for tag in sentence}
    if len(tags) < 2:
        raise UserError(f"{examples.source} has only the tag {min(tags)!r}; training needs two or more")
    if scheme == "plain":
        return tuple(sorted(tags))
    for sentence, words in enumerate(examples.labels):
        for word, tag in enumerate(words):
            if not fits_scheme(tag, scheme):
                raise UserError(
                    f"{_where(examples, sentence, word)} has the tag {tag!r}, which is not in task.scheme {scheme}; "
                    "give the file's scheme, such as --set task.scheme=bioes, or plain for tags without spans"
                )
    endings = {tag[1:] for tag in tags - {"O"}}
    return tuple(sorted({"O", *(prefix + ending for prefix in _prefixes(scheme) for ending in endings)}))


def fits_scheme(tag: str, scheme: TagScheme) -> bool:
    """Returns True if a tag belongs to a scheme. All tags belong to `plain`."""
    return scheme == "plain" or re.fullmatch(f"O|[{_prefixes(scheme)}](-.+)?", tag) is not None


@functools.cache
def _prefixes(scheme: TagScheme) -> str:
    from seqeval import scheme as schemes

    allowed = getattr(schemes, _SEQEVAL_NAMES.get(scheme, scheme.upper())).allowed_prefix
    return "".join(letter for letter in "BIESLU" if schemes.Prefix[letter] in allowed)


def tag_targets(examples: Examples, labels: Sequence[str]) -> list[list[int]]:
    """Returns the label id of each word's tag. Raises: UserError: a tag is not in `labels`."""
    where = functools.partial(functools.partial, _where, examples)
    sentences = enumerate(examples.labels)
    return [label_ids(enumerate(tags), labels, where(sentence), "tag") for sentence, tags in sentences]


def _where(examples: Examples, sentence: int, word: int) -> str:
    return f"{examples.source}:{examples.rows[sentence][word]}"
