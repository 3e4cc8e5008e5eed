"""Writes what a run trains on, for a training of the same recipe in PyTorch: see `benchmarks.train_step.pytorch_run`.

    python -m experiments.replication.text_for_peers --model_dir=RUN --data_dir=DATA32 --data_dir=DATA64
        --judge=BERT_RUN --output_dir=TEXT

settings.json has the sizes of the networks, the learning rate of each step and the evaluated steps; train-N.npz and
held_out-N.npz have the batches of input stage N with their masks; judged.npz has the text of `judge`.
"""

import itertools
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command
from electra_tf.runs.directory import RunDirectory
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from electra_tf.tasks.pretrain.input import open_stages
from electra_tf.train.schedule import WarmupTimesDecay
from electra_tf.weights.hugging_face.layouts import config_entries
from electra_tf.weights.run import load_objective
from experiments.replication.judge import corrupted

_TENSORS = ("input_ids", "input_mask", "segment_ids", "masked_input_ids")
_SLOTS = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--model_dir", required=True, metavar="DIR", help="run of electra")
    parser.add_argument(
        "--data_dir", action="append", dest="data_dirs", required=True, metavar="DIR", help="of each input stage"
    )
    parser.add_argument("--judge", required=True, metavar="DIR", help="run of bert_mlm")
    parser.add_argument("--output_dir", type=Path, required=True, metavar="DIR", help="a new directory")
    arguments = parser.parse_args(argv)
    return run_command(lambda: write_text(**vars(arguments)))


def write_text(model_dir: str, data_dirs: list[str], judge: str, output_dir: Path) -> None:
    """Raises: UserError: there is no such run, or the data does not fit it."""
    config = load_config(RunDirectory(model_dir).config_file)
    output_dir.mkdir(parents=True)
    stages, context = open_stages(config, data_dirs), tf.distribute.InputContext()
    for number, stage in enumerate(stages):
        training = itertools.islice(
            stage.training_batches(stage.first_step, context), stage.last_step - stage.first_step
        )
        _write(output_dir / f"train-{number}.npz", training)
        _write(output_dir / f"held_out-{number}.npz", stage.evaluation_batches(context))
    judged = corrupted(load_objective(judge), data_dirs[-1])
    _write(output_dir / "judged.npz", ({**batch, "replaced": replaced} for batch, replaced in judged))
    settings = settings_of(config) | {"num_stages": len(stages)}
    (output_dir / "settings.json").write_text(json.dumps(settings) + "\n", encoding="utf-8")


def settings_of(config: PretrainingConfig) -> dict:
    """The recipe of a run: `networks`, `seed`, `learning_rates` of all steps, `evaluated_steps`."""
    generator = config.objective.generator.encoder(config.encoder)
    num_steps = config.train.num_steps
    every = config.evaluation.every_steps or num_steps
    rate = WarmupTimesDecay(config.optimizer, [num_steps])
    return {
        "networks": {"discriminator": config_entries(config.encoder), "generator": config_entries(generator)},
        "seed": config.train.seed,
        "learning_rates": [float(rate(tf.constant(step))) for step in range(num_steps)],
        "evaluated_steps": sorted({*range(every, num_steps, every), num_steps}),
    }


def _write(file: Path, batches: Iterable[Mapping[str, tf.Tensor | np.ndarray]]) -> None:
    """Writes batches as arrays [number of batches, B, ...]."""
    columns: dict[str, list[np.ndarray]] = {}
    for batch in batches:
        for name in (*_TENSORS, *_SLOTS, "replaced"):
            if name in batch:
                values = np.asarray(batch[name])
                columns.setdefault(name, []).append(values if values.dtype.kind == "f" else values.astype(np.uint16))
    np.savez(file, **{name: np.stack(values) for name, values in columns.items()})


if __name__ == "__main__":
    sys.exit(main())
