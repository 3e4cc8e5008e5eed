"""The interfaces between a model that is trained and the code that trains it: `Task` and `Stage`.

Pre-training objectives and fine-tuning tasks are both `Task`s. `electra_tf.train` depends on this file and never on a
particular task.
"""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import numpy.typing as npt
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.schema import RunConfig
from electra_tf.data.batch import Batch
from electra_tf.flops.budget import RunCost
from electra_tf.models.encoder import Encoder
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.random import RandomStream
from electra_tf.tasks.terms import Ratio, Term, Total
from electra_tf.text.vocabulary import StoredTokenizer


class Evaluation(NamedTuple):
    """The result of one pass over a held-out split.

    Attributes:
        metrics: by name; NaN for one without a value.
        outputs: the results of `Task.example_outputs` by name, one array [B, ...] for each batch.
        predictions: of fine-tuning, what `electra_tf.tasks.finetune.data.Predictions` makes of the outputs.
    """

    metrics: dict[str, float]
    outputs: Mapping[str, list[npt.NDArray[Any]]] = MappingProxyType({})
    predictions: Any = None


class Evaluated:
    """Base of tasks and of other uses of their networks, for `electra_tf.train.device_loop.DeviceLoop`."""

    config: RunConfig

    @property
    def xla(self) -> bool | None:
        """Whether steps are compiled as a whole, see `train.xla`."""
        return self.config.train.xla

    def evaluation_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Term]:
        """Losses and metrics of an evaluation batch, each summable over replicas and batches."""
        raise NotImplementedError

    def example_outputs(self, batch: Batch, context: ForwardContext) -> dict[str, tf.Tensor]:
        """Outputs to keep for each example, [B, ...] by name, for metrics that do not sum over batches.

        `Stage.scored` receives them.
        """
        return {}

    def random_stream(self, step: tf.Tensor, first_example: tf.Tensor, name: str = "") -> RandomStream:
        """The random numbers of a step. Args: as for `RandomStream`."""
        return RandomStream(self.config.train.seed, step, first_example, name)


