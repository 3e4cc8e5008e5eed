"""Tagging: sentences with a tag for each word, the model, its features, scores and predictions."""

import functools
import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.settings import Count, DropoutRate, Labels, Settings
from electra_tf.data.batch import Batch
from electra_tf.data.bucketing import Features
from electra_tf.tasks.finetune.examples import DataFile, Examples, NewColumns
from electra_tf.tasks.finetune.features import batches, joined_features
from electra_tf.tasks.finetune.kind import EncodedExamples, Kind, Outputs, Split, cell
from electra_tf.tasks.finetune.kinds.conll import read_tagged
from electra_tf.tasks.finetune.labels import label_ids
from electra_tf.tasks.finetune.scores import Report, class_report, span_report, tagging_scores
from electra_tf.tasks.finetune.settings import FinetuningRunConfig
from electra_tf.tasks.finetune.tag_schemes import TagScheme, fits_scheme, scheme_prefixes
from electra_tf.tasks.finetune.task import Head, LogitsTask
from electra_tf.tasks.finetune.transformers_head import MODERN_HIDDEN, FoundHead, TransformersHead, Weights, WrittenHead
from electra_tf.tasks.served import Served, ServedModel, ServedOutputs, ServingShapes, in_blocks
from electra_tf.text.packing import Rows, cut_texts, join, join_words, max_bytes, word_windows
from electra_tf.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

# Of each sentence, the tags of its words and their probabilities; None for a truncated word.
TaggedWords = list[tuple[list[str | None], list[float | None]]]
_MAX_BYTES_PER_CHARACTER = 4  # UTF-8
_SPACES = (0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x20)  # as in files of tagged words; other spaces are parts of words


class TaggingConfig(Settings):
    """Predicts a label for each word."""

    kind: Literal["tagging"]
    labels: Labels = ()  # in the order of their ids; by default those of the training file, sorted
    # How tags mark spans, as seqeval names it (bioes is its IOBES). plain: no spans, such as parts of speech.
    scheme: TagScheme = "iob2"
    # linear: one dense layer. huggingface: as in transformers' class, which with the modern block has two layers more.
    head: Head = "linear"
    dropout: DropoutRate = 0.0  # rate in the head, as in the authors' code
    # Tokens between the starts of two windows of a long text; null: a long text is truncated.
    stride: Count | None = None


class TaggingTask(LogitsTask):
    """Tags words at their first piece: logits [B, S, C] float32 of a dense layer, as in ElectraForTokenClassification.

    With the modern block and `head: huggingface` other layers are below it, as in ModernBertForTokenClassification.
    The loss of a sentence is the sum over its words.
    Source: finetune/tagging/tagging_tasks.py of the authors' code.
    """

    target_tensors = {"label_ids": ("S", tf.int32), "label_weights": ("S", tf.float32)}

    def row_losses(self, batch: Batch, forward: tf.Tensor) -> tf.Tensor:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label_ids"], logits=forward)
        return tf.reduce_sum(losses * batch["label_weights"], axis=1)

    def outputs(self, batch: Batch, forward: tf.Tensor) -> dict[str, tf.Tensor]:
        label_ids = tf.argmax(forward, axis=-1, output_type=tf.int32)
        return {"label_ids": label_ids, "probabilities": tf.reduce_max(tf.nn.softmax(forward), axis=-1)}


