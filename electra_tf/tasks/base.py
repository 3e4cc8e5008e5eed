"""What every pre-training objective has in common."""

import tensorflow as tf
import tf_keras

from electra_tf.data.batch import empty_batch
from electra_tf.data.corpus import PretrainingData
from electra_tf.models.context import ForwardContext
from electra_tf.models.encoder import Encoder
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.terms import Ratio, Term

PRECISION_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


class Objective(tf_keras.Model):
    """A Keras model together with the losses it is trained on.

    A subclass gives the four things below and is otherwise an ordinary Keras model: `compile` it with
    `electra_tf.train.step.compile_objective` and call `fit`, or let `run_pretraining.py` drive the same `train_step`.

    Batches are mappings of the tensors that `electra_tf.data.masking.mask_batch` returns.
    """

    def __init__(self, config: PretrainingConfig, **model_options):
        super().__init__(**model_options)
        self.config = config

    @property
    def encoder(self) -> Encoder:
        """The network that is kept after pre-training."""
        raise NotImplementedError

    @property
    def loss_weights(self) -> dict[str, float]:
        """The factor of each loss term in the total loss. A term that is not named here is watched, not minimised."""
        raise NotImplementedError

    def loss_terms(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, Ratio]:
        """The forward pass of training: each loss, and what else is to be reported, not yet divided."""
        raise NotImplementedError

    def evaluation_terms(self, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, Term]:
        """Losses and metrics of an evaluation batch, each summable over replicas and batches."""
        raise NotImplementedError

    def term_weights(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The weight of each term, from the batch alone: known, and summed, before the forward pass."""
        raise NotImplementedError

    def call(self, inputs: dict[str, tf.Tensor]):
        """Inference on `input_ids`, `input_mask`, `segment_ids` ([B, S] int32): the encoder's `EncoderOutput`."""
        return self.encoder(inputs["input_ids"], input_mask=inputs["input_mask"], segment_ids=inputs["segment_ids"])

    @property
    def phases(self) -> tuple["Objective", ...]:
        """The objectives that are trained one after the other, on networks and with an optimizer that they share.

        One for each entry of `config.objective.phases(config)`, which says for how long; usually this one alone.
        """
        return (self,)

    @property
    def trained_variables(self) -> list[tf.Variable]:
        """What a step updates; of everything else neither weights nor moments change."""
        return self.trainable_variables

    def begin(self) -> None:
        """Takes over weights from the phase before this one.

        Called before the first step of a phase, and again by a run that was killed between the two: what it sets must
        follow from what it leaves as it is.
        """

    def adopt_data(self, data: PretrainingData) -> None:
        """Takes what the model has to know of the data it will be trained on. Called before a run's first step.

        (By `run_pretraining.py`; who calls `fit` calls this before.)

        It belongs in variables that are not trained: a checkpoint has it, and whoever restores one needs no data.

        Raises: UserError: if the data does not tell.
        """

    def train_step(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """One update; the same function under `fit` and under `run_pretraining.py`. See `electra_tf.train.step`."""
        return self._training_step(self, batch)

    def compile(self, optimizer, training_step, **keras_options):
        """Gives the objective its optimizer and the step that applies it; called by `compile_objective`."""
        super().compile(optimizer=optimizer, **keras_options)
        self._training_step = training_step

    def create_variables(self) -> None:
        """Creates every variable by one forward pass over a batch of a single empty example."""
        batch = empty_batch(1, min(8, self.config.encoder.max_position_embeddings), max_predictions=1)
        self.loss_terms(batch, ForwardContext(training=False, random=RandomStream(0, 0, 0)))
        self.built = True
