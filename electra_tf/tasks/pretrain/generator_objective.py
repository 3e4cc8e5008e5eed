"""The base of objectives with a generator: the networks, sampling and the corrupted input."""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import keras
import tensorflow as tf
from pydantic import Field

from electra_tf.config.networks import EncoderConfig, GeneratorConfig, TransformerGeneratorConfig
from electra_tf.config.settings import NonNegative, Positive
from electra_tf.data.batch import Batch, mask_and_segments
from electra_tf.data.corpus import PretrainingData
from electra_tf.flops.passes import HeadPass, NetworkPass, PhaseCost
from electra_tf.models.embeddings import tied_embeddings
from electra_tf.models.encoder import Encoder, EncoderOutput, build_encoder
from electra_tf.models.generators import (
    FIXED_GENERATORS,
    Distribution,
    GeneratorOutput,
    TransformerGenerator,
    UnigramGenerator,
)
from electra_tf.models.heads import MaskedLmHead
from electra_tf.models.layers import ForwardContext
from electra_tf.models.vocabulary_logits import most_likely
from electra_tf.ops.positions import put_at_positions
from electra_tf.tasks.pretrain.config import ObjectiveSettings, PretrainingConfig
from electra_tf.tasks.pretrain.losses import mask_token_metrics, masked_lm_accuracy, masked_lm_loss, over_masked_tokens
from electra_tf.tasks.pretrain.objective import Objective
from electra_tf.tasks.terms import Term, Total


