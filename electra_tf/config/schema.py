"""Every setting of a pre-training run, with its default and its checks. No default stands anywhere below this file.

Settings that go with a size (widths, learning rate, batch, sequence length, generator fraction) have no default: a run
takes them from one preset as a whole (configs/pretrain/*.yaml), so choosing a size can never leave another size's
learning rate behind.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator


def _refuse_boolean(value: Any) -> Any:
    """Python counts true as 1; in a file it is a slip of the pen."""
    if isinstance(value, bool):
        raise ValueError(f"expected a number, found the boolean {str(value).lower()}")
    return value


# Numbers in text pass: YAML reads 1e-4, without a dot, as text.
Integer = Annotated[int, Field(le=2**31 - 1), BeforeValidator(_refuse_boolean)]  # sizes and steps reach int32 tensors
Count = Annotated[Integer, Field(gt=0)]
CountOrZero = Annotated[Integer, Field(ge=0)]
Real = Annotated[float, BeforeValidator(_refuse_boolean)]
Positive = Annotated[Real, Field(gt=0.0)]
NonNegative = Annotated[Real, Field(ge=0.0)]
Fraction = Annotated[Real, Field(ge=0.0, le=1.0)]
DropoutRate = Annotated[Real, Field(ge=0.0, lt=1.0)]


class Settings(BaseModel):
    """Base of every group of settings: immutable, and an unknown key or a number that is not finite is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EncoderConfig(Settings):
    """One transformer encoder: the discriminator, or the network that the masked-LM baseline trains."""

    vocab_size: Annotated[Count, Field(ge=6)]  # the five special tokens and at least one word
    embedding_size: Count
    hidden_size: Count
    num_layers: Count
    num_heads: Count
    intermediate_size: Count
    max_position_embeddings: Count = 512
    type_vocab_size: Count = 2
    hidden_dropout: DropoutRate = 0.1
    attention_dropout: DropoutRate = 0.1
    initializer_range: Positive = 0.02  # of a normal cut at two standard deviations
    layer_norm_epsilon: Positive = 1e-12

    @model_validator(mode="after")
    def _heads_divide_the_hidden_size(self) -> "EncoderConfig":
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} does not divide into num_heads {self.num_heads}")
        return self


