"""Small sizes, a small vocabulary, random weights, a minimal task, and helper functions for several tests.

`electra_tf.train` does not depend on any objective, so its tests train the minimal task.

python -m tests.toy MODEL_DIR NUM_STEPS [STRATEGY]      trains the task, as electra-tf pretrain trains an objective
"""

import gc
import math
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.cli.process import run_command
from electra_tf.config.schema import RunConfig
from electra_tf.data.batch import prefetched
from electra_tf.models.layers import ForwardContext, seed_initial_values
from electra_tf.models.vocabulary_logits import VocabularyLogits
from electra_tf.tasks.base import Evaluated, Evaluation, Stage, Task
from electra_tf.tasks.finetune.config import FinetuningConfig, resolve
from electra_tf.tasks.terms import Ratio, Total
from electra_tf.text.vocabulary import StoredTokenizer, TextSettings
from electra_tf.train.device_loop import DeviceLoop, first_replica
from electra_tf.train.distribution import build_strategy
from electra_tf.train.evaluation import restore_newest
from electra_tf.train.loop import Run, train
from electra_tf.train.run_directory import RunDirectory
from electra_tf.train.signals import Interrupted, Interruption
from electra_tf.train.start import check_data, continue_from, recorded_start
from electra_tf.train.step import compile_task

VOCAB_SIZE = 47
TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{index}" for index in range(5, VOCAB_SIZE)))
VOCABULARY = "".join(f"{token}\n" for token in TOKENS).encode()  # the content of vocab.txt
ENCODER = {
    "vocab_size": VOCAB_SIZE,
    "embedding_size": 12,
    "hidden_size": 16,
    "num_layers": 1,
    "num_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 13,
}
# Two layers, of which the second computes its attention in blocks of 2 tokens.
MODERN = {"block": "modern", "num_layers": 2, "global_attention_every_n_layers": 2, "local_attention": 4}
EQUAL_SIZES = {"size_fraction": 1.0, "num_heads": None, "intermediate_size": None}  # of a generator
TOKENIZER = StoredTokenizer(b"[PAD]\n[UNK]\n", TextSettings(strip_accents=False))


def collect_garbage() -> None:
    """As `gc.collect`, which does nothing as long as another thread collects; skips the test if that does not end.

    Seen: an iterator of tf.data that another thread collected waited for a minute; once a collection never ended.
    """
    cycle = type("Cycle", (), {})()
    cycle.itself, garbage = cycle, weakref.ref(cycle)
    del cycle
    deadline = time.monotonic() + 20
    while not gc.collect() and garbage() is not None:
        if time.monotonic() > deadline:
            pytest.skip("another thread of this process collects garbage and does not end")
        time.sleep(0.01)


def randomize(named: Mapping[str, tf.Variable], seed: int) -> dict[str, np.ndarray]:
    """Gives variables random weights as large as trained ones, so that a swapped axis or a missing bias is noticed."""
    random = np.random.default_rng(seed)
    for name, variable in sorted(named.items()):  # the same weights for any order of `named`
        mean, deviation = 0.0, 0.1
        if name.endswith("kernel"):
            deviation = variable.shape[0] ** -0.5
        elif name.endswith("gamma"):
            mean, deviation = 1.0, 0.15
        variable.assign(random.normal(mean, deviation, variable.shape))
    return {name: variable.numpy() for name, variable in named.items()}


def toy_config(**groups: dict) -> RunConfig:
    """A run of 8 steps: reports every 2, checkpoints and evaluations every 4, milestones at 2, 3 and 8."""
    fractions = (0.25, 0.375, 1.0)
    values = {
        "encoder": ENCODER,  # a run needs them; the toy has none
        "data": {"max_seq_length": 10},
        "optimizer": {"learning_rate": 0.05, "warmup_steps": 0},
        "train": {"num_steps": 8, "batch_size": 4, "log_every_steps": 2, "save_every_steps": 4},
        "evaluation": {"every_steps": 4},
    }
    values["train"] |= {"keep_checkpoints": 2, "milestone_fractions": fractions, "alarm_after_steps": 0}
    for name, changes in groups.items():
        values[name] = values.get(name, {}) | changes
    return RunConfig.model_validate(values)


