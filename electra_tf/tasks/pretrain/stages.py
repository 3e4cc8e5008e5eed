"""The input of a pre-training run: its stages, each with its own data set, sequence length and batch size."""

import copy
import hashlib
import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import MaskingConfig
from electra_tf.data.corpus import PretrainingData
from electra_tf.data.mixture import DataDir, open_mixture, require_same_tokenizer
from electra_tf.data.pretraining_input import evaluation_batches, num_evaluation_batches, training_batches
from electra_tf.tasks.base import Stage
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.objective import Objective

_logger = logging.getLogger(__name__)


class PretrainingStage(Stage):
    """A stage as the configuration describes it; `opened` gives it its data set.

    Attributes:
        index: its number among `PretrainingConfig.all_stages`.
        config: the run's settings, with this stage's sequence length, batch size and masking.
        seed: the seed of the input. Batch k of a stage is a function of (the run's seed, the stage, k).
        evaluation_masking: masks the share of the end of the run at all steps, so that held-out losses compare.
    """

    data: PretrainingData
    task: Objective

    def __init__(self, run: PretrainingConfig, index: int):
        stage, micro_batches = run.all_stages[index], run.train.gradient_accumulation_steps
        self.index, self.name = index, f"stages.{index}" if run.stages else ""
        self.batch_size, self.max_seq_length = stage.batch_size, stage.max_seq_length
        self.config = run.model_copy(
            update={
                "data": run.data.model_copy(update={"max_seq_length": stage.max_seq_length}),
                "train": run.train.model_copy(update={"batch_size": stage.batch_size}),
                "masking": run.stage_maskings[index],
            }
        )
        self.first_step = self.num_steps_before
        self.last_step = self.first_step + stage.num_steps
        self.seed, self.evaluation_masking = _input_seed(run.train.seed, index), run.masking.between(1.0, 1.0)
        self.evaluation_batch_size, self.max_evaluation_batches = run.evaluation.batch_size, run.evaluation.max_batches
        if self.evaluation_batch_size is None:  # the memory that suffices for a micro-batch of training
            self.evaluation_batch_size = self.batch_size // micro_batches
            self.max_evaluation_batches *= micro_batches

    @property
    def num_steps_before(self) -> int:
        """The steps before the whole stage, also where `first_step` and `last_step` are those of one phase in it."""
        return sum(stage.num_steps for stage in self.config.stages[: self.index])

    def opened(self, data: PretrainingData) -> "PretrainingStage":
        """The stage with its data set."""
        stage = copy.copy(self)
        stage.data, stage.source, stage.data_hash = data, data.directory, data.data_hash
        stage.tokenizer, stage.num_training_examples = data.tokenizer, data.train.total_examples
        stage.num_training_tokens = None if data.token_counts is None else int(data.token_counts.sum())
        stage.num_evaluation_batches = num_evaluation_batches(
            data, self.evaluation_batch_size, self.max_evaluation_batches
        )
        num_held_out = data.held_out.total_examples if data.held_out else 0
        stage.num_evaluation_examples = min(stage.num_evaluation_batches * self.evaluation_batch_size, num_held_out)
        stage.hold_out, stage.source_name, stage.share = data.hold_out, data.name, data.share
        return stage

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
                    + " ".join(f"{name}={advised}" for name in settings)
                )

    @property
    def sources(self) -> "Sequence[PretrainingStage]":
        return [self.opened(part) for part in self.data.parts] or [self]

    def sizes(self) -> dict[str, Any]:
        """What the data has, for `--dry_run`; `tokens` is None of records of the authors' builder."""
        held_out = self.data.held_out.total_examples if self.data.held_out else 0
        sizes = {"shards": len(self.data.train.files), "examples": self.num_training_examples}
        return {"source": self.source, **sizes, "tokens": self.num_training_tokens, "held_out_examples": held_out}

    def training_batches(self, first_step: int, context: tf.distribute.InputContext) -> tf.data.Dataset:
        return training_batches(
            self.data,
            self.config.masking,
            seed=self.seed,
            batch_size=self.batch_size,
            first_step=first_step - self.num_steps_before,
            num_steps=self.config.all_stages[self.index].num_steps,
            input_context=context,
        )

    def evaluation_batches(self, context: tf.distribute.InputContext) -> tf.data.Dataset:
        return evaluation_batches(
            self.data,
            self.evaluation_masking,
            seed=self.seed,
            batch_size=self.evaluation_batch_size,
            max_batches=self.max_evaluation_batches,
            input_context=context,
        )

    def with_all_tokens_masked(self) -> "PretrainingStage":
        """The stage with every held-out token masked, in an order independent of the run's other settings.

        Two runs on the same data and with the same evaluation batch, for example ELECTRA and BERT, predict the same
        tokens.
        """
        settings, stage = self.config.evaluation.as_masked_lm, copy.copy(self)
        stage.seed = settings.seed
        stage.evaluation_masking = MaskingConfig(masked_fraction=1.0, mask_token_fraction=1.0)
        stage.max_evaluation_batches = -(-settings.max_examples // self.evaluation_batch_size)
        return stage.opened(self.data)


def plan_stages(config: PretrainingConfig) -> tuple[PretrainingStage, ...]:
    """The stages of a run in order, without their data; see `open_stages`."""
    return tuple(PretrainingStage(config, index) for index in range(len(config.all_stages)))


def open_fitting_data(data_dir: DataDir, config: PretrainingConfig) -> PretrainingData:
    """Opens a data set or a mixture.

    Raises: UserError: as `open_mixture`; and if examples are packed, but the objective has one output for an example.
    """
    data, phases = open_mixture(data_dir, config), config.objective.phase_costs(config)
    heads = (head for phase in phases for network in phase.passes for head in network.heads)
    if data.is_packed and any(head.positions == "first" for head in heads):
        raise UserError(
            f"{data.directory} has packed examples, but objective.name {config.objective.name!r} reads only the first"
            " [CLS] of each; build the data set with examples=carry"
        )
    return data


def open_stages(config: PretrainingConfig, data_dirs: Sequence[DataDir]) -> tuple[PretrainingStage, ...]:
    """Opens the data of every stage, also of finished ones, so that mistakes are found at the start.

    Args:
        data_dirs: for each stage the output of `electra-tf build-data` or of the authors' builder, or a mixture.
    Raises: UserError: if their number is wrong, or one does not fit its stage or has another tokenizer.
    """
    stages = plan_stages(config)
    if len(data_dirs) != len(stages):
        raise UserError(
            f"data_dir is given {len(data_dirs)} times, but the run has {len(stages)} stages; give one for each, in "
            "their order" + " (several for one stage: DIR:WEIGHT,DIR:WEIGHT)" * (len(data_dirs) > len(stages))
        )
    data = [open_fitting_data(data_dir, stage.config) for stage, data_dir in zip(stages, data_dirs, strict=True)]
    require_same_tokenizer(data)
    stages = tuple(stage.opened(each) for stage, each in zip(stages, data, strict=True))
    for stage in stages:
        if not stage.num_evaluation_batches:
            _logger.warning(
                "warning: %s has no held-out text: no held-out metrics, and no verdict whether the run learns; build it"
                " with a larger held_out_fraction",
                stage.source,
            )
    return stages


def _input_seed(seed: int, index: int) -> int:
    """The seed of a stage's order and masks; the first stage has the run's seed, like a run without stages."""
    if index == 0:
        return seed
    digest = hashlib.sha256(f"stage {index} of {seed}".encode()).digest()
    return int.from_bytes(digest[:4], "little") % 2**31
