"""A whole pre-training in PyTorch, on the text, masks and learning rates of one of our runs.

    PEERS/bin/python -m benchmarks.train_step.pytorch_run --text=TEXT --json=FILE

TEXT is the output of `experiments.replication.text_for_peers`. Prints and writes, for each evaluation of the run, the
metrics on held-out text: the discriminator's on samples of its own generator (`own`) and on those of the judge
(`judged`). Imports only NumPy and the peers' packages.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from benchmarks.train_step.pytorch import JointElectra, PyTorchStep, tensors

Arrays = Mapping[str, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, metavar="DIR", help="output of text_for_peers")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="for the results")
    parser.add_argument("--threads", type=int, default=1, help="cores")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    results = train(arguments.text)
    arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def train(text: Path) -> dict:
    """Trains, and returns the evaluations by step and the seconds of all training steps."""
    settings = json.loads((text / "settings.json").read_text(encoding="utf-8"))
    step = PyTorchStep([], **settings["networks"], seed=settings["seed"])
    judged, evaluations, seconds = _batches(text / "judged.npz"), {}, 0.0
    judged, number = list(judged), 0
    for stage in range(settings["num_stages"]):
        held_out = list(_batches(text / f"held_out-{stage}.npz"))
        for batch in _batches(text / f"train-{stage}.npz"):
            begin = time.perf_counter()
            step.update(batch, settings["learning_rates"][number])
            seconds, number = seconds + time.perf_counter() - begin, number + 1
            if number in settings["evaluated_steps"]:
                evaluations[number] = {"own": _own(step.model, held_out), "judged": _judged(step.model, judged)}
                print(json.dumps({"step": number, "seconds": round(seconds, 1), **evaluations[number]}), flush=True)
    return {"seed": settings["seed"], "num_steps": number, "training_seconds": seconds, "evaluations": evaluations}


def _batches(file: Path) -> Iterator[dict[str, torch.Tensor]]:
    """The batches of a file of arrays [number of batches, B, ...], in its order."""
    with np.load(file) as stored:
        arrays = dict(stored)
    for index in range(len(arrays["input_ids"])):
        yield tensors({name: values[index] for name, values in arrays.items()})


@torch.no_grad()
def _own(model: JointElectra, batches: list[dict[str, torch.Tensor]]) -> dict[str, float]:
    """The metrics on held-out text that the model's own generator has changed."""
    parts = [(*model.detect(batch)[1:], batch["input_mask"]) for batch in batches]
    return _metrics(parts)


@torch.no_grad()
def _judged(model: JointElectra, batches: list[dict[str, torch.Tensor]]) -> dict[str, float]:
    """The metrics on text that the judge has changed."""
    parts = [(model.scores(batch["input_ids"], batch), batch["replaced"], batch["input_mask"]) for batch in batches]
    return _metrics(parts)


def _metrics(parts: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> dict[str, float]:
    """`auc`, `loss`, and `constant_loss`, that of the replaced fraction, over real tokens.

    Args:
        parts: logits, whether a token was replaced, and the mask of real tokens, each [B, S].
    """
    logits, replaced = (
        np.concatenate([part[index][part[2] > 0].numpy() for part in parts]).astype(np.float64) for index in (0, 1)
    )
    share, errors = replaced.mean(), np.logaddexp(0.0, np.where(replaced > 0, -logits, logits))
    constant = -(share * np.log(share) + (1.0 - share) * np.log(1.0 - share))
    return {"auc": _auc(logits, replaced > 0), "loss": float(errors.mean()), "constant_loss": float(constant)}


def _auc(scores: np.ndarray, positive: np.ndarray) -> float:
    """The probability that a positive has a higher score than a negative; ties count half."""
    _, which, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[which]
    num_positive = int(positive.sum())
    above = ranks[positive].sum() - num_positive * (num_positive + 1) / 2
    return float(above / (num_positive * (len(scores) - num_positive)))


if __name__ == "__main__":
    main()
