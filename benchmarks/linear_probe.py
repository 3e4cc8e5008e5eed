"""A first downstream reading of a run: logistic regression on the features of its frozen encoder, on CoLA and SST-2.

    python -m benchmarks.linear_probe --model_dir=RUN --glue_dir=GLUE

GLUE holds CoLA/{train,dev}.tsv and SST-2/{train,dev}.tsv as the benchmark distributes them; the first 10,000 training
sentences of each are used. A sentence's features are the mean of its tokens' vectors in the last layer (--pooling=cls:
the vector of [CLS]). The regression's strength of regularisation is chosen on a tenth of the training sentences, before
dev is looked at. Prints one JSON object: for each step Matthews' correlation on CoLA and the accuracy on SST-2, both on
dev. Nothing is drawn, so the same weights give the same numbers. It is no fine-tuning, and no number of the paper.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from electra_tf.cli.flags import flag_parser, run_command
from electra_tf.cli.modules import add_objective_module_flag, load_module
from electra_tf.config.errors import UserError

if TYPE_CHECKING:
    from electra_tf.tasks.pretrain.objective import Objective
    from electra_tf.text.tokenizer import BertTokenizer

POOLINGS = ("cls", "mean")
BATCH_SIZE = 256
STRENGTHS = (0.01, 0.1, 1.0, 10.0)  # inverse, as scikit-learn's C, on standardised features
_VALIDATION_EVERY = 10  # every tenth training sentence chooses among them
MAX_ITERATIONS = 2000
# Of SST-2's 67,349, whose features and regressions would take most of a minute for each step of a run.
MAX_TRAIN_SENTENCES = 10_000


@dataclass(frozen=True)
class Task:
    """A task of single sentences, as GLUE lays out its files.

    Attributes:
        metric: `matthews_correlation` or `accuracy`, of the dev split.
        sentence, label: their columns.        header: whether the first line names them.
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


class Split(NamedTuple):
    """Sentences of a task and their labels, 0 or 1."""

    sentences: list[str]
    labels: np.ndarray  # [N] int64


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--model_dir", required=True, metavar="DIR", help="directory of the run")
    parser.add_argument("--glue_dir", required=True, metavar="DIR", help="directory with CoLA and SST-2")
    parser.add_argument(
        "--step",
        type=int,
        action="append",
        dest="steps",
        metavar="N",
        help="a milestone or checkpoint of the run, repeatable; 0 for the untrained encoder (default: the newest)",
    )
    parser.add_argument("--pooling", choices=POOLINGS, default="mean", help="what makes one vector of many")
    parser.add_argument("--output", metavar="FILE", help="write the JSON here too")
    add_objective_module_flag(parser)
    arguments = parser.parse_args(argv)
    return run_command(lambda: _probe(arguments))


def _probe(arguments) -> None:
    if arguments.objective_module:
        load_module(arguments.objective_module)
    steps = arguments.steps or [newest_step(arguments.model_dir)]
    results = probe_run(arguments.model_dir, arguments.glue_dir, steps, arguments.pooling)
    text = json.dumps({"pooling": arguments.pooling, "results": results}, indent=1) + "\n"
    if arguments.output:
        from electra_tf.runs.directory import write_atomically

        write_atomically(Path(arguments.output), text.encode())
    print(text, end="")


def newest_step(model_dir: str | os.PathLike) -> int:
    """The step of a run's newest whole checkpoint. Raises: UserError: if there is none."""
    from electra_tf.runs.checkpoint_files import CheckpointFolder
    from electra_tf.runs.directory import RunDirectory

    folder = RunDirectory(model_dir).checkpoints
    step = CheckpointFolder(folder).newest_whole()
    if step is None:
        raise UserError(f"{folder} holds no checkpoint; train first with run_pretraining.py")
    return step


def probe_run(
    model_dir: str | os.PathLike, glue_dir: str | os.PathLike, steps: list[int], pooling: str = "mean"
) -> list[dict]:
    """The scores of a run's encoder at some of its steps; 0 stands for the untrained encoder of the run's seed.

    Returns: for each step `step`, and for each task its metric on dev and the chosen strength.
    Raises: UserError: if a file of the tasks, or a checkpoint, is missing.
    """
    from electra_tf.runs.load import load_tokenizer

    splits = {
        name: (read_split(glue_dir, task, "train", MAX_TRAIN_SENTENCES), read_split(glue_dir, task, "dev"))
        for name, task in TASKS.items()
    }
    tokenizer, results = load_tokenizer(model_dir), []
    for step in steps:
        objective = _load(model_dir, step)
        scores: dict = {"step": step}
        for name, task in TASKS.items():
            features = [sentence_features(objective, tokenizer, split.sentences, pooling) for split in splits[name]]
            labels = [split.labels for split in splits[name]]
            scores[name] = probe(task, features[0], labels[0], features[1], labels[1])
        results.append(scores)
    return results


