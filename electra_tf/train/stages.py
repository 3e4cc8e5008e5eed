"""The parts of a training with an input of their own: phases of sequence length, or the one part of a usual run."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.corpus import PretrainingData, open_data
from electra_tf.data.pretraining_input import evaluation_batches, num_evaluation_batches, training_batches
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.train.distribution import require_divisible


@dataclass(frozen=True)
class Stage:
    """The steps after `first_step` up to and with `last_step` of the run, and how they read their input.

    Attributes:
        name: how the configuration calls it, for messages; empty where there is but one.
        config: the run's, with this stage's sequence length and batch size.
        seed: of its input. Batch k of a stage is a function of (the run's seed, the stage, k).
    """

    name: str
    first_step: int
    last_step: int
    config: PretrainingConfig
    seed: int

    @property
    def batch_size(self) -> int:
        return self.config.train.batch_size

    @property
    def evaluation_batch_size(self) -> int:
        return self.config.evaluation.batch_size or self.batch_size

    def require_divisible(self, strategy: tf.distribute.Strategy) -> None:
        """Raises: UserError: unless its batches divide among replicas, and those of the training into micro-batches."""
        parts = self.config.train.gradient_accumulation_steps
        require_divisible(self.batch_size, strategy, f"{self.name or 'train'}.batch_size", parts)
        require_divisible(self.evaluation_batch_size, strategy, "evaluation.batch_size")


@dataclass(frozen=True)
class StageInput:
    """A stage with its open data set. Its functions give one input pipeline's per-replica batches."""

    stage: Stage
    data: PretrainingData
    data_dir: str

    def training(self, first_step: int, context: tf.distribute.InputContext) -> tf.data.Dataset:
        """Endless batches from `first_step` of the run on."""
        return training_batches(
            self.data.train,
            self.stage.config.masking,
            self.data.masking_vocabulary,
            seed=self.stage.seed,
            batch_size=self.stage.batch_size,
            first_step=first_step - self.stage.first_step,
            input_context=context,
        )

    def held_out(self, context: tf.distribute.InputContext) -> tf.data.Dataset:
        """One pass over the held-out split, which must be there."""
        return evaluation_batches(
            self.data.held_out,
            self.stage.config.masking,
            self.data.masking_vocabulary,
            seed=self.stage.seed,
            batch_size=self.stage.evaluation_batch_size,
            max_batches=self.stage.config.evaluation.max_batches,
            input_context=context,
        )

    @property
    def num_evaluation_batches(self) -> int:
        """0 where there is no held-out split."""
        if self.data.held_out is None:
            return 0
        size, longest = self.stage.evaluation_batch_size, self.stage.config.evaluation.max_batches
        return num_evaluation_batches(self.data.held_out, size, longest)


def stages_of(config: PretrainingConfig) -> tuple[Stage, ...]:
    """The stages of a run, one after the other."""
    if not config.stages:
        return (Stage("", 0, config.train.num_steps, config, config.train.seed),)
    stages, first_step = [], 0
    for index, stage in enumerate(config.stages):
        changes = {
            "data": config.data.model_copy(update={"max_seq_length": stage.max_seq_length}),
            "train": config.train.model_copy(update={"batch_size": stage.batch_size}),
        }
        seed = _input_seed(config.train.seed, index)
        last_step = first_step + stage.num_steps
        stages.append(Stage(f"stages.{index}", first_step, last_step, config.model_copy(update=changes), seed))
        first_step = last_step
    return tuple(stages)


def open_stages(stages: Sequence[Stage], data_dirs: Sequence[str | os.PathLike]) -> tuple[StageInput, ...]:
    """Opens the data set of every stage, also of those that are over: better now than after days.

    Raises: UserError: if they are not as many as stages, or one does not fit its stage or the others' tokenizer.
    """
    if len(data_dirs) != len(stages):
        raise UserError(
            f"--data_dir is given {len(data_dirs)} times, the run has {len(stages)} stages; give it once for each, in "
            "their order"
        )
    inputs = tuple(
        StageInput(stage, open_data(data_dir, stage.config), str(data_dir))
        for stage, data_dir in zip(stages, data_dirs, strict=True)
    )
    tokenizers = {(i.data.vocab_content, i.data.lower_case, i.data.strip_accents) for i in inputs}
    if len(tokenizers) > 1:
        raise UserError(
            f"the data sets {', '.join(map(str, data_dirs))} were built with different vocabularies or text settings; "
            "expected one tokenizer for all stages; build them with the same --vocab_file and flags"
        )
    return inputs


def training_stage(stages: Sequence[StageInput], step: int) -> StageInput:
    """The stage whose input comes after `step`; the last one where the run is over."""
    return next((entry for entry in stages if step < entry.stage.last_step), stages[-1])


def evaluation_stage(stages: Sequence[StageInput], step: int) -> StageInput:
    """The stage that `step` was trained in: at a stage's last step that stage, not the next."""
    return next((entry for entry in stages if step <= entry.stage.last_step), stages[-1])


def _input_seed(seed: int, index: int) -> int:
    """The seed of a stage's order and masks: that of the run for the first, so that one stage is a run without any."""
    if index == 0:
        return seed
    digest = hashlib.sha256(f"stage {index} of {seed}".encode()).digest()
    return int.from_bytes(digest[:4], "little") % 2**31
