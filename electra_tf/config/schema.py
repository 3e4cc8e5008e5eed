"""The settings that all kinds of runs have in common, with their defaults and checks.

Settings that depend on the model's size (widths, learning rate, batch, sequence length, generator fraction) have no
default: a run takes all of them from one preset (configs/pretrain/*.yaml), not from presets of different sizes.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from electra_tf.config.networks import EncoderConfig
from electra_tf.config.settings import (
    Count,
    CountOrZero,
    DropoutRate,
    Fraction,
    MayChange,
    NonNegative,
    Positive,
    Settings,
)

MaskedFraction = Annotated[Positive, Field(le=1.0)]


class MaskingConfig(Settings):
    """Which tokens are selected for prediction, and what replaces them in the generator's input."""

    CHOICE = "scheme"
    OWNERS = {
        "uniform": ("selection",),
        "rare_tokens": ("rarity_exponent",),
        "span": ("span_end_probability", "max_span_length"),
    }

    # The share of an example's tokens that are selected. The submission uses 0.15 everywhere, the camera-ready paper
    # 0.25 for Large. Two numbers: it goes linearly from the first to the second over the run, as in Ankner et al. 2023.
    masked_fraction: MaskedFraction | tuple[MaskedFraction, MaskedFraction] = 0.15
    # How tokens are selected. rare_tokens: in proportion to `(count in the training text) ** -rarity_exponent`. span:
    # runs of tokens. whole_word: all pieces of a word.
    scheme: Literal["uniform", "rare_tokens", "span", "whole_word"] = "uniform"
    # For scheme uniform. distinct: k different positions. with_replacement: the authors' draw, which may take a
    # position twice, so that about 13.8 % are selected.
    selection: Literal["distinct", "with_replacement"] = "distinct"
    # For scheme rare_tokens. 0: all tokens are equally likely; 0.5: word2vec's subsampling.
    rarity_exponent: NonNegative = 0.5
    # For scheme span: a span ends after each token with this probability; SpanBERT's number.
    span_end_probability: Annotated[Positive, Field(le=1.0)] = 0.2
    max_span_length: Count = 10  # for scheme span, in tokens; SpanBERT's number
    # The share of selected tokens that become [MASK]: 1 in the paper's text, 0.85 in the authors' code, 0.8 in BERT.
    mask_token_fraction: Fraction = 0.85
    random_token_fraction: Fraction = 0.0  # the share that become a random token: 0.1 in BERT; the rest stays

    @model_validator(mode="after")
    def _require_possible_fractions(self) -> "MaskingConfig":
        if self.mask_token_fraction + self.random_token_fraction > 1.0 + 1e-9:
            raise ValueError(
                f"mask_token_fraction {self.mask_token_fraction} and random_token_fraction "
                f"{self.random_token_fraction} have a sum above 1; lower one of them"
            )
        return self

    def fraction_at(self, progress: Any) -> Any:
        """`masked_fraction` after a share of the steps from 0 to 1: a number, or a tensor for a tensor."""
        if not isinstance(self.masked_fraction, tuple):
            return self.masked_fraction
        first, last = self.masked_fraction
        return (1.0 - progress) * first + progress * last

    def between(self, begin: float, end: float) -> "MaskingConfig":
        """The masking of a part of the steps, given by two such shares."""
        first, last = self.fraction_at(begin), self.fraction_at(end)
        return self.model_copy(update={"masked_fraction": first if first == last else (first, last)})

    def max_predictions(self, max_seq_length: int) -> int:
        """M, the number of slots for masked positions of a sequence: 19 for 128 tokens at 0.15, for example."""
        highest = max(self.fraction_at(0.0), self.fraction_at(1.0))
        # The 0.005 is the authors' rounding guard (configure_pretraining.py).
        return min(max_seq_length, max(1, int((highest + 0.005) * max_seq_length)))


class DataConfig(Settings):
    """The input pipeline."""

    max_seq_length: Annotated[Count, Field(ge=8)]  # tokens of a sequence, with [CLS] and [SEP]; as the data was built
    vocab_file: MayChange[str | None] = None  # the vocabulary of data without a manifest: the authors' records


