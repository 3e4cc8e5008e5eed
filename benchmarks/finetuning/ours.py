"""Our contender: the loops and batches of `electra-tf finetune` on tokenized examples."""

import numpy as np

from benchmarks.finetuning.examples import Examples, load
from benchmarks.train_step.ours import limit_threads
from benchmarks.worker import Commands
from electra_tf.config.networks import EncoderConfig
from electra_tf.data.bucketing import Features, padded_batches, padded_lengths
from electra_tf.models.layers import seed_initial_values
from electra_tf.tasks.finetune.config import resolve
from electra_tf.tasks.finetune.data import FinetuningStage, Predictions, TaskData
from electra_tf.tasks.finetune.kind import Outputs
from electra_tf.tasks.finetune.kinds import KINDS, build_finetuning_task
from electra_tf.text.vocabulary import Vocabulary
from electra_tf.text.wordpiece import BertTokenizer
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.distribution import build_strategy
from electra_tf.train.metrics import metric_names
from electra_tf.train.step import compile_task


class _Data(TaskData):
    """Examples whose metric is the accuracy."""

    primary_metric, metric_names, source = "accuracy", ("accuracy", "loss"), "benchmark"
    splits = ()

    def __init__(self, splits: dict[str, Examples]):
        self.train, self.evaluation = (_features(splits[split]) for split in ("train", "validation"))

    def evaluated(self, outputs: Outputs, task: object = None) -> Predictions:
        right = outputs["logits"].argmax(axis=1) == self.evaluation.row_targets["label_ids"]
        evaluated = Predictions(KINDS["classification"], [], outputs)
        evaluated.metrics = {"accuracy": float(right.mean()), "loss": float(outputs["loss"].mean())}
        return evaluated


class OurTrainer:
    """Trains and evaluates a task like `electra-tf finetune` under OneDeviceStrategy."""

    def __init__(self, options: dict):
        data = _Data(load(options["config"]))
        labels = [str(label) for label in np.unique(data.train.row_targets["label_ids"])]
        config = resolve(
            {"train": {"batch_size": options["batch_size"]}},
            "benchmark",
            name="benchmark",
            task={"kind": "classification", "labels": labels, "text_columns": ["text"]},
            encoder=EncoderConfig(**options["encoder"]),
            init_from=None,
            num_epochs=100,
            max_seq_length=options["max_seq_length"],
            num_rows=data.train.num_rows,
        )
        limit_threads(options["num_threads"], config)
        tokenizer = BertTokenizer(Vocabulary.load(options["vocab_file"]))
        seed_initial_values(config.train.seed)
        strategy = build_strategy("one_device")
        self.stage = FinetuningStage(config, data, tokenizer, strategy)
        with strategy.scope():
            task = compile_task(build_finetuning_task(config))
        self._task, self._loop = task, DeviceLoop(task, strategy)
        self._names = metric_names(task)
        self._steps_a_report = config.train.log_every_steps
        self._batches = self._loop.read(lambda context: self.stage.training_batches(0, context))

    def train(self, num_steps: int) -> None:
        """Trains, with reports as frequent as those of `electra-tf finetune`."""
        for first in range(0, num_steps, self._steps_a_report):
            steps = min(self._steps_a_report, num_steps - first)
            self._loop.train(self._task, self._batches, steps)
            self._loop.metrics.close(self._names)

    def evaluate(self) -> dict[str, float]:
        """The metrics of the whole dev set."""
        return self.stage.scored(self._loop.evaluate(self.stage)).metrics

    def warm_up(self) -> int:
        """Compiles all programs: trains one batch of each length and evaluates. Returns: the number of lengths."""
        stage = self.stage
        lengths = padded_lengths(stage.data.train, stage.training_order, stage.lengths)
        _, first = np.unique(lengths, return_index=True)
        order = stage.training_order[first]
        self._batches = self._loop.read(lambda context: padded_batches(stage.data.train, order, stage.lengths, context))
        self.train(len(order))
        self._batches = self._loop.read(lambda context: stage.training_batches(0, context))
        self.evaluate()
        return len(order)


def answer_all(options: dict, commands: Commands) -> None:
    """Answers the commands of `benchmarks.finetuning.worker`."""
    trainer = OurTrainer(options)

    def train(num_steps: int = 1) -> dict:
        trainer.train(num_steps)
        return {}

    commands.answer_all(
        step=train, train=train, warm_up=lambda: {"num_lengths": trainer.warm_up()}, evaluate=trainer.evaluate
    )


def _features(examples: Examples) -> Features:
    index = np.arange(len(examples.label_ids), dtype=np.int32)
    targets = {"label_ids": examples.label_ids}
    return Features(examples.input_ids, examples.segment_ids, examples.row_splits, index, targets)
