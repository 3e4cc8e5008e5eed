"""The base of every pre-training objective, and the registry that finds them by name."""

from collections.abc import Callable, Mapping
from typing import Any, get_args

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.batch import PRETRAINING_BATCH, Batch, mask_and_segments
from electra_tf.flops.budget import RunCost
from electra_tf.models.encoder import EncoderOutput
from electra_tf.models.layers import ForwardContext
from electra_tf.tasks.base import Evaluated, Task
from electra_tf.tasks.pretrain.config import OBJECTIVE_SETTINGS, ObjectiveSettings, PretrainingConfig
from electra_tf.tasks.pretrain.health import baselines, plateau_problem, plateau_verdict
from electra_tf.tasks.terms import Term, Total, count_of
from electra_tf.text.vocabulary import StoredTokenizer

OBJECTIVES: "dict[str, type[Objective]]" = {}


class Objective(Task):
    """A pre-training task. Its batches are those of `electra_tf.data.batch`.

    A subclass defines `encoder`, `forward`, `loss_totals` and its own metrics, and is registered by
    `register_objective`. See "Adding an objective" in docs/objectives.md.
    """

    config: PretrainingConfig  # its `objective` group has the settings class that the objective registered

    def call(self, inputs: Batch) -> EncoderOutput:
        """Inference on `input_ids`, `input_mask`, `segment_ids` ([B, S] int32): the encoder's `EncoderOutput`."""
        return self.encoder(inputs["input_ids"], **mask_and_segments(inputs))

    @property
    def loss_weights(self) -> dict[str, float]:
        return self.config.objective.loss_weights

    def denominators(self, batch: Batch) -> dict[str, tf.Tensor]:
        """The numbers of selected tokens (`masked_tokens`), tokens shown as [MASK] (`mask_tokens`) and real tokens."""
        return {
            "masked_tokens": count_of(batch["masked_lm_weights"]),
            "mask_tokens": count_of(batch["mask_token_weights"]),
            "tokens": count_of(batch["input_mask"]),
        }

    def forward(self, batch: Batch, context: ForwardContext) -> Any:
        """The results of one forward pass, for the three methods below."""
        raise NotImplementedError

    def loss_totals(self, batch: Batch, forward: Any) -> dict[str, Total]:
        """The losses. Evaluation reports each as `NAME_loss`."""
        raise NotImplementedError

    def extra_metrics(self, batch: Batch, forward: Any) -> dict[str, Total]:
        """The metrics besides the losses, reported in training and in evaluation."""
        return {}

    def held_out_metrics(self, batch: Batch, forward: Any, context: ForwardContext) -> dict[str, Term]:
        """The metrics that only evaluation reports; they replace extra metrics of the same name."""
        return {}

    def training_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Total]:
        forward = self.forward(batch, context)
        return {**self.loss_totals(batch, forward), **self.extra_metrics(batch, forward)}

    def evaluation_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Term]:
        forward = self.forward(batch, context)
        losses = self.as_ratios(batch, self.loss_totals(batch, forward))
        return {
            **{f"{name}_loss": ratio for name, ratio in losses.items()},
            **self.as_ratios(batch, self.extra_metrics(batch, forward)),
            **self.held_out_metrics(batch, forward, context),
        }

    def as_masked_lm(self) -> Evaluated:
        """The objective as a masked language model, see `electra_tf.tasks.pretrain.as_masked_lm`.

        Raises: UserError: if it is none.
        """
        raise UserError(
            f"as_masked_lm: objective.name {self.config.objective.name!r} is neither a masked language model nor a "
            "generator with a discriminator; give a run of electra or bert_mlm"
        )

    def empty_batch(self) -> Batch:
        return PRETRAINING_BATCH.empty(1, S=min(8, self.config.encoder.max_position_embeddings), M=1)

    def adopt_tokenizer(self, tokenizer: StoredTokenizer) -> None:
        for layer in tf.train.TrackableView(self).descendants():
            if hasattr(layer, "adopt_num_tokens"):
                layer.adopt_num_tokens(len(tokenizer.tokens))

    @property
    def cost(self) -> RunCost:
        return RunCost(self.config)

    def headline(self, metrics: Mapping[str, float]) -> dict[str, float | None]:
        """The losses, and in an evaluation the areas under ROC curves."""
        compared, shown = baselines(self.config, metrics), {}
        for loss, weight in self.loss_weights.items():
            name, baseline = compared.get(loss, (loss if loss in metrics else f"{loss}_loss", None))
            if weight and name in metrics:
                shown[name] = baseline
        return {**shown, **{name: None for name in metrics if name.endswith("_auc")}}

    def plateau(self, metrics: dict[str, float]) -> str | None:
        return plateau_problem(self.config, metrics)

    def verdict(self, metrics: dict[str, float]) -> str | None:
        return plateau_verdict(self.config, metrics)


def register_objective(settings: type[ObjectiveSettings]) -> Callable[[type[Objective]], type[Objective]]:
    """A class decorator that registers an objective under the `name` of its settings.

    The modules of `electra_tf.tasks.pretrain` are imported with the package; `--objective_module` names one outside it.

    Raises: ValueError: if the name is taken.
    """
    (name,) = get_args(settings.model_fields["name"].annotation)

    def register(objective: type[Objective]) -> type[Objective]:
        if name in OBJECTIVES:
            raise ValueError(f"objective {name!r} is already registered, by {OBJECTIVES[name].__name__}; rename one")
        OBJECTIVES[name], OBJECTIVE_SETTINGS[name] = objective, settings
        return objective

    return register


def build_objective(config: PretrainingConfig) -> Objective:
    """The objective that `config.objective.name` names, with its variables created."""
    objective = OBJECTIVES[config.objective.name](config, name=config.objective.name)
    objective.create_variables()
    return objective
