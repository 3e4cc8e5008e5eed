"""A trained model between two formats: plain arrays by the authors' names, sizes, and what the text needs."""

from dataclasses import dataclass, field

import numpy as np

from electra_tf.config.errors import UserError
from electra_tf.config.schema import EncoderConfig
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class StoredModel:
    """What every format is read into and written from.

    Attributes:
        source: the checkpoint it was read from, for messages and the record.
        encoder: the sizes of the network that is kept: ELECTRA's discriminator, or the one encoder there is.
        generator: the sizes of ELECTRA's generator; None where there is none or where it is not known.
        weights: by the names of `electra_tf.convert.names`; [in, out] for products. Only what was trained, without
            the optimizer's state. Embeddings that both networks use stand there once, under `electra/`.
        vocabulary_file: the content of vocab.txt.
        lower_case, strip_accents: how text was tokenized.
        objective: the objective's name in a configuration; "" where the source does not say.
        step: of training; 0 where the source does not say.
        finetuned: the whole configuration of a fine-tuned model; None of any other.
        facts: what else is known and goes into model cards and records, as JSON takes it; every key may be missing.
            data: the identity of the data set of each input stage, a SHA-256 of its manifest.
            init_from: where the weights came from before training.
            flops: {"paper": ..., "hardware": ...}, of pre-training until `step`, in both conventions.
            evaluation: by name, the last metrics on held-out text or, fine-tuned, on the dev set; and their `step`.
            scores: of several seeds of fine-tuning, for each task {"task", "metric", "median", "sigma", "n"}.
    """

    source: str
    encoder: EncoderConfig
    generator: EncoderConfig | None
    weights: dict[str, np.ndarray]
    vocabulary_file: bytes
    lower_case: bool = True
    strip_accents: bool = True
    objective: str = ""
    step: int = 0
    finetuned: FinetuningConfig | None = None
    facts: dict = field(default_factory=dict)

    @property
    def has_discriminator_head(self) -> bool:
        return "discriminator_predictions/dense/kernel" in self.weights

    @property
    def has_masked_lm_head(self) -> bool:
        return "generator_predictions/dense/kernel" in self.weights

    def part(self, scope: str) -> dict[str, np.ndarray]:
        """The weights whose names begin with a scope, such as `electra/`."""
        return {name: value for name, value in self.weights.items() if name.startswith(scope)}

    def require_sound(self) -> None:
        """Raises: UserError: if the vocabulary does not fit, or the step is none."""
        self.require_fitting_vocabulary()
        if not 0 <= self.step < 2**31:
            raise UserError(f"{self.source} says that it is of step {self.step}; expected one from 0 to 2^31 - 1")

    def require_fitting_vocabulary(self) -> None:
        """Raises: UserError: if the vocabulary is empty or otherwise none, or not of the encoder's size."""
        size = Vocabulary.from_bytes(self.vocabulary_file, f"of {self.source}").size
        if size != self.encoder.vocab_size:
            raise UserError(
                f"the vocabulary has {size} tokens, the encoder of {self.source} has {self.encoder.vocab_size}; give "
                "the vocabulary it was trained with (--vocab_file)"
            )
