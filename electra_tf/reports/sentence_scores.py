"""Scores of sentences by a pre-trained model without fine-tuning: the higher, the more acceptable.

A masked language model scores a sentence by its pseudo-log-likelihood, the sum over all tokens of log p(token | the
sentence with this token masked), in nats (Salazar et al. 2020, "Masked Language Model Scoring"): one pass for each
token. A discriminator scores it by minus the sum of its logits of "replaced", Electric by minus the sum of its energies
(Clark et al. 2020b): one pass for each sentence. [CLS] and [SEP] do not count, and no score is divided by the length.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig
from electra_tf.data.batch import Batch, mask_and_segments
from electra_tf.data.bucketing import Features, bucket_lengths, padded_batches
from electra_tf.models.encoder import build_encoder
from electra_tf.models.heads import ReplacedTokenHead
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.base import Evaluated, Stage
from electra_tf.tasks.finetune.features import joined_features
from electra_tf.tasks.terms import Term
from electra_tf.text.packing import join
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.distribution import build_strategy
from electra_tf.train.step import compiles_steps
from electra_tf.weights.names import discriminator_variables
from electra_tf.weights.stored_model import StoredModel, assign_weights


class SentenceSpans(NamedTuple):
    """Parts of sentences that are scored in one pass each: the tokens `first` to `end` (exclusive) of `sentence`.

    Each is [R] int32. A sentence has one span or more, and its score is the sum of theirs.
    """

    sentence: npt.NDArray[np.int32]
    first: npt.NDArray[np.int32]
    end: npt.NDArray[np.int32]


class SentenceScorer(Evaluated):
    """Scores sentences with one network. A subclass defines `spans` and `span_scores`.

    Attributes:
        name: what a score is, for reports.        source: the model, for reports.
        max_seq_length: the largest number of tokens, [CLS] and [SEP] included: the model's positions.
    """

    name: str
    xla = None

    def __init__(self, model: StoredModel, sizes: EncoderConfig):
        self.source, self.tokenizer = model.source, model.tokenizer
        self.max_seq_length = sizes.max_position_embeddings

    def spans(self, features: Features) -> SentenceSpans:
        """The spans of all sentences."""
        raise NotImplementedError

    def span_scores(self, batch: Batch) -> tf.Tensor:
        """[B] float32: the score of one span of each row; `first` and `end` of the batch are [B, 1] int32."""
        raise NotImplementedError

    def features(self, sentences: Sequence[str]) -> Features:
        """The tokens of N sentences, a row [CLS] ... [SEP] for each."""
        words = tf.constant(list(self.tokenizer.segment(sentences)))
        ids, segments = join([self.tokenizer.tokenize(words)], self.tokenizer.vocabulary)
        return joined_features([(ids, segments, tf.range(len(sentences)))])

    def scores(self, features: Features, batch_size: int = 64) -> npt.NDArray[np.float64]:
        """The scores of N sentences, [N] float64. Shows a progress bar if that takes longer than some seconds.

        Args:
            features: result of `features`, of at most `max_seq_length` tokens a row.
            batch_size: the number of spans in one pass.
        """
        spans = self.spans(features)
        by_length = np.argsort(-features.lengths[spans.sentence], kind="stable")
        missing = (0, -len(by_length) % batch_size)
        rows, first, end = (
            np.pad(values[by_length], missing, constant_values=filling).reshape(-1, batch_size)
            for values, filling in zip(spans, (-1, 0, 0), strict=True)
        )

        strategy = build_strategy("one_device")
        lengths = bucket_lengths(self.max_seq_length, compiles_steps(self.xla, strategy))

        class SpanStage(Stage):
            """The spans to score."""

            num_evaluation_batches = len(rows)

            def evaluation_batches(self, context: tf.distribute.InputContext) -> tf.data.Dataset:
                positions = tf.data.Dataset.from_tensor_slices({"first": first[..., None], "end": end[..., None]})
                inputs = padded_batches(features, rows, lengths, context)
                return tf.data.Dataset.zip(inputs, positions).map(lambda batch, span: {**batch, **span})

        evaluation = DeviceLoop(self, strategy).evaluate(SpanStage())
        assert evaluation is not None, "only a training is asked to stop"
        scores = np.zeros(features.num_rows)
        np.add.at(scores, spans.sentence[by_length], np.concatenate(evaluation.outputs["score"])[: len(by_length)])
        return scores

    def example_outputs(self, batch: Batch, context: ForwardContext) -> dict[str, tf.Tensor]:
        return {"score": self.span_scores(batch)}

    def evaluation_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Term]:
        return {}

    def random_stream(self, step: tf.Tensor, first_example: tf.Tensor, name: str = "") -> RandomStream:
        return RandomStream(0, step, first_example, name)  # nothing is drawn


class PseudoLogLikelihood(SentenceScorer):
    """Scores sentences with a masked language model, which predicts one masked token at a time.

    Args:
        model: has a masked language model; of ELECTRA the generator is taken.
        within_word_l2r: with a token, also mask the later pieces of its word, so that they do not give the word away
            (Kauf and Ivanova 2023, "A Better Way to Do Masked Language Model Scoring").
    """

    name = "pseudo-log-likelihood"

    def __init__(self, model: StoredModel, within_word_l2r: bool = False):
        super().__init__(model, model.generator or model.encoder)
        self._network = model.build_masked_lm()
        self._within_word_l2r = within_word_l2r

    def spans(self, features: Features) -> SentenceSpans:
        """A span for each token: the token itself, or up to the end of its word."""
        counts = features.lengths - 2
        sentence = np.repeat(np.arange(features.num_rows, dtype=np.int32), counts)
        first = np.concatenate([np.arange(1, 1 + count, dtype=np.int32) for count in counts])
        if not self._within_word_l2r:
            return SentenceSpans(sentence, first, first + 1)
        vocabulary, place = self.tokenizer.vocabulary, features.row_splits[sentence] + first
        begins = np.array(vocabulary.begins_word())[features.input_ids]
        begins[features.row_splits[1:] - 1] = True  # [SEP]
        next_word = np.flatnonzero(begins)
        end = next_word[np.searchsorted(next_word, place, side="right")]
        return SentenceSpans(sentence, first, (first + end - place).astype(np.int32))

    def span_scores(self, batch: Batch) -> tf.Tensor:
        """The log-probability of a span's first token."""
        ids, first = batch["input_ids"], batch["first"]
        index = tf.range(tf.shape(ids)[1])
        is_masked = (index >= first) & (index < batch["end"])
        masked_ids = tf.where(is_masked, self.tokenizer.vocabulary.mask_id, ids)
        output = self._network(masked_ids, **mask_and_segments(batch), positions=first)
        return -output.distribution.losses(tf.gather(ids, first, batch_dims=1))[:, 0]


