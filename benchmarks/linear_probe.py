"""A first downstream reading of a run: logistic regression on the features of its frozen encoder, on CoLA and SST-2.

    python -m benchmarks.linear_probe --model_dir=RUN --glue_dir=GLUE

GLUE holds CoLA/{train,dev}.tsv and SST-2/{train,dev}.tsv as the benchmark distributes them; the first 10,000 training
sentences of each are used. The features of a sentence are the mean of its tokens' vectors in the last
layer. A tenth of the training sentences chooses the strength of regularisation. Prints
one JSON object: for each step Matthews' correlation on CoLA and the accuracy on SST-2, both on dev. The result is
deterministic. It is not fine-tuning, and no figure of the paper.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from electra_tf.cli.configuration import add_objective_module_flag, load_module
from electra_tf.cli.flags import flag_parser, run_command
from electra_tf.config.errors import UserError

BATCH_SIZE = 256
STRENGTHS = (0.01, 0.1, 1.0, 10.0)  # inverse, as scikit-learn's C, on standardised features
_VALIDATION_EVERY = 10  # every tenth training sentence chooses among them
MAX_ITERATIONS = 2000
# SST-2 has 67,349, whose features and regressions would take most of a minute for each step of a run.
MAX_TRAIN_SENTENCES = 10_000


@dataclass(frozen=True)
class Task:
    """A task of single sentences in GLUE's file layout.

    Attributes:
        metric: `matthews_correlation` or `accuracy`, of the dev split.
        sentence, label: their columns.        header: whether the first line names the columns.
    """

    folder: str
    metric: str
    sentence: int
    label: int
    header: bool


TASKS = {
    "cola": Task("CoLA", "matthews_correlation", sentence=3, label=1, header=False),
    "sst2": Task("SST-2", "accuracy", sentence=0, label=1, header=True),
}


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--model_dir", required=True, metavar="DIR", help="directory of the run")
    parser.add_argument("--glue_dir", required=True, type=Path, metavar="DIR", help="directory with CoLA and SST-2")
    parser.add_argument(
        "--step",
        type=int,
        action="append",
        dest="steps",
        metavar="N",
        help="a milestone or checkpoint of the run, repeatable; 0 for the untrained encoder (default: the newest)",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="file for the JSON")
    add_objective_module_flag(parser)
    arguments = parser.parse_args(argv)
    return run_command(lambda: _probe(arguments))


def _probe(arguments) -> None:
    if arguments.objective_module:
        load_module(arguments.objective_module)
    run = ProbedRun(arguments.model_dir)
    results = probe_run(run, arguments.glue_dir, arguments.steps or [run.newest_step()])
    text = json.dumps({"results": results}, indent=1) + "\n"
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")
    print(text, end="")


class ProbedRun:
    """A run's tokenizer and its encoder at its steps. Everything used of electra_tf's runs and tasks is here."""

    def __init__(self, model_dir: str):
        from electra_tf.export.load import load_tokenizer
        from electra_tf.runs.directory import RunDirectory

        self._directory = RunDirectory(model_dir)
        self._model_dir = model_dir
        self.tokenizer = load_tokenizer(model_dir)

    def newest_step(self) -> int:
        """The step of the newest whole checkpoint. Raises: UserError: if there is none."""
        from electra_tf.runs.checkpoints import newest_whole, step_of

        prefix = newest_whole(self._directory.checkpoints)
        if prefix is None:
            raise UserError(f"{self._directory.checkpoints} holds no checkpoint; train first with run_pretraining.py")
        return step_of(prefix)

    def load(self, step: int):
        """The objective at a step. 0 is the untrained one of the run's seed. Raises: UserError: if it is missing."""
        import tf_keras

        from electra_tf.export.load import load_run
        from electra_tf.tasks.pretrain import build_objective
        from electra_tf.tasks.pretrain.config import load_config

        if step != 0:
            return load_run(self._model_dir, step)
        config = load_config(self._directory.config_file)
        tf_keras.utils.set_random_seed(config.train.seed)
        return build_objective(config)


def probe_run(run: ProbedRun, glue_dir: Path, steps: list[int]) -> list[dict]:
    """The scores of a run's encoder at some of its steps.

    Returns: for each step `step`, and for each task its metric on dev and the chosen strength.
    Raises: UserError: if a file of the tasks, or a checkpoint, is missing.
    """
    splits = {
        name: (read_split(glue_dir, task, "train", MAX_TRAIN_SENTENCES), read_split(glue_dir, task, "dev"))
        for name, task in TASKS.items()
    }
    results = []
    for step in steps:
        objective = run.load(step)
        scores: dict = {"step": step}
        for name, task in TASKS.items():
            (train, train_labels), (dev, dev_labels) = splits[name]
            features = [sentence_features(objective, run.tokenizer, sentences) for sentences in (train, dev)]
            scores[name] = probe(task, features[0], train_labels, features[1], dev_labels)
        results.append(scores)
    return results