class Task(keras.Model, Evaluated):
    """A Keras model together with the losses it is trained on.

    A subclass defines `encoder`, `loss_weights`, `denominators`, `training_terms`, `evaluation_terms` and
    `empty_batch`. `electra_tf.train.step.compile_task` adds an optimizer and the training step; then `fit` trains it,
    and `electra-tf pretrain` calls the same function.

    Attributes:
        config: the run's settings.
        term_names: the names of the training terms, set by `create_variables`.
    """

    def __init__(self, config: RunConfig, **model_options: Any):
        super().__init__(**model_options)
        self.config = config
        self.term_names: tuple[str, ...] = ()

    @property
    def layer_dtype(self) -> str:
        """The Keras dtype policy of the layers: computation in `train.precision`, variables in float32."""
        return "mixed_bfloat16" if self.config.train.precision == "bfloat16" else "float32"

    @property
    def encoder(self) -> Encoder:
        """The encoder that this task trains and that is exported afterwards."""
        raise NotImplementedError

    @property
    def loss_weights(self) -> dict[str, float]:
        """The factor of each loss in the total loss. A term without a factor is reported but not minimised."""
        raise NotImplementedError

    def denominators(self, batch: Batch) -> dict[str, tf.Tensor]:
        """The denominators of the training terms, by name: scalars float32, computed from the batch alone.

        The step sums them over all replicas and micro-batches before the forward pass.
        """
        raise NotImplementedError

    def training_terms(self, batch: Batch, context: ForwardContext) -> dict[str, Total]:
        """The forward pass of training: each loss and each reported metric, over one of the `denominators`."""
        raise NotImplementedError

    def empty_batch(self) -> Batch:
        """A batch of one short example, used to create the variables."""
        raise NotImplementedError

    def as_ratios(self, batch: Batch, totals: dict[str, Total]) -> dict[str, Ratio]:
        """Training terms with their denominators, for evaluation."""
        denominators = self.denominators(batch)
        return {name: Ratio(total.value, denominators[total.denominator]) for name, total in totals.items()}

    def learning_rate_multiplier(self, variable: keras.Variable) -> float:
        """The factor of a variable's learning rate, for parameter groups."""
        return 1.0

    def phases(self) -> "tuple[Task, ...]":
        """The tasks to train one after the other, with shared networks and one optimizer; usually this task alone."""
        return (self,)

    @property
    def phase_steps(self) -> tuple[int, ...]:
        """The number of optimizer updates of each of the `phases`."""
        return (self.config.train.num_steps,)

    def phase_at(self, step: int) -> "Task":
        """The one of the `phases` that trains a step, counted from 1; after the end of the run the last one."""
        ends = zip(self.phases(), itertools.accumulate(self.phase_steps), strict=True)
        return next((phase for phase, last_step in ends if step <= last_step), self.phases()[-1])

    @property
    def completed_steps(self) -> int:
        """The number of optimizer updates so far, of all phases."""
        return int(self.optimizer.iterations.numpy())  # not `int(iterations)`: a variable of several replicas has none

    @property
    def schedule_steps(self) -> tuple[int, ...]:
        """The number of updates of each part of the schedule; each part has its own warm-up and decay."""
        return (self.config.train.num_steps,)

    @property
    def trained_variables(self) -> list[keras.Variable]:
        """The variables that a step updates."""
        return self.trainable_variables

    @property
    def cost(self) -> RunCost | None:
        """The FLOPs of the run's steps; None if they are unknown."""
        return None

    def headline(self, metrics: Mapping[str, float]) -> dict[str, float | None]:
        """The metrics of a report that a short line shows, and for each the value of a model that has learnt nothing.

        None stands for an unknown value. Here they are the losses; an empty result means all metrics.
        """
        return {name: None for name in self.loss_weights if name in metrics}

    def plateau(self, metrics: dict[str, float]) -> str | None:
        """Why the means of a report show that the run has learnt nothing yet, in one clause; None if they do not."""
        return None

    def verdict(self, metrics: dict[str, float]) -> str | None:
        """One line on a run's result, from the metrics of its last evaluation; None for no line."""
        return None

    def begin(self) -> None:
        """Prepares a phase, for example by copying weights. Must be idempotent: a resumed run repeats it."""

    def adopt_tokenizer(self, tokenizer: StoredTokenizer) -> None:
        """Takes over what follows from the tokenizer alone, before weights are loaded; for training and evaluation."""

    def adopt_data(self, data: Any) -> None:
        """Copies statistics of the training data into the model, before the first step of a run.

        They are kept in non-trainable variables, so that a restored checkpoint needs no data.

        Raises: UserError: if the data lacks them.
        """

    def train_step(self, batch: Batch) -> dict[str, tf.Tensor]:
        """One update in `fit`: by the same function as in a run, `electra_tf.train.step.training_step`."""
        return self._training_step(self, batch)

    def test_step(self, batch: Batch) -> dict[str, tf.Tensor]:
        """The losses in `evaluate`, by `electra_tf.train.step.held_out_step`: means over the batches so far."""
        num_replicas = tf.distribute.get_strategy().num_replicas_in_sync  # each of which counts a batch
        number = tf.cast(self.metrics[0].count.value, tf.int64) // num_replicas
        losses = self._held_out_step(self, batch, number)
        for mean in self.metrics:
            mean.update_state(losses[mean.name])
        return {mean.name: mean.result() for mean in self.metrics}

    @functools.cached_property  # not an attribute that Keras tracks, so that no checkpoint has them
    def metrics(self) -> list[keras.metrics.Mean]:
        """The means of `test_step`, which Keras resets before each epoch and each evaluation."""
        return [keras.metrics.Mean(name) for name in ("loss", *self.term_names)]

    def compile(
        self,
        optimizer: tf.Module,
        training_step: Callable[..., dict[str, tf.Tensor]],
        held_out_step: Callable[..., dict[str, tf.Tensor]],
        **keras_options: Any,
    ) -> None:
        """Sets the optimizer and the steps; called by `compile_task`."""
        super().compile(optimizer=None, **keras_options)
        self.optimizer = optimizer
        self._training_step, self._held_out_step = training_step, held_out_step

    def save(self, *arguments: Any, **options: Any) -> None:
        """Raises: UserError: always; Keras would write a file that it cannot read."""
        raise UserError("Keras could not load this model again; call `save_weights`, or train by electra_tf.pretrain")

    def create_variables(self) -> None:
        """Creates every variable, by one forward pass over `empty_batch`.

        Raises: UserError: Keras would not train a variable, or no checkpoint would have it.
        """
        with tf.GradientTape() as tape:
            loss = tf.add_n([term.value for term in self.name_terms().values()])
        parts = tf.train.TrackableView(self).descendants()
        saved = set(map(id, parts))
        lost = [variable.path for variable in self.weights if id(variable) not in saved]
        copies = tf.distribute.get_strategy().experimental_local_results
        values = [variable.value for variable in self.variables]
        trained = {*map(id, [*self.variables, *values]), *(id(copy) for each in values for copy in copies(each))}
        trainable = (each for each in parts if isinstance(each, tf.Variable | keras.Variable) and each.trainable)
        lost += [each.name for each in trainable if id(each) not in trained]
        read = [each for each in tape.watched_variables() if id(each) not in trained]  # perhaps frozen
        gradients = tape.gradient(loss, read) if read else []
        lost += [f"{each.name} {each.shape}" for each, of in zip(read, gradients, strict=True) if of is not None]
        if lost:
            raise UserError(
                f"{lost[0]} would not be trained, or not be in checkpoints; give layers as attributes or in a tuple, "
                "not in a list, dictionary or other object, and `import keras`, or `add_weight`"
            )

    def name_terms(self) -> Mapping[str, Total]:
        """Sets `term_names`, by one forward pass over `empty_batch`. Returns: its terms."""
        terms = self.training_terms(self.empty_batch(), _creating())
        self.term_names, self.built = tuple(terms), True
        return terms

    def evaluation_metrics(self) -> tuple[str, ...]:
        """The names of `evaluation_terms`, by one forward pass over `empty_batch`."""
        return tuple(self.evaluation_terms(self.empty_batch(), _creating()))


