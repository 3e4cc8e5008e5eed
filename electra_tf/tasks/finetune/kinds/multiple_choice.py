"""Multiple choice: contexts with choices of SWAG, RACE, COPA or a user's own, the model, its scores and predictions."""

import itertools
import re
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from electra_tf.config.errors import UserError, list_briefly
from electra_tf.config.settings import DropoutRate, Settings
from electra_tf.data.batch import TEXT_TENSORS, Batch
from electra_tf.data.tables import read_table
from electra_tf.models.layers import ForwardContext
from electra_tf.tasks.finetune.examples import (
    DataFile,
    Examples,
    NewColumns,
    ids_of,
    is_missing,
    labels_or_none,
    text_of,
)
from electra_tf.tasks.finetune.features import batches, joined_features, with_choices
from electra_tf.tasks.finetune.kind import EncodedExamples, Kind, Outputs, Split
from electra_tf.tasks.finetune.labels import NO_LABEL
from electra_tf.tasks.finetune.settings import FinetuningRunConfig
from electra_tf.tasks.finetune.task import Head, LogitsTask, sequences_as_rows
from electra_tf.tasks.finetune.transformers_head import CLS_LAYERS, FoundHead, TransformersHead, Weights, WrittenHead
from electra_tf.tasks.served import Served, ServedModel, ServedOutputs
from electra_tf.text.packing import Rows, cut_contexts, cut_texts, join, max_bytes
from electra_tf.text.tokenizer import Tokenizer

# The columns by which a data set is recognised, that of the context first.
_LAYOUTS = {
    "SWAG": ("sent1", "sent2", "ending0"),
    "COPA": ("premise", "question", "choice1", "choice2"),
    "RACE": ("article", "options"),
    "your own": ("context", "choices"),
}
# COPA states only which of the two it asks for.
_COPA_QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
# How ElectraForMultipleChoice makes a vector of a sequence.
_SUMMARY = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}
_NO_SUMMARY = {"summary_type": "first", "summary_use_proj": False, "summary_activation": ""}
_BLANK = re.compile(r"(?<!\w)_{1,2}(?!\w)|_{3,}")  # not part of a name


class MultipleChoiceConfig(Settings):
    """Predicts which of several choices follows or answers a context."""

    kind: Literal["multiple_choice"]
    # linear: dropout and one dense layer. huggingface: as in ElectraForMultipleChoice, BertForMultipleChoice (by
    # encoder.family) or ModernBertForMultipleChoice (by encoder.block).
    head: Head = "linear"
    dropout: DropoutRate = 0.1  # rate in the head


class MultipleChoiceTask(LogitsTask):
    """Scores each choice with its context: logits [B, C] float32, the lowest number where an example has no choice.

    The head of a sequence is dropout and a dense layer on the vector of [CLS], or that of ElectraForMultipleChoice,
    which has another dense layer and GELU before them, of BertForMultipleChoice, which has tanh instead, or of
    ModernBertForMultipleChoice, which has GELU and a LayerNorm. The loss is the cross-entropy over choices.
    Source: models/electra, models/bert and models/modernbert of transformers 5.
    """

    target_tensors = {"label_ids": ("", tf.int32)}
    text_axes = "CS"
    reads_cls = drops_only_last = True

    def forward(self, batch: Batch, context: ForwardContext) -> tf.Tensor:
        """[B, C] float32 logits."""
        logits = super().forward(*sequences_as_rows(batch, context))  # [B C, 1]
        is_choice = batch["input_mask"][:, :, 0] > 0
        return tf.where(is_choice, tf.reshape(logits, tf.shape(is_choice)), logits.dtype.min)

    def row_losses(self, batch: Batch, forward: tf.Tensor) -> tf.Tensor:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label_ids"], logits=forward)