class DiscriminatorScore(SentenceScorer):
    """Scores sentences with a discriminator's logits, or with Electric's energies, in one pass for a sentence."""

    def __init__(self, model: StoredModel):
        super().__init__(model, model.encoder)
        self.name = "minus the sum of " + ("energies" if model.objective == "electric" else "replaced-token logits")
        self._encoder = build_encoder(model.encoder, "float32")
        self._head = ReplacedTokenHead(model.encoder, name="discriminator_predictions", dtype="float32")
        self._logits(*tf.zeros([3, 1, 3], tf.int32))  # creates the variables
        assign_weights(model.source, model.weights, discriminator_variables(self._encoder, self._head))

    def spans(self, features: Features) -> SentenceSpans:
        """One span for each sentence: all tokens but [CLS] and [SEP]."""
        sentence = np.arange(features.num_rows, dtype=np.int32)
        return SentenceSpans(sentence, np.ones_like(sentence), (features.lengths - 1).astype(np.int32))

    def span_scores(self, batch: Batch) -> tf.Tensor:
        """Minus the sum of a span's logits."""
        logits = self._logits(batch["input_ids"], **mask_and_segments(batch))
        index = tf.range(tf.shape(logits)[1])
        is_word = (index >= batch["first"]) & (index < batch["end"])
        return -tf.reduce_sum(tf.where(is_word, logits, 0.0), axis=1)

    def _logits(self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
        return self._head(self._encoder(input_ids, input_mask, segment_ids).sequence_output)


def scorer_of(model: StoredModel, use_generator: bool = False, within_word_l2r: bool = False) -> SentenceScorer:
    """The scorer of a trained model: of its discriminator if it has one, else of its masked language model.

    Args:
        use_generator: score with the generator, a masked language model too.
        within_word_l2r: see `PseudoLogLikelihood`.
    Raises: UserError: the model has no network that gives a score, or no vocabulary; or the discriminator, which reads
        no masks, is to mask words.
    """
    is_masked_lm = model.has_masked_lm_head and model.generator is None
    has_discriminator = model.has_detector or model.objective == "electric"
    # A discriminator reads no masks. Of two_stage in its first phase, its weights are random.
    has_score = (has_discriminator and not within_word_l2r) or (is_masked_lm and not has_discriminator)
    if not (use_generator or (has_score and model.kept_scope == "electra/")):
        remedy = "score its generator by --generator" if model.has_masked_lm_head else "give one of electra or bert_mlm"
        scorers = "masked LM" if within_word_l2r else "discriminator or masked LM"
        raise UserError(f"{model.source} has no {scorers} that scores alone; {remedy}")
    model.require_fitting_vocabulary()
    model = model.with_merged_tables()
    if use_generator or not has_discriminator:
        return PseudoLogLikelihood(model, within_word_l2r)
    return DiscriminatorScore(model)
