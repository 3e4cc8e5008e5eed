"""The sizes of the networks: the encoder, and the generator beside it.

Settings that go with a size have no default: a run takes them from one preset as a whole.
"""

import contextlib
import math
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, ValidationError, field_validator, model_validator

from electra_tf.config.settings import Count, DropoutRate, Positive, Settings


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
    # The standard deviation of a normal that is cut at two of them. width_scaled: 0.02 at width 768, and in proportion
    # to 1 / sqrt(hidden_size), so that attention logits vary as much at the start in networks of every width.
    initializer_range: float | Literal["width_scaled"] = 0.02
    layer_norm_epsilon: Positive = 1e-12

    @field_validator("initializer_range", mode="plain")
    @classmethod
    def _is_a_number_or_follows_from_the_width(cls, value: Any) -> float | str:
        if value == "width_scaled":
            return value
        with contextlib.suppress(TypeError, ValueError):
            if not isinstance(value, bool) and 0.0 < float(value) < math.inf:
                return float(value)
        raise ValueError(f"found {value!r}; expected a number above 0, or width_scaled")

    @property
    def initializer_stddev(self) -> float:
        """What `initializer_range` comes to at this width."""
        scaled = self.initializer_range == "width_scaled"
        return 0.02 * math.sqrt(768 / self.hidden_size) if scaled else self.initializer_range

    @model_validator(mode="after")
    def _heads_divide_the_hidden_size(self) -> "EncoderConfig":
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} does not divide into num_heads {self.num_heads}")
        return self


class TransformerGeneratorConfig(Settings):
    """A masked language model, its sizes as fractions of the discriminator's; one that is given wins over its fraction.

    Source: configure_pretraining.py and paper table 5: hidden size times the fraction, feed-forward four times that,
    one head per 64 hidden units, layers not reduced. One as wide as the discriminator has its heads and feed-forward.
    """

    kind: Literal["transformer"] = "transformer"
    size_fraction: Positive
    layers_fraction: Positive = 1.0
    hidden_size: Count | None = None
    num_layers: Count | None = None
    num_heads: Count | None = None
    intermediate_size: Count | None = None
    embedding_size: Count | None = None  # null: the discriminator's; another only where embeddings are not shared

    def encoder(self, discriminator: EncoderConfig, setting: str = "objective.generator") -> EncoderConfig:
        """The generator's encoder beside the given discriminator.

        Args:
            setting: where this stands in the configuration, for the message of a size that does not fit.
        """
        hidden_size = self.hidden_size or round(discriminator.hidden_size * self.size_fraction)
        same_width = hidden_size == discriminator.hidden_size
        sizes = {
            "hidden_size": hidden_size,
            "num_layers": self.num_layers or round(discriminator.num_layers * self.layers_fraction),
            "num_heads": self.num_heads or (discriminator.num_heads if same_width else max(1, hidden_size // 64)),
            "intermediate_size": self.intermediate_size
            or (discriminator.intermediate_size if same_width else 4 * hidden_size),
            "embedding_size": self.embedding_size or discriminator.embedding_size,
        }
        try:
            return EncoderConfig(**{**discriminator.model_dump(), **sizes})
        except ValidationError as error:
            # One line for the message of the validator that calls this; pydantic's own has several.
            problem = error.errors()[0]
            where = ".".join(str(part) for part in (setting, *problem["loc"]))
            found = f" is {problem['input']!r}" if problem["loc"] else ""
            raise ValueError(f"{where}{found}: {problem['msg'].removeprefix('Value error, ')}") from None


class UnigramGeneratorConfig(Settings):
    """Draws by the tokens' frequencies in the training text, whatever stands around them (paper, section 3.2)."""

    kind: Literal["unigram"]


class UniformGeneratorConfig(Settings):
    """Draws every vocabulary entry equally often, as `uniform_generator` of the authors' code does."""

    kind: Literal["uniform"]


def _kind(generator: Any) -> str:
    """The tag of a generator's settings, a mapping or an object; those from before there were kinds have none."""
    kind = generator.get("kind", "transformer") if isinstance(generator, dict) else getattr(generator, "kind", None)
    return "transformer" if kind is None else str(kind)


GeneratorConfig = Annotated[
    Annotated[TransformerGeneratorConfig, Tag("transformer")]
    | Annotated[UnigramGeneratorConfig, Tag("unigram")]
    | Annotated[UniformGeneratorConfig, Tag("uniform")],
    Discriminator(_kind),
]