class ServedChoice(ServedModel):
    """Serves a model of multiple choice: `choose` and `embed`."""

    default, least_length = "choose", 5

    def served(self) -> dict[str, Served]:
        size, width = self.shapes.batch_size, self.shapes.width
        choices = tf.TensorSpec([size, None], tf.string, name="choices")
        ids = [tf.TensorSpec([size, None, width], tf.int32, name=name) for name in TEXT_TENSORS]
        return {
            "choose": (self._choose, [*self.texts("context"), choices]),
            "choose_ids": (self.for_ids(self._chosen)[0], ids),
            **super().served(),
        }

    def _choose(self, context: tf.Tensor, choices: tf.Tensor) -> ServedOutputs:
        """The scores of the choices [N, C] of each context [N], string, UTF-8.

        Args: choices: each with its question, as in a training file; "" where a context has fewer.
        Returns: the outputs of `_chosen`; `truncated` [N] bool, whether the context or a choice was cut.
        """
        num_contexts, num_choices, room = tf.size(context), tf.shape(choices)[1], self.shapes.max_seq_length - 3
        message = "expected a row of choices for each context"
        with tf.control_dependencies([tf.debugging.assert_equal(num_contexts, tf.shape(choices)[0], message)]):
            texts = tf.concat([context, tf.reshape(choices, [-1])], axis=0)
        # One call for both inputs, so that the graph has the tokenizer's operations once.
        tokens, is_cut = self.tokenize(texts)
        context_of = tf.repeat(tf.range(num_contexts), num_choices)
        parts = cut_contexts(tokens[:num_contexts], tokens[num_contexts:], context_of, room)
        lengths = tokens.row_lengths()
        whole = tf.gather(lengths, context_of), lengths[num_contexts:]
        lost = [part.row_lengths() < length for part, length in zip(parts, whole, strict=True)]
        lost = tf.reduce_any([*lost, is_cut[num_contexts:]], axis=0)
        truncated = is_cut[:num_contexts] | tf.reduce_any(tf.reshape(lost, tf.shape(choices)), axis=1)
        rows = self.pack(parts)  # [N C, T]
        shape = [num_contexts, num_choices, tf.shape(rows.input_ids)[1]]
        rows = Rows(*(tf.reshape(values, shape) for values in rows))
        real = tf.cast(choices != "", tf.int32)[:, :, tf.newaxis]
        return {**self._chosen(rows._replace(input_mask=rows.input_mask * real)), "truncated": truncated}

    def _chosen(self, rows: Rows) -> ServedOutputs:
        """The scores of choices.

        Args:
            rows: [N, C, T] each: [CLS] context [SEP] choice [SEP], segment 1 from the choice on; the mask is 0 for
                padding and everywhere in a choice that a context lacks.
        Returns:
            choice: [N] int32, the index of the likeliest.
            scores: [N, C] float32, the logits; the lowest float32 for a choice that a context lacks.
            probabilities: [N, C] float32, their softmax.
        """
        scores = self.get_task()(rows._asdict())
        choice = tf.argmax(scores, axis=1, output_type=tf.int32)
        return {"choice": choice, "scores": scores, "probabilities": tf.nn.softmax(scores)}


