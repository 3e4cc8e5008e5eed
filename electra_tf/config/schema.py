"""The settings that every kind of run has, with their defaults and checks. No default stands anywhere below `config`.

Settings that go with a size (widths, learning rate, batch, sequence length, generator fraction) have no default: a run
takes them from one preset as a whole (configs/pretrain/*.yaml), so a change of size never keeps another size's learning
rate.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from electra_tf.config.networks import EncoderConfig
from electra_tf.config.settings import Count, CountOrZero, DropoutRate, Fraction, NonNegative, Positive, Settings


class MaskingConfig(Settings):
    """Which tokens are selected for prediction, and what the generator is shown in their place."""

    # The share of the tokens of an example. The submission uses 0.15 everywhere, the camera-ready 0.25 for Large.
    masked_fraction: Annotated[Positive, Field(le=1.0)] = 0.15
    # Which ones (electra_tf/data/masking.py has the rules). rare_tokens: each in proportion to its count in the
    # training text to the power of -rarity_exponent. span: runs of tokens. whole_word: words with all of their pieces.
    scheme: Literal["uniform", "rare_tokens", "span", "whole_word"] = "uniform"
    # Of uniform. distinct: k different positions. with_replacement: the authors' draw; it hits some twice, so about
    # 13.8 % in all.
    selection: Literal["distinct", "with_replacement"] = "distinct"
    rarity_exponent: NonNegative = 0.5  # 0: all tokens alike; 0.5: as word2vec keeps frequent words less often
    # Lengths of spans are geometric with this chance of ending after each token, but never longer; SpanBERT's numbers.
    span_end_probability: Annotated[Positive, Field(le=1.0)] = 0.2
    max_span_length: Count = 10
    # Of the selected tokens: shown as [MASK], as a random token, and (the rest) unchanged. 85/0/15 is the authors'
    # code, 100/0/0 the paper's text, 80/10/10 BERT's.
    mask_token_fraction: Fraction = 0.85
    random_token_fraction: Fraction = 0.0

    @model_validator(mode="after")
    def _fractions_fit(self) -> "MaskingConfig":
        if self.mask_token_fraction + self.random_token_fraction > 1.0 + 1e-9:
            raise ValueError(
                f"mask_token_fraction {self.mask_token_fraction} and random_token_fraction "
                f"{self.random_token_fraction} sum to more than 1"
            )
        return self

    @model_validator(mode="after")
    def _selection_goes_with_the_scheme(self) -> "MaskingConfig":
        if self.selection == "with_replacement" and self.scheme != "uniform":
            raise ValueError(
                f"selection 'with_replacement' is the authors' draw from all tokens alike; with scheme "
                f"{self.scheme!r} no token is selected twice: leave it out"
            )
        return self

    def max_predictions(self, max_seq_length: int) -> int:
        """M: the slots for masked positions of a sequence, e.g. 19 of 128 at 0.15."""
        # The 0.005 is the authors' rounding guard (configure_pretraining.py).
        return min(max_seq_length, max(1, int((self.masked_fraction + 0.005) * max_seq_length)))


class DataConfig(Settings):
    """The input pipeline."""

    max_seq_length: Annotated[Count, Field(ge=8)]  # tokens, [CLS] and [SEP] included; below 8 no data is built
    vocab_file: str | None = None  # only for data without a manifest (the authors' records); else the manifest's copy
    # A record or shard that cannot be read: the run stops and names it, or it counts as an example of padding.
    on_damaged_record: Literal["stop", "skip"] = "stop"


class OptimizerConfig(Settings):
    """The update rule and its schedule.

    The rate is learning_rate * min(1, step / warmup_steps) * (1 - step / num_steps) ** decay_power.
    """

    name: Literal["adamw", "lamb"] = "adamw"  # adamw: no bias correction, as the authors' code; lamb: the paper's text
    learning_rate: Positive  # peak of the two factors above if they were 1
    warmup_steps: CountOrZero = 10_000
    warmup_fraction: Fraction = 0.0  # of the steps of the schedule, not rounded; unless 0 it replaces `warmup_steps`
    decay_power: NonNegative = 1.0
    weight_decay_rate: NonNegative = 0.01
    beta_1: DropoutRate = 0.9
    beta_2: DropoutRate = 0.999
    epsilon: Positive = 1e-6
    clip_norm: Positive = 1.0  # of all gradients together, after the sum over replicas
    exclude_from_weight_decay: tuple[str, ...] = ("LayerNorm", "layer_norm", "bias")  # regular expressions on names

    def warmups(self, part_steps: Sequence[int]) -> list[float]:
        """The length in steps, not always whole, of the warm-up of each part of a schedule, which has so many steps."""
        return [self.warmup_fraction * num_steps or self.warmup_steps for num_steps in part_steps]

    @field_validator("exclude_from_weight_decay")
    @classmethod
    def _patterns_compile(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"the pattern {pattern!r} is not a regular expression: {error}") from None
        return patterns


class TrainConfig(Settings):
    """Length, size and bookkeeping of the run. Steps are optimizer updates."""

    num_steps: Count
    # FLOPs that the training may cost: num_steps, left out or null, becomes as many as these pay for. Counted as the
    # paper does (appendix E), or as the hardware has to compute.
    flops_budget: Positive | None = None
    flops_convention: Literal["paper", "hardware"] = "paper"
    batch_size: Count  # examples of one update, over all replicas
    seed: CountOrZero = 0
    precision: Literal["float32", "bfloat16"] = "float32"  # of products and activations; variables stay float32
    # The whole step as one program, as always on a TPU. On a CPU slower than the many small ones that are the default,
    # and minutes to compile.
    xla: bool = False
    # Compiled operations with gradients of their own; false: plain TensorFlow, several times slower, for debugging.
    fused_ops: bool = True
    # Micro-batches of one update, one after the other: batch_size / this many examples are in memory at once.
    gradient_accumulation_steps: Count = 1
    rematerialize: bool = False  # layers are computed again on the way back instead of being kept
    # A loss or gradient that is not finite: the run stops before that update, or leaves up to so many of them out.
    on_nonfinite: Literal["stop", "skip"] = "stop"
    max_nonfinite_steps: CountOrZero = 10
    # Steps in which nothing may be learnt before the run says so, or half of a shorter run (see
    # electra_tf/train/health.py); 0: never.
    alarm_after_steps: CountOrZero = 5000
    # FLOP/s of one device, of which model_flops_utilization is a share; null: published for a device known by its name,
    # or what a product of large matrices reaches on it when the run starts: too little if the machine is busy then.
    peak_flops: Positive | None = None
    log_every_steps: Count = 100
    save_every_steps: Count = 1000
    keep_checkpoints: Count = 5
    # Kept for ever: the shares of the training that table 1 of the paper evaluates.
    milestone_fractions: tuple[Fraction, ...] = (0.0625, 0.125, 0.25, 0.5, 1.0)


class AsMaskedLmConfig(Settings):
    """`--evaluate --as_masked_lm`: accuracy at guessing one masked token at a time (paper, appendix G)."""

    max_examples: Count = 1000  # of the held-out split, from its beginning; rounded up to whole batches
    tokens_per_example: Count = 1  # each a sequence of its own: so many times evaluation.batch_size go through at once
    # ELECTRA chooses among so many of the generator's guesses, each one pass of the discriminator.
    num_candidates: Count = 100
    seed: CountOrZero = 0  # of the choice of tokens. Not the run's: so two runs on the same data are asked the same


class EvaluationConfig(Settings):
    """Evaluation on the held-out documents."""

    every_steps: CountOrZero = 0  # 0: only at the end
    max_batches: Count = 100
    batch_size: Count | None = None  # null: train.batch_size
    # A held-out metric: the checkpoint of the evaluation at which it was highest is kept in best/.
    best_metric: str | None = None
    # Training ends when so many evaluations in a row have not raised `best_metric`; 0: never before its last step.
    patience: CountOrZero = 0

    @model_validator(mode="after")
    def _patience_needs_a_metric(self) -> "EvaluationConfig":
        if self.patience and self.best_metric is None:
            raise ValueError(f"patience {self.patience} without best_metric; name the metric that must rise")
        return self

    as_masked_lm: AsMaskedLmConfig = AsMaskedLmConfig()


class RunConfig(Settings):
    """What every run has, whatever its task trains. A kind of task adds its own groups in a subclass."""

    encoder: EncoderConfig
    data: DataConfig
    optimizer: OptimizerConfig
    train: TrainConfig
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _sequences_fit_the_position_table(self) -> "RunConfig":
        if self.data.max_seq_length > self.encoder.max_position_embeddings:
            raise ValueError(
                f"data.max_seq_length {self.data.max_seq_length} is longer than the position table, "
                f"encoder.max_position_embeddings {self.encoder.max_position_embeddings}; lower the first or raise the "
                "second"
            )
        return self