class GeneratorObjectiveSettings(ObjectiveSettings):
    """The settings of every objective whose encoder reads an input that a generator has corrupted."""

    # True if the objective requires a generator with weights.
    needs_generator_network: ClassVar[bool] = False

    # What proposes the tokens. `kind: transformer`, the default: a network of the sizes below. `unigram`: tokens by
    # their frequency in the training text. `uniform`: all tokens alike.
    generator: GeneratorConfig
    # What generator and discriminator share. gradient_disentangled: as in DeBERTaV3, see
    # `electra_tf.models.embeddings.tied_embeddings`. all: one encoder under two heads.
    tying: Literal["none", "embeddings", "gradient_disentangled", "all"] = "embeddings"
    masked_lm_loss_weight: NonNegative = 1.0  # weight of the generator's loss
    # greedy: the most likely token in place of a sample, for deterministic comparisons.
    sampling: Literal["categorical", "greedy"] = "categorical"
    temperature: Annotated[Positive, Field(ge=1e-6)] = 1.0  # divides the logits; for the limit 0 use sampling: greedy
    disallow_correct: bool = False  # never sample the original token

    def require_fit(self, run: PretrainingConfig) -> None:
        if not isinstance(self.generator, TransformerGeneratorConfig):
            self._require_no_network()
            return
        self.generator.encoder(run.encoder)  # raises if its sizes do not fit
        if self.tying == "all":
            # num_heads and intermediate_size count only if they are explicit: derived ones are not used.
            explicit = [name for name in ("num_heads", "intermediate_size") if getattr(self.generator, name)]
            self._require_equal_sizes(run, ["hidden_size", "num_layers", *explicit], "objective.tying 'all'")
        if self.tying != "none":
            self._require_equal_sizes(run, ["embedding_size"], f"objective.tying {self.tying!r}")

    @property
    def has_generator_network(self) -> bool:
        """True if the generator is a network, False if it is one distribution for all positions, without weights."""
        return isinstance(self.generator, TransformerGeneratorConfig)

    def _require_no_network(self) -> None:
        kind = self.generator.kind
        if self.needs_generator_network:
            raise ValueError(
                f"objective.generator.kind is {kind!r}, but objective.name {self.name!r} needs a generator with "
                "weights; set it to 'transformer'"
            )
        for name, fitting in (("tying", ("none", "embeddings")), ("sampling", ("categorical",))):
            if (value := getattr(self, name)) not in fitting:
                raise ValueError(
                    f"objective.{name} is {value!r}, which needs a generator of kind 'transformer', not {kind!r}; "
                    "leave it out"
                )
        self.require_some_weight([name for name in self.loss_weights if name != "masked_lm"])

    def require_samples_of_the_generator(self) -> None:
        """Raises: ValueError: if a setting changes the distribution that tokens are sampled from."""
        for name in ("temperature", "disallow_correct", "sampling"):
            if (value := getattr(self, name)) != type(self).model_fields[name].default:
                raise ValueError(
                    f"objective.{name} is {value!r}, but objective.name {self.name!r} needs tokens "
                    "sampled from the generator's own distribution; leave it out"
                )

    def _require_equal_sizes(self, run: PretrainingConfig, names: Iterable[str], setting: str) -> None:
        assert isinstance(self.generator, TransformerGeneratorConfig)
        generator = self.generator.encoder(run.encoder)
        sizes = [(name, getattr(generator, name), getattr(run.encoder, name)) for name in names]
        different = [f"its {name} is {own}, the discriminator's {other}" for name, own, other in sizes if own != other]
        if different:
            raise ValueError(
                f"{setting} needs a generator of the discriminator's size: {'; '.join(different)}; leave "
                f"its sizes out of objective.generator, with size_fraction 1.0 for equal networks, or change {setting}"
            )

    def generator_encoder(self, run: PretrainingConfig) -> EncoderConfig:
        """The sizes of the generator's encoder; with `tying: all` both networks have the same encoder."""
        assert isinstance(self.generator, TransformerGeneratorConfig)
        return run.encoder if self.tying == "all" else self.generator.encoder(run.encoder)

    def num_shared_layers(self, run: PretrainingConfig) -> int:
        """The number of lower layers that generator and discriminator share."""
        return 0

    def generator_passes(self, run: PretrainingConfig, trained: bool = True) -> tuple[NetworkPass, ...]:
        """The generator's pass over the masked input, its head at the masked positions; empty without a network."""
        if not self.has_generator_network:
            return ()
        encoder = self.generator_encoder(run)
        return (NetworkPass("generator", encoder, (HeadPass("vocabulary", "masked"),), trained),)

    def encoder_pass(self, run: PretrainingConfig) -> NetworkPass:
        """The pass of the encoder that reads the corrupted input."""
        raise NotImplementedError

    def phase_costs(self, run: PretrainingConfig) -> tuple[PhaseCost, ...]:
        return (PhaseCost(run.train.num_steps, (*self.generator_passes(run), self.encoder_pass(run))),)

    @property
    def learns_masked_lm(self) -> bool:
        return self.has_generator_network and super().learns_masked_lm

    @property
    def frequencies_reveal_replaced_tokens(self) -> bool:
        return self.generator.kind == "uniform" or self.temperature != 1.0 or self.sampling == "greedy"


class CorruptedInput(NamedTuple):
    """The input of the encoder that reads the generator's samples."""

    sampled_ids: tf.Tensor  # [B, M] int32, the generator's samples
    input_ids: tf.Tensor  # [B, S] int32, the original input with the samples written in
    is_replaced: tf.Tensor  # [B, S] int32, 1 where the token differs from the original