def toy_finetuning_config(task: dict, num_rows: int = 10, **groups: dict) -> FinetuningConfig:
    """Fine-tuning of the toy's encoder on `num_rows` examples of 12 tokens, for 2 epochs."""
    encoder = toy_config(encoder=groups.pop("encoder", {})).encoder
    sizes = {"num_epochs": 2, "max_seq_length": 12, "num_rows": num_rows}
    return resolve(groups, "a test", name="made_up", task=task, encoder=encoder, init_from=None, **sizes)


class Regression(Task):
    """Learns the sum of each example's numbers from a noisy copy: 6 inputs, 3 hidden units, 1 output."""

    before_step: Callable[[int], None] | None = None  # called on the host in each step with the number of those before
    num_hidden = 3

    def __init__(self, config: RunConfig):
        super().__init__(config)
        self.hidden = keras.layers.Dense(self.num_hidden, name="hidden")
        self.output_layer = keras.layers.Dense(1, name="output")

    @property
    def loss_weights(self):
        return {"squared_error": 1.0}

    def denominators(self, batch):
        return {"examples": tf.cast(tf.shape(batch["input_ids"])[0], tf.float32)}

    def training_terms(self, batch, context):
        if self.before_step is not None and not context.creates_variables:
            done = tf.convert_to_tensor(self.optimizer.iterations)
            tf.py_function(lambda done: (self.before_step(int(done)), [])[1], [done], [])
        noise = context.random.fold_in("noise").uniform(tf.shape(batch["input_ids"])[0], (6,))
        error = self._error(batch["input_ids"] + 0.1 * noise, batch)
        return {"squared_error": Total(error, "examples"), "noise": Total(tf.reduce_sum(noise), "examples")}

    def evaluation_terms(self, batch, context):
        return {"squared_error": Ratio(self._error(batch["input_ids"], batch), self.denominators(batch)["examples"])}

    def empty_batch(self):
        return {"input_ids": tf.zeros([1, 6])}

    def _error(self, inputs, batch):
        prediction = self.output_layer(self.hidden(inputs))[:, 0]
        return tf.reduce_sum(tf.square(prediction - tf.reduce_sum(batch["input_ids"], axis=1)))


class ToyStage(Stage):
    """Batches of random numbers; batch k is a function of (seed, k).

    Args: nan_steps: the batches of training that hold NaN, from 0.        changes: other values of the attributes.
    """

    name, source, data_hash, data, tokenizer = "", "toy", "toy-1", None, TOKENIZER
    first_step, max_seq_length, num_training_examples = 0, 6, 1000

    def __init__(self, config: RunConfig, num_evaluation_batches: int = 2, nan_steps: tuple[int, ...] = (), **changes):
        self.last_step, self.batch_size = config.train.num_steps, config.train.batch_size
        self.evaluation_batch_size, self.num_evaluation_batches = self.batch_size, num_evaluation_batches
        self._nan_steps = tf.constant(nan_steps, tf.int64)
        for name, value in changes.items():
            setattr(self, name, value)

    def training_batches(self, first_step, context):
        return self._batches(tf.data.Dataset.counter(first_step), 3, context)

    def evaluation_batches(self, context):
        return self._batches(tf.data.Dataset.range(self.num_evaluation_batches), 7, context)

    def _batches(self, numbers, seed, context):
        def batch(number):
            values = tf.random.stateless_uniform([self.batch_size, 6], tf.stack([tf.constant(seed, tf.int64), number]))
            bad = tf.logical_and(seed == 3, tf.reduce_any(number == self._nan_steps))
            return {"input_ids": tf.where(bad, float("nan"), values)}

        rows = context.get_per_replica_batch_size(self.batch_size)
        return prefetched(numbers.map(batch).unbatch().batch(rows, drop_remainder=True))


def toy_run(config: RunConfig, model_dir: os.PathLike | str, strategy=None) -> Run:
    """A run, on one CPU device if no strategy is given."""
    return Run(config, RunDirectory(model_dir), strategy or tf.distribute.OneDeviceStrategy("CPU:0"))


def built(run: Run, task=Regression) -> Task:
    """The task of a run with its initial weights."""
    seed_initial_values(run.config.train.seed)
    with run.strategy.scope():
        model = task(run.config)
        model.create_variables()
        return compile_task(model)