def _load(model_dir: str | os.PathLike, step: int) -> "Objective":
    from electra_tf.runs.checkpoint import seed_everything
    from electra_tf.runs.directory import RunDirectory
    from electra_tf.runs.load import load_run
    from electra_tf.tasks.pretrain import build_objective
    from electra_tf.tasks.pretrain.config import load_config

    if step != 0:
        return load_run(model_dir, step)
    config = load_config(RunDirectory(model_dir).config_file)
    seed_everything(config.train.seed)
    return build_objective(config)


def read_split(glue_dir: str | os.PathLike, task: Task, split: str, at_most: int | None = None) -> Split:
    """Reads `train` or `dev` of a task. Fields are separated by tabs and never quoted.

    Args:
        at_most: so many sentences from the beginning of the file; None: all.
    Raises: UserError: if the file is missing, or a line of it has no sentence or no label of 0 or 1.
    """
    path = Path(glue_dir) / task.folder / f"{split}.tsv"
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
    return Split(sentences[:at_most], np.array(labels[:at_most], np.int64))


def sentence_features(
    objective: "Objective", tokenizer: "BertTokenizer", sentences: list[str], pooling: str
) -> np.ndarray:
    """One vector a sentence from the last layer of the frozen encoder, which sees `[CLS] sentence [SEP]`.

    Sentences longer than the run's `data.max_seq_length` are cut. Neighbours in length share a batch, which changes no
    vector by more than rounding.

    Returns: [N, H] float32, in the order of `sentences`.
    """
    import tensorflow as tf

    vocabulary, longest = tokenizer.vocabulary, objective.config.data.max_seq_length
    spec = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[spec, spec])
    def vectors(input_ids: tf.Tensor, input_mask: tf.Tensor) -> tf.Tensor:
        inputs = {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": tf.zeros_like(input_ids)}
        hidden = tf.cast(objective(inputs).sequence_output, tf.float32)
        if pooling == "cls":
            return hidden[:, 0]
        real = tf.cast(input_mask, tf.float32)[:, :, tf.newaxis]
        return tf.reduce_sum(hidden * real, axis=1) / tf.reduce_sum(real, axis=1)

    pieces = tokenizer.tokenize(tf.constant(sentences))[:, : longest - 2]
    rows = [[vocabulary.cls_id, *row, vocabulary.sep_id] for row in pieces.to_list()]
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    features = np.empty([len(rows), objective.config.encoder.hidden_size], np.float32)
    for first in range(0, len(order), BATCH_SIZE):
        chosen = order[first : first + BATCH_SIZE]
        width = max(len(rows[index]) for index in chosen)
        ids = np.full([len(chosen), width], vocabulary.pad_id, np.int32)
        mask = np.zeros_like(ids)
        for row, index in enumerate(chosen):
            ids[row, : len(rows[index])], mask[row, : len(rows[index])] = rows[index], 1
        features[chosen] = vectors(ids, mask).numpy()
    return features


def probe(
    task: Task, train: np.ndarray, train_labels: np.ndarray, dev: np.ndarray, dev_labels: np.ndarray
) -> dict[str, float]:
    """Fits logistic regression on the training features and scores it on dev.

    Args:
        train, dev: [N, H] float32, N of each split.        train_labels, dev_labels: [N], 0 or 1.
    Returns: the task's metric by its name, and `strength`, the C that a tenth of the training sentences chose.
    """
    is_validation = np.arange(len(train)) % _VALIDATION_EVERY == 0
    chosen = max(
        STRENGTHS,
        key=lambda strength: _score(
            task,
            _fit(train[~is_validation], train_labels[~is_validation], strength),
            train[is_validation],
            train_labels[is_validation],
        ),
    )
    score = _score(task, _fit(train, train_labels, chosen), dev, dev_labels)
    return {task.metric: score, "strength": chosen}


def _fit(features: np.ndarray, labels: np.ndarray, strength: float):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=MAX_ITERATIONS))
    # lbfgs, which draws nothing; in double precision its end does not depend on the order of sums.
    return classifier.fit(features.astype(np.float64), labels)


def _score(task: Task, classifier, features: np.ndarray, labels: np.ndarray) -> float:
    from sklearn.metrics import accuracy_score, matthews_corrcoef

    metric = {"matthews_correlation": matthews_corrcoef, "accuracy": accuracy_score}[task.metric]
    return float(metric(labels, classifier.predict(features.astype(np.float64))))


if __name__ == "__main__":
    sys.exit(main())