class ChoiceHead(TransformersHead):
    """The head of a class for multiple choice. ELECTRA's has its layers below the last one only with a summary."""

    ending, pipeline = "ForMultipleChoice", "multiple-choice"
    description = "that chooses one of several texts to follow a context."
    layers = {"Electra": {"sequence_summary.summary": ("hidden",), "classifier": ("dense",)}, **CLS_LAYERS}
    electra_linear = {"classifier": ("dense",)}

    def written(self, config: FinetuningRunConfig, weights: Weights, family: str) -> WrittenHead | str:
        task, layers = config.task, self.layers[family]
        entries = {"classifier_dropout": task.dropout}
        if family == "Electra":
            layers, summary = (layers, _SUMMARY) if task.head == "huggingface" else (self.electra_linear, _NO_SUMMARY)
            entries = {**summary, "summary_last_dropout": task.dropout}
        note = (
            "Each choice is a pair: the context, and the choice with its question. The logits are scores of the "
            "choices."
        )
        return WrittenHead(layers, weights, entries=entries, notes=(note,))

    def settings(self, found: FoundHead) -> dict[str, Any]:
        """Raises: UserError: ELECTRA's head does not read [CLS], or has another activation."""
        if found.layers not in (self.layers["Electra"], self.electra_linear):
            return {"dropout": found.dropout}
        for name, value in (_NO_SUMMARY if found.layers == self.electra_linear else _SUMMARY).items():
            if (stated := found.config.get(name, _SUMMARY[name])) != value:
                raise UserError(f"{found.path}: {name} is {stated!r:.80}, expected {value!r}; give another folder")
        return {"dropout": found.config.get("summary_last_dropout", 0.1)}


class MultipleChoice(Kind):
    """P is the model's outputs: `logits` [N, C] float32."""

    name, settings, model, served = "multiple_choice", MultipleChoiceConfig, MultipleChoiceTask, ServedChoice
    transformers = ChoiceHead()

    def read(self, path: DataFile, config: FinetuningRunConfig, new: NewColumns | None = None) -> Examples:
        """Reads contexts with choices.

        The context and the choices of each data set are:
            SWAG (sent1, sent2, ending0, ending1, ..., label): sent1 | sent2 ending
            RACE (article, question, options, answer A to D): article | question option; an option replaces the blank
                `_` of its question
            COPA (premise, question, choice1, choice2, label): premise | the question, cause or effect, in words, choice
            your own (context, choices, label, and optionally question): as RACE; label is the index of a choice

        Raises: UserError: the file cannot be read or has other columns, texts or labels.
        Source: run_swag.py of transformers; its reader of RACE in version 2.
        """
        table = read_table(path)
        layout = next((name for name, columns in _LAYOUTS.items() if table.columns.keys() >= set(columns)), None)
        if layout is None:
            expected = "; ".join(f"{name}: {', '.join(columns)}" for name, columns in _LAYOUTS.items())
            found = list_briefly(table.columns)
            raise UserError(f"{table.source} has the columns {found}, expected those of {expected}")
        label_column = "answer" if layout == "RACE" else "label"
        none = [None] * len(table.rows)
        given = table.column(label_column) if new is None else table.columns.get(label_column, none)
        contexts, choices, labels = [], [], []
        for row, values in enumerate(zip(*table.columns.values(), strict=True)):
            cells, where = dict(zip(table.columns, values, strict=True)), table.where(row)
            context, texts = _context_and_choices(layout, cells, where)
            contexts.append(context)
            choices.append(texts)
            labels.append(_index(given[row], len(texts), where))
        return Examples((contexts, choices), labels_or_none(labels, table), ids_of(table), table.source, table.rows)

    def derive(self, train: Examples, task: Any) -> dict[str, Any]:
        if max(map(len, train.inputs[1])) < 2:
            raise UserError(f"{train.source} has one choice for each context; training needs 2 or more")
        return {}

    def encode(
        self, examples: Examples, config: FinetuningRunConfig, tokenizer: Tokenizer, is_training: bool
    ) -> EncodedExamples:
        """Returns features with a sequence [CLS] context [SEP] choice [SEP] for each choice.

        Of a sequence that is too long, the context loses its end. A context is read up to `max_bytes`.

        Raises: UserError: a choice does not fit without its context.
        """
        targets = {} if examples.labels is None else {"label_ids": np.array(examples.labels, np.int32)}
        max_seq_length = config.data.max_seq_length
        room, longest = max_seq_length - 3, max_bytes(max_seq_length)
        contexts_of, choices_of = examples.inputs
        num_choices = np.array([len(texts) for texts in choices_of])
        rows, num_truncated = [], 0
        for begin, end in batches(len(examples)):
            contexts, is_cut = cut_texts(tf.constant(tokenizer.segment(contexts_of[begin:end]), tf.string), longest)
            choices = [text for texts in choices_of[begin:end] for text in texts]
            choices, lost = cut_texts(tf.constant(tokenizer.segment(choices), tf.string), longest)
            contexts, choices = tokenizer.tokenize(contexts), tokenizer.tokenize(choices)
            context_of = np.repeat(np.arange(end - begin), num_choices[begin:end])
            lost |= choices.row_lengths() > room
            if np.any(lost):
                where = examples.where(begin + context_of[np.argmax(lost)])
                raise UserError(
                    f"{where}: a choice has more than {room} tokens, all that data.max_seq_length {max_seq_length} "
                    "leaves beside an empty context; increase it or shorten the choice"
                )
            parts = cut_contexts(contexts, choices, context_of, room)
            is_cut |= tf.math.segment_min(parts[0].row_lengths(), context_of) < contexts.row_lengths()
            num_truncated += np.count_nonzero(is_cut)
            rows.append((*join(parts, tokenizer.vocabulary), begin + context_of))
        return EncodedExamples(with_choices(joined_features(rows), num_choices, targets), num_truncated)

    def metric_names(self, split: Split) -> tuple[str, ...]:
        return ("accuracy",)

    def scores(self, split: Split, outputs: Outputs) -> dict[str, float]:
        return {"accuracy": float(np.mean(outputs["logits"].argmax(axis=1) == np.array(split.examples.gold, np.int32)))}

    def rows(self, split: Split, outputs: Outputs) -> list[dict[str, Any]]:
        """For each example: id, label (if known), prediction, and each choice's probability, from 0 on."""
        from scipy import special

        examples, logits, lines = split.examples, outputs["logits"], []
        for index, shares in enumerate(special.softmax(logits, axis=1).tolist()):
            num_choices = len(examples.inputs[1][index])
            line = {**examples.known(index), "prediction": int(logits[index].argmax())}
            line |= {f"probability_{n}": share if n < num_choices else None for n, share in enumerate(shares)}
            lines.append(line)
        return lines