def train_toy(
    run: Run, stages=None, task=Regression, init_from=None, with_optimizer=False, initialize=None, **options
) -> Evaluation:
    """Trains a run of a task, as `electra_tf.pretrain` does.

    Args: stages: None: a `ToyStage`.        initialize: (task, init_from, tokenizer) -> lines for the log.
    """
    stages = stages or [ToyStage(run.config)]
    with run.opened(stages) as is_new:
        start = recorded_start(run.directory, is_new, init_from, with_optimizer)
        model = built(run, task)
        begin = continue_from if start.with_optimizer else initialize
        if is_new:
            report = begin(model, start.init_from, stages[0].tokenizer) if begin else []
            check_data(stages, start.init_from, None if start.with_optimizer else run.config.train.seed)
            start = start._replace(report=report)
        return train(run, DeviceLoop(model, run.strategy), stages, start=start, **options)


def evaluate_toy(run: Run, stages) -> dict:
    """The metrics of a run's newest checkpoint, as `electra_tf.evaluate` gives them."""
    step, stage = restore_newest(run.directory, built(run), stages)
    return {"step": step, **DeviceLoop(stage.task, run.strategy).evaluate(stage).metrics}


def step_on_replicas(strategy: tf.distribute.Strategy, step: Callable, batch: dict[str, tf.Tensor]):
    """The first replica's result of a step on every replica's slice of a batch.

    Args: step: a `tf.function`: without one the replicas' threads may reach their sums in different orders.
    """

    def share(context: tf.distribute.experimental.ValueContext) -> dict[str, tf.Tensor]:
        size = len(batch["input_ids"]) // context.num_replicas_in_sync
        first = size * context.replica_id_in_sync_group
        return {name: values[first : first + size] for name, values in batch.items()}

    shares = strategy.experimental_distribute_values_from_function(share)
    return first_replica(strategy, strategy.run(step, args=(shares,)))


def main(model_dir: str, num_steps: str, strategy: str = "one_device") -> int:
    """Trains the toy task, with a report every 7 steps and a checkpoint every 10. Returns: the exit status."""
    periods = {"num_steps": int(num_steps), "log_every_steps": 7, "save_every_steps": 10}
    config = toy_config(train={**periods, "milestone_fractions": (1.0,)}, evaluation={"every_steps": 0})
    with Interruption() as interruption:
        try:
            run = toy_run(config, model_dir, build_strategy(strategy))
            return run_command(lambda: train_toy(run, interruption=interruption))
        except Interrupted as interrupted:
            return interrupted.exit_code


def logits_of(logits) -> VocabularyLogits:
    """Wraps given logits, [B, M, V], in the type that a network returns."""
    logits = tf.convert_to_tensor(logits, tf.float32)
    return VocabularyLogits(logits, tf.eye(logits.shape[-1]), tf.zeros([logits.shape[-1]]))


def certain(token_ids, vocab_size: int = 47) -> VocabularyLogits:
    """The logits of a generator that gives each of these tokens all of the probability."""
    return logits_of(100.0 * tf.one_hot(token_ids, vocab_size))


def log_softmax(logits) -> np.ndarray:
    """Log-softmax over the last axis, in float64."""
    logits = np.asarray(logits, np.float64)
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def training_values(task: Task, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, float]:
    """The training terms, each divided by its denominator."""
    ratios = task.as_ratios(batch, task.training_terms(batch, context))
    return {name: ratio.value() for name, ratio in ratios.items()}


def evaluation_values(task: Evaluated, batch: dict[str, tf.Tensor], context: ForwardContext) -> dict[str, float]:
    """The evaluation terms, each divided by its denominator."""
    return {name: term.value() for name, term in task.evaluation_terms(batch, context).items()}


def gelu(values) -> np.ndarray:
    return values * 0.5 * (1.0 + np.vectorize(math.erf)(values / math.sqrt(2.0)))


def softplus(value: float) -> float:
    return math.log1p(math.exp(value))


def follows(drawn: np.ndarray, masses) -> bool:
    """Whether tokens were drawn in these proportions: chi-squared is at most five deviations above its mean."""
    expected = drawn.size * np.array(masses, np.float64) / np.sum(masses)
    counts, possible = np.bincount(drawn.ravel(), minlength=len(expected)), expected > 0
    assert not counts[~possible].any()
    degrees = np.count_nonzero(possible) - 1
    chi_squared = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    return bool(chi_squared < degrees + 5 * math.sqrt(2 * degrees))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
