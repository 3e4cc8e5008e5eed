"""Settings of ELECTRA, and of everything else that trains on the samples of a generator."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from electra_tf.config.networks import EncoderConfig, GeneratorConfig, TransformerGeneratorConfig
from electra_tf.config.objectives.base import ObjectiveSettings
from electra_tf.config.passes import Head, NetworkPass, Phase
from electra_tf.config.settings import NonNegative, Positive

if TYPE_CHECKING:
    from electra_tf.config.schema import PretrainingConfig


class GeneratorObjectiveSettings(ObjectiveSettings):
    """Base of the objectives with a generator whose samples corrupt the input of the network that is kept."""

    # Whether there is nothing without a generator that learns.
    needs_generator_network: ClassVar[bool] = False

    generator: GeneratorConfig
    # What generator and discriminator share: see `electra_tf.models.tying`.
    tying: Literal["none", "embeddings", "gradient_disentangled", "all"] = "embeddings"
    masked_lm_loss_weight: NonNegative = 1.0  # of the generator
    # categorical and gumbel draw from the generator's distribution, in two ways, the second being the authors' and the
    # slower one; greedy takes the most likely token, for comparisons without chance.
    sampling: Literal["categorical", "gumbel", "greedy"] = "categorical"
    temperature: Annotated[Positive, Field(ge=1e-6)] = 1.0  # the likeliest token alone: sampling greedy
    disallow_correct: bool = False  # never sample the original token

    def require_fit(self, run: "PretrainingConfig") -> None:
        if not self.has_generator_network:
            self._require_no_network()
            return
        generator = self.generator.encoder(run.encoder)
        if self.tying == "all":
            self._require_one_network(run)
        if self.tying != "none" and generator.embedding_size != run.encoder.embedding_size:
            raise ValueError(
                f"objective.tying {self.tying!r} shares the embeddings, but objective.generator.embedding_size is "
                f"{generator.embedding_size} and encoder.embedding_size {run.encoder.embedding_size}; leave the first "
                "out or set objective.tying to 'none'"
            )

    @property
    def has_generator_network(self) -> bool:
        """Whether the generator is a network; otherwise it is one distribution for all positions, without weights."""
        return isinstance(self.generator, TransformerGeneratorConfig)

    def _require_no_network(self) -> None:
        """What is said of the generator must make sense without weights and without scores of its own each position."""
        kind = self.generator.kind
        if self.needs_generator_network:
            raise ValueError(
                f"objective.generator.kind is {kind!r}, and objective {self.name} trains its generator; set the first "
                "to 'transformer'"
            )
        if self.tying in ("gradient_disentangled", "all"):
            raise ValueError(
                f"objective.tying is {self.tying!r}, but a {kind} generator has no weights to share; leave it out"
            )
        self._require_some_weight(ignored=("masked_lm_loss_weight",))
        if self.sampling != "categorical":
            raise ValueError(
                f"objective.sampling is {self.sampling!r}, which compares the scores of each position, and a {kind} "
                "generator has one table for all; leave it out"
            )

    def _require_one_network(self, run: "PretrainingConfig") -> None:
        """With everything tied there is one network, of the discriminator's sizes."""
        if different := self._different_sizes(run, ("hidden_size", "num_layers")):
            raise ValueError(
                f"objective.tying 'all' needs a generator of the discriminator's size: {'; '.join(different)}; set "
                "objective.generator.size_fraction to 1.0 or objective.tying to 'embeddings'"
            )
        # Only what was given outright: a derived value is nobody's wish, and the one network does not use it.
        for name in ("num_heads", "intermediate_size"):
            value, expected = getattr(self.generator, name), getattr(run.encoder, name)
            if value not in (None, expected):
                raise ValueError(
                    f"objective.tying 'all' has one network for both, but objective.generator.{name} is {value} and "
                    f"encoder.{name} {expected}; leave the first out or set objective.tying to 'embeddings'"
                )

    def _different_sizes(self, run: "PretrainingConfig", names: Iterable[str]) -> list[str]:
        """What is said of each of these sizes in which the generator is not the discriminator."""
        generator = self.generator.encoder(run.encoder)
        return [
            f"its {name} is {getattr(generator, name)}, the discriminator's {getattr(run.encoder, name)}"
            for name in names
            if getattr(generator, name) != getattr(run.encoder, name)
        ]

    def generator_encoder(self, run: "PretrainingConfig") -> EncoderConfig:
        """The sizes of the generator's encoder, if it is one; with everything tied, those of the one network."""
        return run.encoder if self.tying == "all" else self.generator.encoder(run.encoder)

    def generator_passes(self, run: "PretrainingConfig", trained: bool = True) -> tuple[NetworkPass, ...]:
        """The generator over the masked input, its head at the masked positions; none where it is no network."""
        if not self.has_generator_network:
            return ()
        encoder = self.generator_encoder(run)
        return (NetworkPass("generator", encoder, (Head("vocabulary", "masked"),), trained),)

    @property
    def learns_masked_lm(self) -> bool:
        return self.has_generator_network and self.masked_lm_loss_weight > 0


class ElectraConfig(GeneratorObjectiveSettings):
    """Replaced-token detection beside a jointly trained generator (paper, section 2)."""

    name: Literal["electra"]
    replaced_token_loss_weight: NonNegative = 50.0  # lambda of the paper, on means over tokens as in the authors' code

    def phases(self, run: "PretrainingConfig") -> tuple[Phase, ...]:
        discriminator = NetworkPass("discriminator", run.encoder, (Head("token", "all"),))
        return (Phase(run.train.num_steps, (*self.generator_passes(run), discriminator)),)

    @property
    def learns_replaced_tokens(self) -> bool:
        return self.replaced_token_loss_weight > 0