def _context_and_choices(layout: str, cells: Mapping[str, Any], where: str) -> tuple[str, list[str]]:
    context, question = cells[_LAYOUTS[layout][0]], cells.get("question")
    if layout == "SWAG":
        endings = itertools.takewhile(cells.__contains__, (f"ending{number}" for number in itertools.count()))
        question, choices = cells["sent2"], [cells[name] for name in endings]
    elif layout == "COPA":
        question, choices = _COPA_QUESTIONS[cells["question"]], [cells["choice1"], cells["choice2"]]
    else:
        choices = cells[_LAYOUTS[layout][1]]
    texts = [*(choices if isinstance(choices, list) else ()), context, "" if question is None else question]
    if not all(isinstance(text, str) for text in texts) or not texts[:-2] or not all(map(str.strip, texts[:-2])):
        found = f"the context {context!r:.80}, the question {question!r:.80} and the choices {choices!r:.200}"
        raise UserError(f"{where} has {found}, expected texts, and the choices as a list without an empty one")
    if question and layout != "SWAG" and _BLANK.search(question):
        return context, [choice.join(_BLANK.split(question)) for choice in choices]
    return context, [f"{question} {choice}" if question else choice for choice in choices]


def _index(label: Any, num_choices: int, where: str) -> int | None:
    if is_missing(label) or text_of(label) in NO_LABEL:
        return None
    try:
        index = float(label)
    except (TypeError, ValueError, OverflowError):
        index = ord(label) - ord("A") if isinstance(label, str) and len(label) == 1 else -1
    if index not in range(num_choices):
        last = num_choices - 1
        raise UserError(
            f"{where} has the label {label!r:.80}, expected the index of a choice, 0 to {last}, or a letter to "
            f"{chr(ord('A') + last)}"
        )
    return int(index)