class ServedTagging(ServedModel):
    """Serves a tagging model: `tag` and `embed`.

    If the model was fine-tuned with a stride, a long text is cut into windows, and a word has the tag of the window in
    which it stands furthest from an edge. Without a stride it is truncated. `--predict` does the same.
    """

    default = "tag"

    def __init__(self, task: TaggingTask, tokenizer: Tokenizer, shapes: ServingShapes):
        self._stride: int | None = task.config.task.stride
        self.has_windows = self._stride is not None
        super().__init__(task, tokenizer, shapes)

    @property
    def least_length(self) -> int:
        return 2 + (self._stride or 1)  # with [CLS] and [SEP]

    def served(self) -> dict[str, Served]:
        tag: Served = (self._tag, self.texts("text"))
        return {"tag": tag, "tag_ids": self.for_ids(self._tagged), **super().served()}

    def _tag(self, text: tf.Tensor) -> ServedOutputs:
        """A tag for each word of [N] texts that fits. Spaces, tabs and line breaks separate words, as in training.

        Words are tokenized one by one, too. An invalid byte of UTF-8 counts as a character.

        Returns: with W, the largest number of words that fit:
            tokens: [N, W] string, the words.        tags: [N, W] string; "" in padding.
            probability: [N, W] float32, the tag's probability.
            start, end: [N, W] int32, the word's first character (code point) in the text and its end (exclusive).
            num_tokens: [N] int32, the number of words.        truncated: [N] bool, whether the text was cut.
        """
        text, is_cut = cut_texts(text, max_bytes(self.shapes.max_seq_length, self.has_windows))
        (words, text_of, start, end), nrows = words_of(text), tf.size(text, tf.int64)
        pieces = self.tokenizer.tokenize(self.tokenizer.in_context(words, text_of))
        tokens, word = join_words(pieces, text_of, nrows, self.tokenizer.vocabulary.unk_id)
        parts, _, word, has_more = word_windows(tokens, word, self.shapes.max_seq_length, self._stride)
        rows = self.pack([parts])
        word = tf.reshape(word.to_tensor(-1, shape=tf.shape(rows.input_ids)), [-1])
        position = tf.where(word >= 0)[:, 0]  # among the tokens of all rows, for each word that fits
        word = tf.gather(word, position)

        def of_tokens(some_rows: Rows) -> ServedOutputs:  # flat, because rows without any text have no known width
            tagged = self._tagged(some_rows)
            return {name: tf.reshape(tagged[name], [-1]) for name in ("tags", "probability")}

        shapes: dict[str, tuple[list[int], tf.DType]] = {"tags": ([], tf.string), "probability": ([], tf.float32)}
        tagged = in_blocks(of_tokens, rows, shapes) if self.has_windows else of_tokens(rows)
        of_words = {name: tf.gather(values, position) for name, values in tagged.items()}
        for name, values in {"tokens": words, "start": start, "end": end}.items():
            of_words[name] = tf.gather(values, word)
        of_texts = {
            name: tf.RaggedTensor.from_value_rowids(values, tf.gather(text_of, word), nrows=nrows, validate=False)
            for name, values in of_words.items()
        }  # [N, (words)]
        return {
            **{name: values.to_tensor() for name, values in of_texts.items()},
            "num_tokens": tf.cast(of_texts["tokens"].row_lengths(), tf.int32),
            "truncated": is_cut | has_more,
        }

    def _tagged(self, rows: Rows) -> ServedOutputs:
        """A tag for each token. A word has the tag of its first piece.

        Returns:
            tags: [N, T] string, the likeliest; "" in padding.
            probability: [N, T] float32, the tag's probability; 0 in padding.
            labels: [N, C] string, all tags.        probabilities: [N, T, C] float32, in the order of `labels`.
        """
        task = cast(TaggingTask, self.get_task())
        logits, labels = task(rows._asdict()), tf.constant(task.config.task.labels)
        probabilities, real = tf.nn.softmax(logits), rows.input_mask > 0
        return {
            "tags": tf.where(real, tf.gather(labels, tf.argmax(logits, axis=-1)), ""),
            "probability": tf.where(real, tf.reduce_max(probabilities, axis=-1), 0.0),
            "probabilities": probabilities,
            "labels": tf.tile(labels[tf.newaxis], [tf.shape(logits)[0], 1]),
        }