class GeneratorObjective(Objective):
    """Base of the objectives with a generator. Their settings are `GeneratorObjectiveSettings`.

    What `forward` returns has the attributes `generated`, a `GeneratorOutput`, and `corrupted`, a `CorruptedInput`.

    Attributes:
        generator: predicts a distribution over the vocabulary at the masked positions.
        discriminator: the encoder that reads the corrupted input; the one that is exported.
    """

    def __init__(self, config: PretrainingConfig, **model_options: Any) -> None:
        super().__init__(config, **model_options)
        self.generator, self.discriminator = self.build_networks()

    def build_networks(self) -> tuple[keras.layers.Layer, Encoder]:
        """The generator, and the encoder that reads its samples."""
        config, settings, dtype = self.config, self.config.objective, self.layer_dtype
        if not settings.has_generator_network:
            generator = FIXED_GENERATORS[settings.generator.kind](config.encoder.vocab_size, name="generator_network")
            return generator, build_encoder(config.encoder, dtype)
        sizes = settings.generator_encoder(config)
        embeddings, own_embeddings = tied_embeddings(settings.tying, sizes, config.encoder, dtype)
        discriminator = encoder = Encoder(config.encoder, own_embeddings, name="electra", dtype=dtype)
        if settings.tying != "all":
            num_shared = settings.num_shared_layers(config)
            other = discriminator if num_shared else None
            encoder = Encoder(sizes, embeddings, other=other, num_shared=num_shared, name="generator", dtype=dtype)
        head = MaskedLmHead(sizes, embeddings, name="generator_predictions", dtype=dtype)
        return TransformerGenerator(encoder, head, name="generator_network", dtype=dtype), discriminator

    def adopt_data(self, data: PretrainingData) -> None:
        if isinstance(self.generator, UnigramGenerator):
            self.generator.adopt_counts(data.text_token_counts("objective.generator.kind unigram"))

    @property
    def encoder(self) -> Encoder:
        return self.discriminator

    def generate(self, batch: Batch, context: ForwardContext) -> GeneratorOutput:
        """The generator's predictions at the masked positions."""
        inputs = {**mask_and_segments(batch), "positions": batch["masked_lm_positions"]}
        return self.generator(batch["masked_input_ids"], **inputs, context=context.fold_in("generator"))

    def corrupt(self, batch: Batch, logits: Distribution, context: ForwardContext) -> CorruptedInput:
        """Writes samples of the generator into the original (not the masked) input.

        A sample equal to the original token counts as original (paper, section 2). No gradient flows through samples.
        """
        settings = self.config.objective
        forbidden_ids = batch["masked_lm_ids"] if settings.disallow_correct else None
        if settings.sampling == "greedy":
            sampled_ids = most_likely(logits.logits, forbidden_ids)
        else:
            temperature = self.sampling_temperature(context)
            sampled_ids = logits.sample(context, temperature=temperature, forbidden_ids=forbidden_ids)
        corrupted_ids = put_at_positions(
            batch["input_ids"], sampled_ids, batch["masked_lm_positions"], batch["masked_lm_weights"]
        )
        is_replaced = tf.cast(corrupted_ids != batch["input_ids"], tf.int32)
        return CorruptedInput(sampled_ids, corrupted_ids, is_replaced)

    def sampling_temperature(self, context: ForwardContext) -> float | tf.Tensor:
        """The divisor of the logits that tokens are sampled from: a number or a scalar float32."""
        return self.config.objective.temperature

    def encode(self, batch: Batch, corrupted: CorruptedInput, context: ForwardContext) -> EncoderOutput:
        inputs = mask_and_segments(batch)
        return self.discriminator(corrupted.input_ids, **inputs, context=context.fold_in("discriminator"))

    def loss_totals(self, batch: Batch, forward: Any) -> dict[str, Total]:
        return {"masked_lm": masked_lm_loss(forward.generated.distribution, batch)}

    def extra_metrics(self, batch: Batch, forward: Any) -> dict[str, Total]:
        """The metrics of the generator and its samples. A subclass adds `replaced_fraction` of the tokens it counts."""
        is_original = forward.corrupted.sampled_ids == batch["masked_lm_ids"]
        return {
            "sampled_masked_lm_accuracy": over_masked_tokens(is_original, batch),
            **mask_token_metrics(forward.generated.distribution, batch),
        }

    def held_out_metrics(self, batch: Batch, forward: Any, context: ForwardContext) -> dict[str, Term]:
        return {"masked_lm_accuracy": masked_lm_accuracy(forward.generated.logits, batch)}


def masked_tokens(batch: Batch) -> tf.Tensor:
    """[B, S] int32: 1 for the tokens that were masked out."""
    positions, weights = batch["masked_lm_positions"], batch["masked_lm_weights"]
    return put_at_positions(tf.zeros_like(batch["input_ids"]), tf.ones_like(positions), positions, weights)