def read_split(glue_dir: Path, task: Task, split: str, at_most: int | None = None) -> tuple[list[str], np.ndarray]:
    """Reads `train` or `dev` of a task: fields separated by tabs, never quoted; with `at_most`, its first sentences.

    Returns: the sentences, and their labels [N] int64.
    Raises: UserError: if the file is missing, or a line has no sentence or no label of 0 or 1.
    """
    path = glue_dir / task.folder / f"{split}.tsv"
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise UserError(f"--glue_dir: {path}: {error.strerror}; give the directory that holds CoLA and SST-2") from None
    sentences, labels = [], []
    for number, line in enumerate(lines, start=1):
        fields = line.rstrip("\r").split("\t")
        if not line or (task.header and number == 1):
            continue
        if len(fields) <= max(task.sentence, task.label) or fields[task.label] not in ("0", "1"):
            raise UserError(f"{path}, line {number}: found {line[:60]!r}; expected the columns of GLUE's {task.folder}")
        sentences.append(fields[task.sentence])
        labels.append(int(fields[task.label]))
    return sentences[:at_most], np.array(labels[:at_most], np.int64)


def sentence_features(objective, tokenizer, sentences: list[str]) -> np.ndarray:
    """The mean vector of each sentence in the last layer of the frozen encoder, whose input is `[CLS] sentence [SEP]`.

    Cuts sentences longer than the run's `data.max_seq_length`. Sentences of similar length share a batch, which changes
    a vector only by rounding.

    Returns: [N, H] float32, in the order of `sentences`.
    """
    import tensorflow as tf

    vocabulary, longest = tokenizer.vocabulary, objective.config.data.max_seq_length
    spec = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[spec, spec])
    def vectors(input_ids: tf.Tensor, input_mask: tf.Tensor) -> tf.Tensor:
        inputs = {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": tf.zeros_like(input_ids)}
        hidden = tf.cast(objective(inputs).sequence_output, tf.float32)
        real = tf.cast(input_mask, tf.float32)[:, :, tf.newaxis]
        return tf.reduce_sum(hidden * real, axis=1) / tf.reduce_sum(real, axis=1)

    pieces = tokenizer.tokenize(tf.constant(sentences))[:, : longest - 2]
    rows = [[vocabulary.cls_id, *row, vocabulary.sep_id] for row in pieces.to_list()]
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    features = np.empty([len(rows), objective.config.encoder.hidden_size], np.float32)
    for first in range(0, len(order), BATCH_SIZE):
        chosen = order[first : first + BATCH_SIZE]
        batch = tf.ragged.constant([rows[index] for index in chosen], tf.int32)
        mask = tf.sequence_mask(batch.row_lengths(), dtype=tf.int32)
        features[chosen] = vectors(batch.to_tensor(vocabulary.pad_id), mask).numpy()
    return features


def probe(
    task: Task, train: np.ndarray, train_labels: np.ndarray, dev: np.ndarray, dev_labels: np.ndarray
) -> dict[str, float]:
    """Fits logistic regression on the training features and scores it on dev.

    Args:
        train, dev: [N, H] float32, N of each split.        train_labels, dev_labels: [N], 0 or 1.
    Returns: the task's metric by its name, and `strength`, the C that a tenth of the training sentences chose.
    """
    validation = np.arange(len(train)) % _VALIDATION_EVERY == 0
    fitted, labels = train[~validation], train_labels[~validation]
    scores = {
        strength: _score(task, _fit(fitted, labels, strength), train[validation], train_labels[validation])
        for strength in STRENGTHS
    }
    chosen = max(scores, key=scores.get)
    return {task.metric: _score(task, _fit(train, train_labels, chosen), dev, dev_labels), "strength": chosen}


def _fit(features: np.ndarray, labels: np.ndarray, strength: float):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=MAX_ITERATIONS))
    # lbfgs is deterministic; in double precision its result does not depend on the order of sums.
    return classifier.fit(features.astype(np.float64), labels)


def _score(task: Task, classifier, features: np.ndarray, labels: np.ndarray) -> float:
    from sklearn.metrics import accuracy_score, matthews_corrcoef

    metric = {"matthews_correlation": matthews_corrcoef, "accuracy": accuracy_score}[task.metric]
    return float(metric(labels, classifier.predict(features.astype(np.float64))))


if __name__ == "__main__":
    sys.exit(main())