class TaggingHead(TransformersHead):
    """The head of a class for tokens."""

    ending, description, pipeline = "ForTokenClassification", "that labels each word.", "token-classification"
    layers = {
        "Electra": {"classifier": ("dense",)},
        "Bert": {"classifier": ("dense",)},
        "ModernBert": {**MODERN_HIDDEN, "classifier": ("dense",)},
    }
    noted = ("scheme", "stride")

    def written(self, config: FinetuningRunConfig, weights: Weights, family: str) -> WrittenHead | str:
        notes = ("A word has the label of its first piece; the other pieces were not trained.",)
        entries = {"classifier_dropout": config.task.dropout}
        return WrittenHead(self.layers[family], weights, config.task.labels, entries, notes)

    def settings(self, found: FoundHead) -> dict[str, Any]:
        return {"labels": found.labels, "dropout": found.dropout}

    def with_noted(self, settings: dict[str, Any], noted: Mapping[str, Any]) -> dict[str, Any]:
        """The scheme is of the noted one, iob2 and bioes the first that all tags belong to, else plain."""
        schemes_of_spans = set(get_args(TagScheme)) - {"plain"}  # to which any tags belong
        stated: tuple[Any, ...] = (noted.get("scheme"), "iob2", "bioes")
        known: list[TagScheme] = [scheme for scheme in stated if scheme in schemes_of_spans]
        fitting = (scheme for scheme in known if all(fits_scheme(label, scheme) for label in settings["labels"]))
        return {**super().with_noted(settings, noted), "scheme": next(fitting, "plain")}


class Tagging(Kind):
    """P is `TaggedWords`."""

    name, settings, model, served = "tagging", TaggingConfig, TaggingTask, ServedTagging
    transformers = TaggingHead()

    def read(self, path: DataFile, config: FinetuningRunConfig, new: NewColumns | None = None) -> Examples:
        return read_tagged(path, None if new is None else config.task.labels)

    def derive(self, train: Examples, task: Any) -> dict[str, Any]:
        labels = tag_labels(train, task.scheme)
        if len(labels) < 2:
            raise UserError(f"{train.source} has only the tag {labels[0]!r}; training needs 2 or more")
        return {"labels": list(labels)}

    def encode(
        self, examples: Examples, config: FinetuningRunConfig, tokenizer: Tokenizer, is_training: bool
    ) -> EncodedExamples:
        targets = None if examples.labels is None else tag_targets(examples, config.task.labels)
        length, stride = config.data.max_seq_length, config.task.stride
        encoded = tagging_features(examples.inputs[0], targets, tokenizer, length, stride)
        num_words = sum(map(len, examples.inputs[0]))
        if num_cut := num_words - int(encoded.features.token_targets["label_weights"].sum()):
            limit = f"data.max_seq_length {length}" if stride is None else f"{max_bytes(length, True)} bytes"
            lack = "training" if is_training else f"prediction: beyond {limit}"
            logger.warning("%s: %d of %d words get no %s", examples.source, num_cut, num_words, lack)
        return replace(encoded, gold=examples.labels)

    def metric_names(self, split: Split) -> tuple[str, ...]:
        names = ("accuracy",) if split.task.scheme == "plain" else ("f1", "precision", "recall", "accuracy")
        return names + ("truncated_words",) * bool(split.encoded.num_truncated)

    def predict(self, split: Split, outputs: Outputs) -> TaggedWords:
        labels, features = split.task.labels, split.encoded.features
        of_words = (values_of_words(features, outputs[name]) for name in ("label_ids", "probabilities"))
        predicted: TaggedWords = []
        for words, tags, shares in zip(split.examples.inputs[0], *of_words, strict=True):
            lost = [None] * (len(words) - len(tags))
            predicted.append(([*(labels[tag] for tag in tags), *lost], [*shares.tolist(), *lost]))
        return predicted

    def scores(self, split: Split, predictions: TaggedWords) -> dict[str, float]:
        tags = _scored_tags(predictions)
        share = float(np.mean([tag == "" for tag in itertools.chain(*tags)]))
        scores = tagging_scores(tags, split.examples.gold, split.task.scheme) | {"truncated_words": share}
        return {name: scores[name] for name in self.metric_names(split)}

    def report(self, split: Split, predictions: TaggedWords) -> Report:
        predicted, tags = _scored_tags(predictions), split.examples.gold
        if split.task.scheme == "plain":
            return class_report(split.task.labels, *(list(itertools.chain(*each)) for each in (predicted, tags)))
        return span_report(predicted, tags)

    def rows(self, split: Split, predictions: TaggedWords) -> list[dict[str, Any]]:
        """The prediction for each sentence: lists with a value for each word, None for a truncated one."""
        (sentences,), labels = split.examples.inputs, split.examples.labels
        known = [{}] * len(sentences) if labels is None else [{"label": tags} for tags in labels]
        return [
            {"word": words, **label, "prediction": tags, "probability": shares}
            for words, label, (tags, shares) in zip(sentences, known, predictions, strict=True)
        ]

    def content_of(self, rows: list[dict[str, Any]]) -> bytes:
        """Returns a line for each word of a sentence, with tabs between its values, and an empty line."""
        lines = []
        for row in rows:
            lines += ["\t".join(map(cell, row, values)) for values in zip(*row.values(), strict=True)]
            lines.append("")
        return "".join(f"{line}\n" for line in lines).encode()

    def python_values(self, rows: list[dict[str, Any]]) -> list[list[tuple[str, str | None, float | None]]]:
        return [list(zip(row["word"], row["prediction"], row["probability"], strict=True)) for row in rows]

    def alarm(self, split: Split, predictions: TaggedWords) -> str | None:
        predicted = {tag for tags, _ in predictions for tag in tags} - {None}
        return f"all words of the dev set are tagged {predicted.pop()!r}" if len(predicted) == 1 else None


