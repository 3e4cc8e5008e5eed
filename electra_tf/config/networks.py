"""The settings of networks: encoders and generators."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from electra_tf.config.settings import Count, DropoutRate, Positive, Settings
from electra_tf.config.validation import validate


@dataclass(frozen=True)
class Block:
    """What the rest of the program asks about one kind of encoder layer."""

    settings: tuple[str, ...] = ()  # that only some blocks accept; a part has a bias unless one of them says
    has_position_tables: bool = False  # of positions and of segments, in the embeddings
    is_rotary: bool = False  # attention rotates queries and keys by their positions
    is_pre_norm: bool = False  # LayerNorm precedes each part, and one more follows the last layer
    is_gated: bool = False  # the feed-forward network has a gate, a third product
    has_head_norm: bool = False  # heads have a LayerNorm and smaller initial values, as in ModernBERT


BLOCKS = {  # `electra_tf.models.encoder.LAYERS` has the class of each
    # LayerNorm after each part, tables of positions and segments (Devlin et al. 2019), as in the paper.
    "bert": Block(settings=("family",), has_position_tables=True),
    # LayerNorm before each part, rotary positions, GeGLU, local attention (Warner et al. 2024, ModernBERT).
    "modern": Block(
        settings=(
            *("global_attention_every_n_layers", "local_attention", "global_rope_theta", "local_rope_theta"),
            *("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"),
        ),
        is_rotary=True,
        is_pre_norm=True,
        is_gated=True,
        has_head_norm=True,
    ),
}
# Settings that change what a network computes and that the shapes of its weights need not show.
SHAPELESS_SETTINGS = (
    *("block", "num_heads", "layer_norm_epsilon"),
    # Family is of its heads, and of its folder.
    *(name for block in BLOCKS.values() for name in block.settings if name != "family"),
)


class EncoderConfig(Settings):
    """Sizes, dropout and initial values of a transformer encoder."""

    CHOICE, OWNERS = "block", {name: block.settings for name, block in BLOCKS.items()}

    # Rows of the word table: the tokens of the vocabulary (five special ones and at least a word), or up to 1,024 more.
    vocab_size: Annotated[Count, Field(ge=6)]
    embedding_size: Count  # width of the embeddings; if it is not hidden_size, the encoder projects them
    hidden_size: Count  # width of the layers, a multiple of num_heads
    num_layers: Count  # layers, each of attention and a feed-forward network
    num_heads: Count  # attention heads of a layer
    intermediate_size: Count  # width of the feed-forward networks
    max_position_embeddings: Count = 512  # the longest sequence in tokens; rows of the table of positions
    type_vocab_size: Count = 2  # segments, such as the two texts of a pair
    # Rate after the embeddings and each part of a layer; with block modern after the embeddings and inside the
    # feed-forward networks.
    hidden_dropout: DropoutRate = 0.1
    attention_dropout: DropoutRate = 0.1  # rate of the attention's probabilities; with block modern also of its output
    # Standard deviation of the initial values, which are normal and cut off at two deviations. width_scaled:
    # `0.02 * sqrt(768 / hidden_size)`, so that initial attention logits vary equally at every width.
    initializer_range: Positive | Literal["width_scaled"] = 0.02
    layer_norm_epsilon: Positive = 1e-12  # added to the variance in LayerNorm
    block: Literal["bert", "modern"] = "bert"  # kind of layers: BERT's, or ModernBERT's, which has the settings below
    # With block bert, the classes of transformers that a converted model has: bert for a masked language model or a
    # fine-tuned encoder, of equal embedding_size and hidden_size. With bert, task.head huggingface is BERT's pooler.
    family: Literal["electra", "bert"] = "electra"
    global_attention_every_n_layers: Count = 3  # layers 0, n, 2 n, ... attend to all tokens, the others to near ones
    local_attention: Annotated[Count, Field(ge=2)] = 128  # tokens that a local layer attends to, half on each side
    global_rope_theta: Positive = 160_000.0  # base of the rotations by position in global layers
    local_rope_theta: Positive = 10_000.0  # the same in local layers
    attention_bias: bool = False  # whether the dense layers of attention have a bias
    mlp_bias: bool = False  # the same for the feed-forward networks
    norm_bias: bool = False  # the same for every LayerNorm
    classifier_bias: bool = False  # the same for the dense layers in heads, but for the last one, which has a bias

    @property
    def initializer_stddev(self) -> float:
        """`initializer_range` as a number, at this width."""
        if isinstance(self.initializer_range, str):  # width_scaled
            return 0.02 * math.sqrt(768 / self.hidden_size)
        return self.initializer_range

    @property
    def traits(self) -> Block:
        return BLOCKS[self.block]

    @property
    def has_pooler(self) -> bool:
        """Whether the dense layer of a head on [CLS] is BERT's pooler, which ends with tanh."""
        return self.family == "bert"

    @property
    def table_rows(self) -> dict[str, int]:
        """The number of rows of each table of the embeddings."""
        others = {"position_embeddings": self.max_position_embeddings, "token_type_embeddings": self.type_vocab_size}
        return {"word_embeddings": self.vocab_size} | (others if self.traits.has_position_tables else {})

    def is_local(self, layer: int) -> bool:
        """Whether a layer, counted from 0, attends to near tokens only."""
        return "local_attention" in self.traits.settings and layer % self.global_attention_every_n_layers != 0

    def has_bias(self, setting: str) -> bool:
        """True if the parts that this setting controls have a bias; always true in blocks without it."""
        return setting not in self.traits.settings or getattr(self, setting)

    @property
    def has_norm_bias(self) -> bool:
        return self.has_bias("norm_bias")

    @property
    def has_head_bias(self) -> bool:
        """Whether the first dense layer of a head has a bias."""
        return self.has_bias("classifier_bias")

    @property
    def head_stddev(self) -> float:
        """The deviation of the initial kernels of heads, before they are cut off."""
        return self.initializer_stddev / (math.sqrt(2 * self.num_layers) if self.traits.has_head_norm else 1.0)

    @model_validator(mode="after")
    def _require_divisible_hidden_size(self) -> "EncoderConfig":
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} is not a multiple of num_heads {self.num_heads}")
        return self


