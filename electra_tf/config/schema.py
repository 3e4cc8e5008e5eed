"""Every setting of a pre-training run, with its default and its checks. No default stands anywhere below this file.

Settings that go with a size (widths, learning rate, batch, sequence length, generator fraction) have no default: a run
takes them from one preset as a whole (configs/pretrain/*.yaml), so choosing a size can never leave another size's
learning rate behind.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
DropoutRate = Annotated[float, Field(ge=0.0, lt=1.0)]
NonNegative = Annotated[float, Field(ge=0.0)]


class Settings(BaseModel):
    """Base of every group of settings: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EncoderConfig(Settings):
    """One transformer encoder: the discriminator, or the network that the masked-LM baseline trains."""

    vocab_size: PositiveInt
    embedding_size: PositiveInt
    hidden_size: PositiveInt
    num_layers: PositiveInt
    num_heads: PositiveInt
    intermediate_size: PositiveInt
    max_position_embeddings: PositiveInt = 512
    type_vocab_size: PositiveInt = 2
    hidden_dropout: DropoutRate = 0.1
    attention_dropout: DropoutRate = 0.1
    initializer_range: Annotated[float, Field(gt=0.0)] = 0.02  # of a normal cut at two standard deviations
    layer_norm_epsilon: Annotated[float, Field(gt=0.0)] = 1e-12

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

    size_fraction: Annotated[float, Field(gt=0.0)]
    layers_fraction: Annotated[float, Field(gt=0.0)] = 1.0
    hidden_size: PositiveInt | None = None
    num_layers: PositiveInt | None = None
    num_heads: PositiveInt | None = None
    intermediate_size: PositiveInt | None = None
    embedding_size: PositiveInt | None = None  # null: the discriminator's; another only where embeddings are not shared

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
    sampling: Literal["gumbel", "greedy"] = "gumbel"  # greedy: the most likely token, for comparisons without chance
    temperature: Annotated[float, Field(gt=0.0)] = 1.0
    disallow_correct: bool = False  # never sample the original token


class BertMlmConfig(Settings):
    """The masked-LM baseline: the full-size encoder itself predicts the masked tokens."""

    name: Literal["bert_mlm"]
    masked_lm_loss_weight: NonNegative = 1.0


ObjectiveConfig = Annotated[ElectraConfig | BertMlmConfig, Field(discriminator="name")]


class MaskingConfig(Settings):
    """Which tokens are selected for prediction, and what the generator is shown in their place."""

    # The share of the tokens of an example. The submission uses 0.15 everywhere, the camera-ready 0.25 for Large.
    masked_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.15
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

    max_seq_length: PositiveInt  # tokens, [CLS] and [SEP] included
    vocab_file: str | None = None  # only for data without a manifest (the authors' records); else the manifest's copy


class OptimizerConfig(Settings):
    """The update rule and its schedule.

    The rate is learning_rate * min(1, step / warmup_steps) * (1 - step / num_steps) ** decay_power.
    """

    name: Literal["adamw", "lamb"] = "adamw"  # adamw: no bias correction, as the authors' code; lamb: the paper's text
    learning_rate: Annotated[float, Field(gt=0.0)]  # peak of the two factors above if they were 1
    warmup_steps: Annotated[int, Field(ge=0)] = 10_000
    decay_power: NonNegative = 1.0
    weight_decay_rate: NonNegative = 0.01
    beta_1: DropoutRate = 0.9
    beta_2: DropoutRate = 0.999
    epsilon: Annotated[float, Field(gt=0.0)] = 1e-6
    clip_norm: Annotated[float, Field(gt=0.0)] = 1.0  # of all gradients together, after the sum over replicas
    exclude_from_weight_decay: tuple[str, ...] = ("LayerNorm", "layer_norm", "bias")  # regular expressions on names


class TrainConfig(Settings):
    """Length, size and bookkeeping of the run. Steps are optimizer updates."""

    num_steps: PositiveInt
    batch_size: PositiveInt  # examples of one update, over all replicas
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    precision: Literal["float32", "bfloat16"] = "float32"  # of products and activations; variables stay float32
    xla: bool = False
    log_every_steps: PositiveInt = 100
    save_every_steps: PositiveInt = 1000
    keep_checkpoints: PositiveInt = 5
    # Kept for ever: the shares of the training that table 1 of the paper evaluates.
    milestone_fractions: tuple[Fraction, ...] = (0.0625, 0.125, 0.25, 0.5, 1.0)


class EvaluationConfig(Settings):
    """Evaluation on the held-out documents."""

    every_steps: Annotated[int, Field(ge=0)] = 0  # 0: only at the end
    max_batches: PositiveInt = 100
    batch_size: PositiveInt | None = None  # null: train.batch_size


class PretrainingConfig(Settings):
    """A whole pre-training run."""

    encoder: EncoderConfig
    objective: ObjectiveConfig
    masking: MaskingConfig = MaskingConfig()
    data: DataConfig
    optimizer: OptimizerConfig
    train: TrainConfig
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _parts_fit_together(self) -> "PretrainingConfig":
        if self.data.max_seq_length > self.encoder.max_position_embeddings:
            raise ValueError(
                f"data.max_seq_length {self.data.max_seq_length} is longer than the position table, "
                f"encoder.max_position_embeddings {self.encoder.max_position_embeddings}; lower the first or raise the "
                "second"
            )
        if isinstance(self.objective, ElectraConfig):
            generator = self.objective.generator.encoder(self.encoder)
            sizes = [(encoder.hidden_size, encoder.num_layers) for encoder in (generator, self.encoder)]
            if self.objective.tying == "all" and sizes[0] != sizes[1]:
                raise ValueError(
                    f"objective.tying 'all' needs a generator of the discriminator's size: its hidden_size is "
                    f"{generator.hidden_size}, the discriminator's {self.encoder.hidden_size}; its num_layers is "
                    f"{generator.num_layers}, the discriminator's {self.encoder.num_layers}; set "
                    "objective.generator.size_fraction to 1.0 or objective.tying to 'embeddings'"
                )
            if self.objective.tying != "none" and generator.embedding_size != self.encoder.embedding_size:
                raise ValueError(
                    f"objective.tying {self.objective.tying!r} shares the embeddings, but "
                    f"objective.generator.embedding_size is {generator.embedding_size} and encoder.embedding_size "
                    f"{self.encoder.embedding_size}; leave the first out or set objective.tying to 'none'"
                )
        return self

    @property
    def max_predictions(self) -> int:
        """M, the slots for masked positions of one sequence."""
        return self.masking.max_predictions(self.data.max_seq_length)