def _scored_tags(predictions: TaggedWords) -> list[list[str]]:
    """A tag for each word; a truncated one has "", which is wrong, and outside of all spans."""
    return [["" if tag is None else tag for tag in tags] for tags, _ in predictions]


def tagging_features(
    sentences: Sequence[Sequence[str]],
    label_ids: Sequence[Sequence[int]] | None,
    tokenizer: Tokenizer,
    max_seq_length: int,
    stride: int | None,
) -> EncodedExamples:
    """Returns the features of tagged sentences: the label of a word belongs to its first piece.

    A sentence that is too long loses its end, or with a stride has several rows, see `word_windows`; `values_of_words`
    gives one value for each word that is left. A word without a piece, such as a control character, becomes [UNK], so
    that its label has a position. The words with spaces between them are read up to `max_bytes`.

    Args: label_ids: the label of each word; None for prediction.
    Returns: features with the token targets `label_weights`, 1 on the first piece of a word in the window to which it
        belongs, and `label_ids`, if given.
    """
    rows, of_rows, num_truncated = [], [], 0
    longest = max_bytes(max_seq_length, is_windowed=stride is not None)
    read = [_read_words(sentence, longest) for sentence in sentences]
    is_cut = np.array([part is not whole for part, whole in zip(read, sentences, strict=True)], bool)
    num_words = np.array([len(sentence) for sentence in read], np.int64)
    for begin, end in batches(len(sentences)):
        words = [word for each in read[begin:end] for word in tokenizer.vocabulary.in_context(each)]
        pieces = tokenizer.tokenize(tf.constant(words, tf.string))
        sentence = np.repeat(np.arange(end - begin), num_words[begin:end])
        tokens, word = join_words(pieces, sentence, end - begin, tokenizer.vocabulary.unk_id)
        parts, text, word, has_more = word_windows(tokens, word, max_seq_length, stride)
        rows.append((*join([parts], tokenizer.vocabulary), begin + text))
        of_rows.append(np.where(word.values < 0, -1, num_words[:begin].sum() + word.values))
        num_truncated += np.count_nonzero(is_cut[begin:end] | has_more)
    word = np.concatenate(of_rows)
    token_targets: dict[str, npt.NDArray[Any]] = {"label_weights": (word >= 0).astype(np.float32)}
    if label_ids is not None:
        labels_of_read = (labels[: len(words)] for labels, words in zip(label_ids, read, strict=True))
        labels = np.array([label for labels in labels_of_read for label in labels], np.int32)
        token_targets["label_ids"] = np.where(word < 0, 0, labels[word])
    return EncodedExamples(replace(joined_features(rows), token_targets=token_targets), num_truncated)