class OptimizerConfig(Settings):
    """The update rule and its schedule.

    The learning rate is `learning_rate` * min(1, step / `warmup_steps`) * decay. See `electra_tf.train.schedule`.
    """

    CHOICE, OWNERS = "schedule", {"linear": ("decay_power",), "warmup_stable_decay": ("decay_fraction", "decay_shape")}

    name: Literal["adamw", "lamb"] = "adamw"  # adamw: without bias correction, as the authors' code
    learning_rate: Positive  # the highest rate, before warm-up and decay
    # Regular expressions on names of variables, each with a factor of the rate. Of several that match, all count.
    learning_rate_multipliers: dict[str, Positive] = {}
    # linear: the decay is `(1 - step / num_steps) ** decay_power` from the first step on, as in the authors' code;
    # cosine: half a cosine after the warm-up;
    # warmup_stable_decay: no decay until the last decay_fraction of the steps, so that a run can be extended.
    schedule: Literal["linear", "cosine", "warmup_stable_decay"] = "linear"
    warmup_steps: CountOrZero = 10_000  # steps in which the rate rises from 0
    warmup_fraction: Fraction = 0.0  # above 0: the warm-up as a share of the steps, in place of warmup_steps
    decay_power: NonNegative = 1.0  # for schedule linear
    decay_fraction: Fraction = 0.1  # for schedule warmup_stable_decay: the share of the steps in which the rate falls
    # For schedule warmup_stable_decay, x from 0 to 1: 1 - sqrt(x), or 1 - x.
    decay_shape: Literal["one_minus_sqrt", "linear"] = "one_minus_sqrt"
    weight_decay_rate: NonNegative = 0.01  # the share of a weight, times the learning rate, that a step subtracts
    beta_1: DropoutRate = 0.9  # decay of the mean of gradients
    beta_2: DropoutRate = 0.999  # decay of the mean of their squares
    epsilon: Positive = 1e-6  # added to the root of that mean
    clip_norm: Positive = 1.0  # largest global norm of the gradients, after the sum over replicas
    # Regular expressions on names of variables that have no weight decay.
    exclude_from_weight_decay: tuple[str, ...] = ("LayerNorm", "layer_norm", "bias")

    def warmups(self, part_steps: Sequence[int]) -> list[float]:
        """The warm-up of each part of a schedule in steps (not rounded), from the number of steps of each part."""
        return [self.warmup_fraction * num_steps or self.warmup_steps for num_steps in part_steps]

    def stable_steps(self, num_steps: int) -> int:
        """The number of first steps of a part whose rates do not depend on the part's length."""
        return num_steps - round(self.decay_fraction * num_steps) if self.schedule == "warmup_stable_decay" else 0

    @field_validator("exclude_from_weight_decay", "learning_rate_multipliers")
    @classmethod
    def _require_regular_expressions(cls, patterns: Any) -> Any:
        for pattern in patterns:
            problem: Any = "names have no ':0' here" if re.search(r"(?<!\?):0", pattern) else None  # but in (?:0|1)
            try:
                re.compile(pattern)
            except (re.error, OverflowError) as error:
                problem = error
            if problem:
                raise ValueError(f"{pattern!r} matches no variable: {problem}")
        return patterns


class TrainConfig(Settings):
    """Length, batch size, reports and checkpoints of the run. Steps are optimizer updates."""

    num_steps: Count  # steps of the whole run; the schedule follows from it
    batch_size: Count  # examples of one update, over all replicas
    seed: CountOrZero = 0  # seed of initial values, order of examples, masks, samples and dropout
    precision: Literal["float32", "bfloat16"] = "float32"  # dtype of products and activations; variables stay float32
    # Compiles the whole step with XLA. null: on GPUs, where TensorFlow would compute much on the CPU, but not on CPUs,
    # where compiling takes minutes and makes steps slower. On TPUs it is always so.
    # Fine-tuning compiles it for each length of its batches: then 8, 16, 32, ..., without it up to four times as many.
    xla: MayChange[bool | None] = None
    # Compiled operations with custom gradients; false: plain TensorFlow, several times slower, for debugging.
    fused_ops: bool = True
    # The number of micro-batches of an update. Only one of them is in memory at a time.
    gradient_accumulation_steps: Count = 1
    # The parts of a batch, or of a micro-batch, that one CPU computes at the same time, where its rows divide so.
    cpu_parts: MayChange[Count] = 2
    rematerialize: bool = False  # compute layers again in the backward pass instead of keeping them
    # After a loss or gradient that is not finite: stop before the update, or skip at most max_nonfinite_steps updates.
    on_nonfinite: MayChange[Literal["stop", "skip"]] = "stop"
    max_nonfinite_steps: MayChange[CountOrZero] = 10  # the most updates that skip leaves out
    # Steps without learning before the run logs an alarm (at most half of the run); 0: never.
    alarm_after_steps: MayChange[CountOrZero] = 5000
    # FLOP/s of one device, for model_flops_utilization. null: the published value of a known device; for others the
    # utilization is not reported.
    peak_flops: MayChange[Positive | None] = None
    log_every_steps: MayChange[Count] = 100  # steps from report to report
    # The metrics on the terminal. short: the losses, each beside its value on the plateau; all: every loss and metric.
    log_metrics: MayChange[Literal["short", "all"]] = "short"
    save_every_steps: MayChange[Count] = 1000  # steps from checkpoint to checkpoint
    keep_checkpoints: MayChange[Count] = 5  # how many of the last ones stay
    # The fractions of the training after which a checkpoint is kept for good; the default is from the paper's table 1.
    milestone_fractions: MayChange[tuple[Fraction, ...]] = (0.0625, 0.125, 0.25, 0.5, 1.0)