class TransformerGeneratorConfig(Settings):
    """A generator that is a masked language model. Sizes that are not given follow from the discriminator's.

    The hidden size is `size_fraction` times the discriminator's. The feed-forward size is four times the hidden size,
    and there is one head per 64 hidden units. If the hidden sizes are equal, the discriminator's heads and feed-forward
    size are used instead.

    Source: configure_pretraining.py and paper table 5.
    """

    kind: Literal["transformer"] = "transformer"
    size_fraction: Positive  # hidden size as a multiple of the discriminator's
    layers_fraction: Positive = 1.0  # number of layers, likewise
    hidden_size: Count | None = None  # replaces size_fraction
    num_layers: Count | None = None  # replaces layers_fraction
    num_heads: Count | None = None  # null: one for 64 hidden units, or at equal width the discriminator's number
    intermediate_size: Count | None = None  # null: 4 * hidden size, or at equal width the discriminator's
    embedding_size: Count | None = None  # null: the discriminator's; another one only if embeddings are not shared

    def encoder(self, discriminator: EncoderConfig, setting: str = "objective.generator") -> EncoderConfig:
        """The sizes of the generator's encoder. `setting`: the path of these settings in the file, for messages."""
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
        return validate({**discriminator.model_dump(), **sizes}, EncoderConfig, setting)


class UnigramGeneratorConfig(Settings):
    """A generator that samples tokens by their frequency in the training text (paper, section 3.2)."""

    kind: Literal["unigram"]


class UniformGeneratorConfig(Settings):
    """A generator that samples all tokens with equal probability (`uniform_generator` in the authors' code)."""

    kind: Literal["uniform"]


def _kind(generator: Any) -> str:
    """The `kind` of a generator's settings (a mapping or an object); by default transformer."""
    kind = generator.get("kind", "transformer") if isinstance(generator, dict) else getattr(generator, "kind", None)
    return "transformer" if kind is None else str(kind)


GeneratorConfig = Annotated[
    Annotated[TransformerGeneratorConfig, Tag("transformer")]
    | Annotated[UnigramGeneratorConfig, Tag("unigram")]
    | Annotated[UniformGeneratorConfig, Tag("uniform")],
    Discriminator(_kind),
]
