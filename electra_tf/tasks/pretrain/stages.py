"""The input of a pre-training run: its stages, each with its own data set, sequence length and batch size."""

import hashlib
import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import MaskingConfig
from electra_tf.data.corpus import PretrainingData
from electra_tf.data.mixture import DataDir, open_mixture, require_same_tokenizer
from electra_tf.data.pretraining_input import evaluation_batches, num_evaluation_batches, training_batches
from electra_tf.tasks.base import InputStage
from electra_tf.tasks.pretrain.config import PretrainingConfig

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StagePlan:
    """One input stage as the configuration describes it.

    Attributes:
        name, first_step, last_step: see `InputStage`.
        config: the run's settings, with this stage's sequence length, batch size and masking.
        seed: the seed of the input. Batch k of a stage is a function of (the run's seed, the stage, k).
        evaluation_masking: masks the share of the end of the run at all steps, so that held-out losses compare.
    """

    name: str
    first_step: int
    last_step: int
    config: PretrainingConfig
    seed: int
    evaluation_masking: MaskingConfig

    @property
    def batch_size(self) -> int:
        return self.config.train.batch_size

    @property
    def evaluation_batch_size(self) -> int:
        # The memory that suffices for a micro-batch of training.
        return self.config.evaluation.batch_size or self.batch_size // self.config.train.gradient_accumulation_steps

    @property
    def max_evaluation_batches(self) -> int:
        micro_batches = 1 if self.config.evaluation.batch_size else self.config.train.gradient_accumulation_steps
        return self.config.evaluation.max_batches * micro_batches

    def require_divisible(self, num_replicas: int) -> None:
        """Raises: UserError: unless batches divide among replicas, and training batches into micro-batches."""
        micro_batches = self.config.train.gradient_accumulation_steps
        names = [f"{self.name or 'train'}.batch_size"]
        if self.name and self.last_step == self.config.train.num_steps:
            names.append("train.batch_size")  # must equal the last stage's
        for settings, size, parts in (
            (names, self.batch_size, num_replicas * micro_batches),
            (["evaluation.batch_size"], self.evaluation_batch_size, num_replicas),
        ):
            if size % parts:
                each = f" with {micro_batches} micro-batches each" if parts > num_replicas else ""
                advised = max(parts, size // parts * parts)
                raise UserError(
                    f"{settings[0]} is {size}, which does not divide among {num_replicas} replicas{each}; give "
                    + " ".join(f"--set {name}={advised}" for name in settings)
                )


class PretrainingStage(InputStage):
    """A planned stage with its open data set: see `InputStage`."""

    def __init__(self, plan: StagePlan, data: PretrainingData):
        self.plan, self.data = plan, data
        self.name, self.first_step, self.last_step = plan.name, plan.first_step, plan.last_step
        self.batch_size, self.evaluation_batch_size = plan.batch_size, plan.evaluation_batch_size
        self.max_seq_length = plan.config.data.max_seq_length
        self.num_training_examples = data.train.total_examples
        self.num_training_tokens = None if data.token_counts is None else int(data.token_counts.sum())
        self.num_evaluation_batches = num_evaluation_batches(
            data, plan.evaluation_batch_size, plan.max_evaluation_batches
        )
        num_held_out = data.held_out.total_examples if data.held_out else 0
        self.num_evaluation_examples = min(self.num_evaluation_batches * plan.evaluation_batch_size, num_held_out)
        self.source, self.data_hash, self.tokenizer = data.directory, data.data_hash, data.tokenizer
        self.hold_out, self.source_name, self.share = data.hold_out, data.name, data.share

    @property
    def sources(self) -> "Sequence[PretrainingStage]":
        return [PretrainingStage(self.plan, part) for part in self.data.parts] or [self]

    def sizes(self) -> dict[str, Any]:
        """What the data has, for `--dry_run`; `tokens` is None of records of the authors' builder."""
        held_out = self.data.held_out.total_examples if self.data.held_out else 0
        sizes = {"shards": len(self.data.train.files), "examples": self.num_training_examples}
        return {"source": self.source, **sizes, "tokens": self.num_training_tokens, "held_out_examples": held_out}

    def training_batches(self, first_step: int, context: tf.distribute.InputContext) -> tf.data.Dataset:
        return training_batches(
            self.data,
            self.plan.config.masking,
            seed=self.plan.seed,
            batch_size=self.batch_size,
            first_step=first_step - self.first_step,
            num_steps=self.last_step - self.first_step,
            input_context=context,
        )

    def evaluation_batches(self, context: tf.distribute.InputContext) -> tf.data.Dataset:
        return evaluation_batches(
            self.data,
            self.plan.evaluation_masking,
            seed=self.plan.seed,
            batch_size=self.evaluation_batch_size,
            max_batches=self.plan.max_evaluation_batches,
            input_context=context,
        )


def plan_stages(config: PretrainingConfig) -> tuple[StagePlan, ...]:
    """The stages of a run in order."""
    at_end = config.masking.between(1.0, 1.0)
    if not config.stages:
        return (StagePlan("", 0, config.train.num_steps, config, config.train.seed, at_end),)
    ends = itertools.accumulate((stage.num_steps for stage in config.stages), initial=0)
    return tuple(
        StagePlan(
            f"stages.{index}",
            *span,
            config.model_copy(
                update={
                    "data": config.data.model_copy(update={"max_seq_length": stage.max_seq_length}),
                    "train": config.train.model_copy(update={"batch_size": stage.batch_size}),
                    "masking": config.stage_maskings[index],
                }
            ),
            _input_seed(config.train.seed, index),
            at_end,
        )
        for index, (stage, span) in enumerate(zip(config.stages, itertools.pairwise(ends), strict=True))
    )


def open_fitting_data(data_dir: DataDir, config: PretrainingConfig) -> PretrainingData:
    """Opens a data set or a mixture.

    Raises: UserError: as `open_mixture`; and if examples are packed, but the objective has one output for an example.
    """
    data, phases = open_mixture(data_dir, config), config.objective.phases(config)
    heads = (head for phase in phases for network in phase.passes for head in network.heads)
    if data.is_packed and any(head.positions == "first" for head in heads):
        raise UserError(
            f"{data.directory} has packed examples, but objective.name {config.objective.name!r} reads only the first"
            " [CLS] of each; build the data set with --examples=carry"
        )
    return data


def open_stages(config: PretrainingConfig, data_dirs: Sequence[DataDir]) -> tuple[PretrainingStage, ...]:
    """Opens the data of every stage, also of finished ones, so that mistakes are found at the start.

    Args:
        data_dirs: for each stage the output of `electra-tf build-data` or of the authors' builder, or a mixture.
    Raises: UserError: if their number is wrong, or one does not fit its stage or has another tokenizer.
    """
    plans = plan_stages(config)
    if len(data_dirs) != len(plans):
        raise UserError(
            f"--data_dir is given {len(data_dirs)} times, but the run has {len(plans)} stages; give one for each, in "
            "their order" + " (several for one stage: DIR:WEIGHT,DIR:WEIGHT)" * (len(data_dirs) > len(plans))
        )
    data = [open_fitting_data(data_dir, plan.config) for plan, data_dir in zip(plans, data_dirs, strict=True)]
    require_same_tokenizer(data)
    stages = tuple(map(PretrainingStage, plans, data))
    for stage in stages:
        if not stage.num_evaluation_batches:
            _logger.warning(
                "warning: %s has no held-out text: no held-out metrics, and no verdict whether the run learns; build it"
                " with a larger --held_out_fraction",
                stage.source,
            )
    return stages


def _input_seed(seed: int, index: int) -> int:
    """The seed of a stage's order and masks; the first stage has the run's seed, like a run without stages."""
    if index == 0:
        return seed
    digest = hashlib.sha256(f"stage {index} of {seed}".encode()).digest()
    return int.from_bytes(digest[:4], "little") % 2**31