class GeneratorConfig(Settings):
    """The generator's sizes, as fractions of the discriminator's; a size given outright wins over its fraction.

    Source: configure_pretraining.py and paper table 5: hidden size times the fraction, feed-forward four times that,
    one head per 64 hidden units, layers not reduced.
    """

    size_fraction: Positive
    layers_fraction: Positive = 1.0
    hidden_size: Count | None = None
    num_layers: Count | None = None
    num_heads: Count | None = None
    intermediate_size: Count | None = None
    embedding_size: Count | None = None  # null: the discriminator's; another only where embeddings are not shared

    def encoder(self, discriminator: EncoderConfig) -> EncoderConfig:
        """The generator's encoder beside the given discriminator."""
        hidden_size = self.hidden_size or round(discriminator.hidden_size * self.size_fraction)
        sizes = {
            "hidden_size": hidden_size,
            "num_layers": self.num_layers or round(discriminator.num_layers * self.layers_fraction),
            "num_heads": self.num_heads or max(1, hidden_size // 64),
            "intermediate_size": self.intermediate_size or 4 * hidden_size,
            "embedding_size": self.embedding_size or discriminator.embedding_size,
        }
        try:
            return EncoderConfig(**{**discriminator.model_dump(), **sizes})
        except ValidationError as error:
            # One line for the message of the validator that calls this; pydantic's own has several.
            problem = error.errors()[0]
            where = ".".join(str(part) for part in ("objective.generator", *problem["loc"]))
            found = f" is {problem['input']!r}" if problem["loc"] else ""
            raise ValueError(f"{where}{found}: {problem['msg'].removeprefix('Value error, ')}") from None


class ElectraConfig(Settings):
    """Replaced-token detection beside a jointly trained generator (paper, section 2)."""

    name: Literal["electra"]
    generator: GeneratorConfig
    tying: Literal["none", "embeddings", "all"] = "embeddings"
    masked_lm_loss_weight: NonNegative = 1.0
    replaced_token_loss_weight: NonNegative = 50.0  # lambda of the paper, on means over tokens as in the authors' code
    # categorical and gumbel draw from the generator's distribution, in two ways, the second being the authors' and the
    # slower one; greedy takes the most likely token, for comparisons without chance.
    sampling: Literal["categorical", "gumbel", "greedy"] = "categorical"
    temperature: Positive = 1.0
    disallow_correct: bool = False  # never sample the original token


class BertMlmConfig(Settings):
    """The masked-LM baseline: the full-size encoder itself predicts the masked tokens."""

    name: Literal["bert_mlm"]
    masked_lm_loss_weight: NonNegative = 1.0


ObjectiveConfig = Annotated[ElectraConfig | BertMlmConfig, Field(discriminator="name")]


class MaskingConfig(Settings):
    """Which tokens are selected for prediction, and what the generator is shown in their place."""

    # The share of the tokens of an example. The submission uses 0.15 everywhere, the camera-ready 0.25 for Large.
    masked_fraction: Annotated[Positive, Field(le=1.0)] = 0.15
    # distinct: k different positions. with_replacement: the authors' draw; it hits some twice, so about 13.8 % in all.
    selection: Literal["distinct", "with_replacement"] = "distinct"
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
    decay_power: NonNegative = 1.0
    weight_decay_rate: NonNegative = 0.01
    beta_1: DropoutRate = 0.9
    beta_2: DropoutRate = 0.999
    epsilon: Positive = 1e-6
    clip_norm: Positive = 1.0  # of all gradients together, after the sum over replicas
    exclude_from_weight_decay: tuple[str, ...] = ("LayerNorm", "layer_norm", "bias")  # regular expressions on names

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
    batch_size: Count  # examples of one update, over all replicas
    seed: CountOrZero = 0
    precision: Literal["float32", "bfloat16"] = "float32"  # of products and activations; variables stay float32
    # The whole step as one program, as always on a TPU. On a CPU slower than the many small ones that are the default,
    # and minutes to compile.
    xla: bool = False
    # Micro-batches of one update, one after the other: batch_size / this many examples are in memory at once.
    gradient_accumulation_steps: Count = 1
    rematerialize: bool = False  # layers are computed again on the way back instead of being kept
    # A loss or gradient that is not finite: the run stops before that update, or leaves up to so many of them out.
    on_nonfinite: Literal["stop", "skip"] = "stop"
    max_nonfinite_steps: CountOrZero = 10
    # Steps in which nothing may be learnt (see electra_tf/train/health.py) before the run says so; 0: never.
    alarm_after_steps: CountOrZero = 5000
    asynchronous_checkpoints: bool = False  # written while the next steps run
    log_every_steps: Count = 100
    save_every_steps: Count = 1000
    keep_checkpoints: Count = 5
    # Kept for ever: the shares of the training that table 1 of the paper evaluates.
    milestone_fractions: tuple[Fraction, ...] = (0.0625, 0.125, 0.25, 0.5, 1.0)


class StageConfig(Settings):
    """A part of the training with its own input: its own sequence length, batch and data set, the same optimizer."""

    num_steps: Count
    max_seq_length: Annotated[Count, Field(ge=8)]
    batch_size: Count


class EvaluationConfig(Settings):
    """Evaluation on the held-out documents."""

    every_steps: CountOrZero = 0  # 0: only at the end
    max_batches: Count = 100
    batch_size: Count | None = None  # null: train.batch_size


class PretrainingConfig(Settings):
    """A whole pre-training run."""

    encoder: EncoderConfig
    objective: ObjectiveConfig
    masking: MaskingConfig = MaskingConfig()
    data: DataConfig
    optimizer: OptimizerConfig
    train: TrainConfig
    evaluation: EvaluationConfig = EvaluationConfig()
    # Empty: one stage of train.num_steps, train.batch_size and data.max_seq_length. One schedule runs through all; the
    # last two settings are then those of the last stage.
    stages: tuple[StageConfig, ...] = ()

    @model_validator(mode="after")
    def _parts_fit_together(self) -> "PretrainingConfig":
        if self.data.max_seq_length > self.encoder.max_position_embeddings:
            raise ValueError(
                f"data.max_seq_length {self.data.max_seq_length} is longer than the position table, "
                f"encoder.max_position_embeddings {self.encoder.max_position_embeddings}; lower the first or raise the "
                "second"
            )
        self._batches_divide()
        self._stages_fit()
        if isinstance(self.objective, ElectraConfig):
            self._generator_fits(self.objective)
        return self

    def _batches_divide(self) -> None:
        parts = self.train.gradient_accumulation_steps
        batches = [("train", self.train.batch_size)]
        batches += [(f"stages.{index}", stage.batch_size) for index, stage in enumerate(self.stages)]
        for name, batch_size in batches:
            if batch_size % parts:
                raise ValueError(
                    f"{name}.batch_size {batch_size} does not divide into train.gradient_accumulation_steps {parts}; "
                    f"set the first to {max(1, batch_size // parts) * parts}, say"
                )

    def _stages_fit(self) -> None:
        """The stages make up the training, and what is set beside them is what the training ends with."""
        if not self.stages:
            return
        num_steps = sum(stage.num_steps for stage in self.stages)
        if num_steps != self.train.num_steps:
            raise ValueError(
                f"stages have {num_steps} steps together, train.num_steps is {self.train.num_steps}; set it to "
                f"{num_steps}, or mend stages.*.num_steps"
            )
        longest = self.encoder.max_position_embeddings
        for index, stage in enumerate(self.stages):
            if stage.max_seq_length > longest:
                raise ValueError(
                    f"stages.{index}.max_seq_length {stage.max_seq_length} is longer than the position table, "
                    f"encoder.max_position_embeddings {longest}; lower the first or raise the second"
                )
        last = self.stages[-1]
        for name, found, expected in (
            ("data.max_seq_length", self.data.max_seq_length, last.max_seq_length),
            ("train.batch_size", self.train.batch_size, last.batch_size),
        ):
            if found != expected:
                raise ValueError(f"{name} is {found}, and {expected} in the last of the stages; set it to {expected}")

    def _generator_fits(self, objective: ElectraConfig) -> None:
        generator = objective.generator.encoder(self.encoder)
        if objective.tying == "all":
            self._generator_is_the_discriminator(objective.generator, generator)
        if objective.tying != "none" and generator.embedding_size != self.encoder.embedding_size:
            raise ValueError(
                f"objective.tying {objective.tying!r} shares the embeddings, but "
                f"objective.generator.embedding_size is {generator.embedding_size} and encoder.embedding_size "
                f"{self.encoder.embedding_size}; leave the first out or set objective.tying to 'none'"
            )

    def _generator_is_the_discriminator(self, given: GeneratorConfig, generator: EncoderConfig) -> None:
        """With everything tied there is one network, of the discriminator's sizes."""
        sizes = [(encoder.hidden_size, encoder.num_layers) for encoder in (generator, self.encoder)]
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"objective.tying 'all' needs a generator of the discriminator's size: its hidden_size is "
                f"{generator.hidden_size}, the discriminator's {self.encoder.hidden_size}; its num_layers is "
                f"{generator.num_layers}, the discriminator's {self.encoder.num_layers}; set "
                "objective.generator.size_fraction to 1.0 or objective.tying to 'embeddings'"
            )
        # Only what was given outright: a derived value is nobody's wish, and the one network does not use it.
        for name in ("num_heads", "intermediate_size"):
            value, expected = getattr(given, name), getattr(self.encoder, name)
            if value not in (None, expected):
                raise ValueError(
                    f"objective.tying 'all' has one network for both, but objective.generator.{name} is {value} and "
                    f"encoder.{name} {expected}; leave the first out or set objective.tying to 'embeddings'"
                )

    @property
    def max_predictions(self) -> int:
        """M, the slots for masked positions of one sequence."""
        return self.masking.max_predictions(self.data.max_seq_length)