def _read_words(words: Sequence[str], longest: int) -> Sequence[str]:
    """The words that the first `longest` bytes of their text contain, the last one cut; `words` itself if all are."""
    if sum(len(word) + 1 for word in words) * _MAX_BYTES_PER_CHARACTER <= longest:  # saves a call for each sentence
        return words
    (text,), (is_cut,) = cut_texts(tf.constant([" ".join(words)]), longest)
    if not is_cut:
        return words
    text, firsts = text.numpy().decode(), itertools.accumulate((len(word) + 1 for word in words), initial=0)
    return [text[first : first + len(word)] for first, word in zip(firsts, words, strict=False) if first < len(text)]


def values_of_words(features: Features, values: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Returns the values of the words of each sentence: those of their first pieces. Truncated words have none.

    Args: features, values: of `tagging_features`, and [N, S], a value for each token of each row.
    """
    is_word = features.token_targets["label_weights"] > 0
    of_rows = [values[row, : features.lengths[row]][is_word[features.row(row)]] for row in range(features.num_rows)]
    first_rows = np.flatnonzero(np.diff(features.example_index, prepend=-1)).tolist()
    return [np.concatenate(of_rows[slice(*rows)]) for rows in itertools.pairwise([*first_rows, len(of_rows)])]


def tag_labels(examples: Examples, scheme: TagScheme) -> tuple[str, ...]:
    """Returns the tags to learn, sorted. In a scheme of spans, B-PER in training gives all of PER, such as I-PER.

    Raises: UserError: a tag does not belong to the scheme.
    """
    tags = {tag for sentence in examples.gold for tag in sentence}
    if scheme == "plain":
        return tuple(sorted(tags))
    for sentence, words in enumerate(examples.gold):
        for word, tag in enumerate(words):
            if not fits_scheme(tag, scheme):
                raise UserError(
                    f"{_where(examples, sentence, word)} has the tag {tag!r}, which is not in task.scheme {scheme}; "
                    "give the file's scheme, such as task.scheme=bioes, or plain for tags without spans"
                )
    endings = {tag[1:] for tag in tags - {"O"}}
    return tuple(sorted({"O", *(prefix + ending for prefix in scheme_prefixes(scheme) for ending in endings)}))


def tag_targets(examples: Examples, labels: Sequence[str]) -> list[list[int]]:
    """Returns the label id of each word's tag. Raises: UserError: a tag is not in `labels`."""
    return [
        label_ids(enumerate(tags), labels, functools.partial(_where, examples, sentence), "tag")
        for sentence, tags in enumerate(examples.gold)
    ]


def _where(examples: Examples, sentence: int, word: int) -> str:
    return f"{examples.source}:{examples.rows[sentence][word]}"


def words_of(text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """The words of [N] texts, separated by spaces, tabs and line breaks. An invalid byte becomes U+FFFD.

    Returns: [words] each: the words, string; the index of the text of each, int64; and its first character (code
        point) in the text and its end (exclusive), int32.
    """
    characters = tf.strings.unicode_decode(text, "UTF-8")  # [N, (characters)]
    rows = characters.value_rowids()
    is_space = tf.reduce_any(characters.values[:, tf.newaxis] == tf.constant(_SPACES), axis=1)
    continues = tf.concat([[False], ~is_space[:-1] & (rows[1:] == rows[:-1])], axis=0)[: tf.size(rows)]
    first = tf.where(~is_space & ~continues)[:, 0]  # of each word, among the characters of all texts
    kept = tf.where(~is_space)[:, 0]
    word_of = tf.searchsorted(first, kept, side="right", out_type=tf.int64) - 1
    words = tf.RaggedTensor.from_value_rowids(
        tf.gather(characters.values, kept), word_of, nrows=tf.size(first, tf.int64), validate=False
    )  # [words, (characters)]
    row = tf.gather(rows, first)
    start = tf.cast(first - tf.gather(characters.row_starts(), row), tf.int32)
    return tf.strings.unicode_encode(words, "UTF-8"), row, start, start + tf.cast(words.row_lengths(), tf.int32)