def _creating() -> ForwardContext:
    return ForwardContext(training=False, random=RandomStream(0, 0, 0), creates_variables=True)


class Stage:
    """Consecutive steps of a run: their data, sequence length and batch size, and the task that they train.

    Most runs have one stage.
    """

    name: str  # in the configuration, for messages; empty if there is only one stage
    # The stage has the steps first_step + 1 to last_step.
    first_step: int
    last_step: int
    task: Task  # one of the phases of the run's task; `electra_tf.train.timeline.stages_of` sets it
    batch_size: int  # examples over all replicas
    evaluation_batch_size: int  # likewise
    max_seq_length: int  # the most tokens of an example
    mean_seq_length: int | None = None  # tokens of an example of training, padding included; None: max_seq_length
    num_training_examples: int | None = None  # None: passes over them are not logged
    num_training_tokens: int | None = None  # without padding; None: unknown
    num_evaluation_batches: int = 0  # without a held-out split
    data: Any  # the argument of `Task.adopt_data`
    source: str  # the directory of the data, for messages
    data_hash: str
    hold_out: dict[str, Any] | None = None  # see `electra_tf.data.manifest.Manifest`; None: unknown
    tokenizer: StoredTokenizer
    # Of a source of a mixture: the name for its metrics, its share of the training examples, and the number of its
    # held-out examples that are evaluated.
    source_name: str = ""
    share: float = 1.0
    num_evaluation_examples: int = 0

    def training_batches(self, first_step: int, context: tf.distribute.InputContext) -> tf.data.Dataset:
        """Endless per-replica batches of one input pipeline, from step `first_step` of the run on."""
        raise NotImplementedError

    def evaluation_batches(self, context: tf.distribute.InputContext) -> tf.data.Dataset:
        """Per-replica batches of one pass over the held-out split."""
        raise NotImplementedError

    @property
    def sources(self) -> "Sequence[Stage]":
        """Of a stage that mixes several data sets, the stage of each alone; evaluation reads one after the other."""
        return [self]

    def scored(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation with the metrics that are computed from its outputs."""
        return evaluation
