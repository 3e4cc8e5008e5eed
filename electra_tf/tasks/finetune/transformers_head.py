"""A kind's head as one of transformers' classes: the interface that the kind's file implements."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig
from electra_tf.tasks.finetune.settings import FinetuningRunConfig

# The layers of a head: transformers' names, and ours, each of which has an equal share of the outputs.
Layers = Mapping[str, tuple[str, ...]]
Weights = Mapping[str, npt.NDArray[np.float32]]  # float32 by the names of our layers: `dense/kernel`
# Below the last layer of all of ModernBERT's classes.
MODERN_HIDDEN: Layers = {"head.dense": ("hidden",), "head.norm": ("LayerNorm",)}
# Of the classes that read the vector of [CLS].
CLS_LAYERS: Mapping[str, Layers] = {
    "Bert": {"bert.pooler.dense": ("hidden",), "classifier": ("dense",)},
    "ModernBert": {**MODERN_HIDDEN, "classifier": ("dense",)},
}


@dataclass(frozen=True)
class WrittenHead:
    """A trained head as one of transformers' classes."""

    layers: Layers  # of the class
    weights: Weights
    labels: tuple[str, ...] | None = None  # the names of its outputs
    entries: Mapping[str, Any] = field(default_factory=dict)  # of config.json, beside those of the labels
    notes: tuple[str, ...] = ()  # facts that a user of the class needs, whole sentences


@dataclass(frozen=True)
class FoundHead:
    """A head in a folder."""

    config: Mapping[str, Any]  # the content of config.json, at `path`
    path: str
    encoder: EncoderConfig
    layers: Layers  # of its class
    num_outputs: int  # the width of its last layer

    @property
    def labels(self) -> list[str]:
        """The names of its outputs. Raises: UserError: they are not `num_outputs` different ones."""
        ids = [str(index) for index in range(self.num_outputs)]
        names = self.config.get("id2label") or {index: f"LABEL_{index}" for index in ids}
        labels = [str(names.get(index)) for index in ids] if isinstance(names, dict) else []
        if len(set(labels)) != self.num_outputs or names.keys() != set(ids):
            raise UserError(
                f"{self.path}: id2label is {names!r:.80}, expected {self.num_outputs} different labels by their ids, "
                'from "0" on; correct it'
            )
        return labels

    @property
    def dropout(self) -> float:
        """The rate in the head; by default that of the encoder."""
        rate = self.config.get("classifier_dropout")
        return self.encoder.hidden_dropout if rate is None else rate


class TransformersHead(ABC):
    """How the head of a kind is written as one of transformers' classes, and read."""

    ending: str  # of the names of the classes, after the family's
    description: str  # what a model of the class is, for its card
    pipeline: str  # transformers' name for it
    layers: Mapping[str, Layers]  # of the class of each family; empty if transformers has no class
    electra_linear: Layers = {}  # of ELECTRA's class for a head `linear`, where they are others
    noted: tuple[str, ...] = ()  # the settings of the task that config.json has no entry for

    @abstractmethod
    def written(self, config: FinetuningRunConfig, weights: Weights, family: str) -> WrittenHead | str:
        """Returns a trained head for the class of a family; if no class can compute it, a sentence that says why."""

    @abstractmethod
    def settings(self, found: FoundHead) -> dict[str, Any] | None:
        """Returns the settings of the task; None if the head is another kind's. Raises: UserError: it is impossible."""

    def with_noted(self, settings: dict[str, Any], noted: Mapping[str, Any]) -> dict[str, Any]:
        """Returns settings with those that this program noted when it wrote the folder."""
        return settings | {name: noted[name] for name in self.noted if name in noted}


class NoClass(TransformersHead):
    """Of a kind for which transformers has no class. Args: note: a sentence that says so."""

    layers: Mapping[str, Layers] = {}

    def __init__(self, note: str, noted: tuple[str, ...] = ()) -> None:
        self.note, self.noted = note, noted

    def written(self, config: FinetuningRunConfig, weights: Weights, family: str) -> str:
        return self.note

    def settings(self, found: FoundHead) -> None:
        return None