class AsMaskedLmConfig(Settings):
    """Settings of `--evaluate --as_masked_lm`, the accuracy on single masked tokens (paper, appendix G)."""

    max_examples: Count = 1000  # the first ones of the held-out split, rounded up to whole batches
    tokens_per_example: Count = 1  # tokens, masked one at a time, so batches grow by this factor
    # ELECTRA chooses among this many guesses of the generator; each costs one pass of the discriminator.
    num_candidates: Count = 100
    seed: CountOrZero = 0  # chooses the tokens; not the run's seed, so that runs can be compared


class EvaluationConfig(Settings):
    """Evaluation on the held-out documents."""

    every_steps: MayChange[CountOrZero] = 0  # steps from evaluation to evaluation; 0: only at the end
    max_batches: MayChange[Count] = 100  # the most batches of an evaluation
    # Examples of such a batch. null: train.batch_size, one micro-batch at a time.
    batch_size: MayChange[Count | None] = None
    # A held-out metric. The checkpoint with its best value (lowest for a loss, else highest) in the last stage and
    # phase is kept in best/.
    best_metric: MayChange[str | None] = None
    # Training ends after this many such evaluations in a row without a better `best_metric`; 0: at its last step.
    patience: MayChange[CountOrZero] = 0

    @model_validator(mode="after")
    def _require_metric_for_patience(self) -> "EvaluationConfig":
        if self.patience and self.best_metric is None:
            raise ValueError(f"patience {self.patience} requires best_metric; give the name of a held-out metric")
        return self

    as_masked_lm: MayChange[AsMaskedLmConfig] = AsMaskedLmConfig()  # the settings of `--evaluate --as_masked_lm`


def lower_is_better(metric: str) -> bool:
    """Whether the lowest value of a metric is the best, as of losses and errors. Tables show these not in percent."""
    return re.fullmatch(r"(.+[_/])?(loss|mse)(_mm)?", metric) is not None


class RunConfig(Settings):
    """The settings of every run. Subclasses add the groups of pre-training and fine-tuning."""

    encoder: EncoderConfig
    data: DataConfig
    optimizer: OptimizerConfig
    train: TrainConfig
    evaluation: EvaluationConfig = EvaluationConfig()

    @property
    def lengths(self) -> dict[str, int]:
        """The settings of the largest number of tokens in a sequence, by their paths."""
        return {"data.max_seq_length": self.data.max_seq_length}

    @property
    def rows_together(self) -> int:
        """The number of rows that one micro-batch of one replica, or its half, must hold together."""
        return 1

    @property
    def stable_steps(self) -> int:
        """The number of leading steps that do not depend on `train.num_steps`; 0: all do."""
        depends = self.varies_with_num_steps or self.optimizer.warmup_fraction
        return 0 if depends else self.optimizer.stable_steps(self.train.num_steps)

    @property
    def varies_with_num_steps(self) -> bool:
        """Whether what a step trains depends on the number of all steps, beside its rate."""
        return False

    @model_validator(mode="after")
    def _require_enough_positions(self) -> "RunConfig":
        longest = self.encoder.max_position_embeddings
        for name, length in self.lengths.items():
            if length > longest:
                raise ValueError(
                    f"{name} {length} is larger than encoder.max_position_embeddings {longest}; lower the first or "
                    "raise the second"
                )
        return self
