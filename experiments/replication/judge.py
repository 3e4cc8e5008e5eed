"""Asks a run's discriminator, at each of its milestones, about the samples of another run's masked language model.

    python -m experiments.replication.judge --judge=BERT_RUN --model_dir=RUN --data_dir=DATA

The held-out text, its masks and the samples depend on the judge alone, so all discriminators are asked about the same
tokens, however good their own generators are. Prints JSON: the metrics by step.
"""

import json
import sys
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from sklearn.metrics import roc_auc_score

from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command
from electra_tf.data.corpus import open_data
from electra_tf.models.layers import INFERENCE
from electra_tf.ops.positions import put_at_positions
from electra_tf.runs.checkpoints import checkpoint_prefix, steps_in
from electra_tf.runs.directory import RunDirectory
from electra_tf.tasks.pretrain import Objective
from electra_tf.tasks.pretrain.input import PretrainingStage, plan_stages
from electra_tf.weights.run import load_objective

Corrupted = tuple[dict[str, tf.Tensor], np.ndarray]


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    for flag, text in (
        ("judge", "run of bert_mlm, whose last input stage is used"),
        ("model_dir", "run with a discriminator"),
        ("data_dir", "output of build_pretraining_dataset.py for that stage"),
    ):
        parser.add_argument(f"--{flag}", required=True, metavar="DIR", help=text)
    arguments = parser.parse_args(argv)
    return run_command(lambda: print(json.dumps(judged(arguments.judge, arguments.model_dir, arguments.data_dir))))


def judged(judge: str, model_dir: str, data_dir: str) -> dict[int, dict[str, float]]:
    """The metrics of a run's discriminator by step: `auc`, `loss`, and `constant_loss`, that of the replaced fraction.

    Raises: UserError: there is no such run, or the data does not fit the judge.
    """
    texts = list(corrupted(load_objective(judge), data_dir))
    directory = RunDirectory(model_dir).milestones
    return {
        step: metrics_of(load_objective(checkpoint_prefix(directory, step)), texts)
        for step in sorted(steps_in(directory))
    }


def corrupted(judge: Objective, data_dir: str) -> Iterator[Corrupted]:
    """Yields: held-out batches whose `input_ids` hold the judge's samples, and where these are not the original."""
    *_, plan = plan_stages(judge.config)
    stage = PretrainingStage(plan, open_data(data_dir, plan.config))
    logits_of = tf.function(lambda batch: judge.generate(batch, INFERENCE).logits, autograph=False)
    for number, batch in enumerate(stage.evaluation_batches(tf.distribute.InputContext())):
        logits = logits_of(batch)  # [B, M, V]
        noise = tf.random.stateless_uniform(tf.shape(logits), [judge.config.train.seed, number], minval=1e-20)
        sampled = tf.argmax(logits - tf.math.log(-tf.math.log(noise)), axis=-1, output_type=tf.int32)
        ids = put_at_positions(batch["input_ids"], sampled, batch["masked_lm_positions"], batch["masked_lm_weights"])
        yield {**batch, "input_ids": ids}, (ids != batch["input_ids"]).numpy()


def metrics_of(objective: Objective, texts: list[Corrupted]) -> dict[str, float]:
    """The metrics of a discriminator over the real tokens of corrupted texts."""
    logits_of = tf.function(objective.detection_logits, autograph=False)
    masks = [batch["input_mask"].numpy() > 0 for batch, _ in texts]
    logits = np.concatenate([logits_of(batch).numpy()[mask] for (batch, _), mask in zip(texts, masks, strict=True)])
    replaced = np.concatenate([labels[mask] for (_, labels), mask in zip(texts, masks, strict=True)])
    logits, share = logits.astype(np.float64), replaced.mean()
    constant = -(share * np.log(share) + (1.0 - share) * np.log(1.0 - share))
    losses = np.logaddexp(0.0, np.where(replaced, -logits, logits))
    auc = roc_auc_score(replaced, logits)
    return {"auc": float(auc), "loss": float(losses.mean()), "constant_loss": float(constant)}


if __name__ == "__main__":
    sys.exit(main())
