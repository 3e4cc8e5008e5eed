"""The ladder on one GPU, without TensorFlow there: prepares the files of its training, and makes runs of the results.

    python -m experiments.replication.stacked prepare STACKED --budget_steps=270000 --seeds 6 7 8 \\
        --data_dir=DATA32 --data_dir=DATA64 --output_dir=RUNS

STACKED gets texts32.npy and texts64.npy (all token ids), and for each arm a directory ARM with its settings and the
initial weights of all seeds. There, `python stacked_program.py STACKED/ARM >STACKED/ARM/reports.jsonl` trains an arm
(experiments/replication/stacked_program.py). Then `adopt` in place of `prepare` writes each run as if it had been
trained here, but for the optimizer's moments; `python -m experiments.replication` with the same flags goes on from
there.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from electra_tf.api.pretraining import compiled_objective, pretrain
from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError
from electra_tf.tasks.base import Task
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.generator_objective import GeneratorObjectiveSettings
from electra_tf.tasks.pretrain.stages import open_stages
from electra_tf.train.checkpoints import Checkpoints
from electra_tf.train.device_loop import DeviceLoop
from electra_tf.train.run_directory import RunDirectory
from experiments.pretraining import PretrainingRun
from experiments.replication.arms import ARMS
from experiments.replication.plan import PlannedRun, equal_flops_steps
from experiments.replication.record import note_start

# The networks' weights by the beginnings of their variables' names.
_NETWORKS = {
    "ladder_electra": {
        "generator": {
            "embeddings": "generator_network/generator/embeddings",
            "encoder": "generator_network/generator",
            "head": "generator_network/generator_predictions",
        },
        "discriminator": {
            "embeddings": "generator_network/generator/embeddings",
            "encoder": "electra",
            "head": "discriminator_predictions",
        },
    },
    "ladder_bert_mlm": {
        "generator": {
            "embeddings": "masked_lm_network/electra/embeddings",
            "encoder": "masked_lm_network/electra",
            "head": "masked_lm_network/generator_predictions",
        },
        "discriminator": None,
    },
}
_SPECIAL_IDS = ("pad_id", "cls_id", "sep_id", "mask_id")


def prepare(arguments: argparse.Namespace) -> None:
    """Writes the files of the program. Raises: UserError: if it cannot derive masks and segments of the texts."""
    arms = {arm: _runs(arm, arguments) for arm in ARMS}
    stages = open_stages(arms[ARMS[0]][0].config, arguments.data_dirs)
    special_ids = {name: getattr(stages[0].data.vocabulary, name) for name in _SPECIAL_IDS}
    for arm, runs in arms.items():
        write_arm(arguments.stacked / arm, arm, runs, special_ids)
    for stage in stages:
        corpus = stage.data.train
        # One shard after the other: parsed, all of them together take six times the memory of the ids.
        shards = (corpus.parse(corpus.records(tf.constant(shard, tf.int64))) for shard in range(len(corpus.files)))
        texts = np.concatenate([_texts(shard, special_ids) for shard in shards])
        np.save(arguments.stacked / f"texts{stage.max_seq_length}.npy", texts)


def write_arm(directory: Path, arm: str, runs: list[PlannedRun], special_ids: dict[str, int]) -> None:
    """Writes arm.json and initial.npy, the weights [N, P] float32 of all seeds."""
    vectors = []
    _require_what_the_program_computes(runs[0].config)
    for run in runs:
        task = compiled_objective(run.config, tf.distribute.OneDeviceStrategy("/cpu:0"))
        vectors.append(np.concatenate([variable.numpy().ravel() for variable in task.trainable_variables]))
    directory.mkdir(parents=True, exist_ok=True)
    np.save(directory / "initial.npy", np.stack(vectors))
    settings = arm_settings(arm, task, [run.seed for run in runs], special_ids)
    (directory / "arm.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")


def _require_what_the_program_computes(config: PretrainingConfig) -> None:
    optimizer, masking, objective = config.optimizer, config.masking, config.objective
    assert config.encoder.hidden_dropout == config.encoder.attention_dropout == 0.0
    assert (optimizer.name, optimizer.schedule, optimizer.decay_power) == ("adamw", "linear", 1.0)
    assert optimizer.warmups([config.train.num_steps])[0] > 0 and not optimizer.learning_rate_multipliers
    assert (masking.scheme, masking.selection) == ("uniform", "distinct")
    if isinstance(objective, GeneratorObjectiveSettings):
        assert (objective.sampling, objective.temperature, objective.masked_lm_loss_weight) == ("categorical", 1.0, 1.0)
        assert objective.tying == "embeddings" and not objective.disallow_correct


def arm_settings(arm: str, task: Task, seeds: list[int], special_ids: dict[str, int]) -> dict:
    """The settings of the program for a compiled task."""
    config, variables = task.config, task.trainable_variables
    networks = _NETWORKS[arm]
    num_heads = {network["encoder"]: config.encoder.num_heads for network in networks.values() if network}
    if networks["discriminator"]:
        num_heads[networks["generator"]["encoder"]] = config.objective.generator_encoder(config).num_heads
    names = ("learning_rate", "beta_1", "beta_2", "epsilon", "weight_decay_rate", "clip_norm")
    optimizer = {name: getattr(config.optimizer, name) for name in names}
    optimizer["warmup_steps"] = config.optimizer.warmups([config.train.num_steps])[0]
    return {
        "seeds": seeds,
        "num_steps": config.train.num_steps,
        "stages": [
            stage.model_dump(include={"num_steps", "max_seq_length", "batch_size"})
            | {"num_slots": config.masking.max_predictions(stage.max_seq_length)}
            for stage in config.stages
        ],
        "weights": [(variable.path, list(variable.shape)) for variable in variables],
        "decayed": [variable.path for variable in variables if task.optimizer.decays(variable)],
        "optimizer": optimizer,
        **networks,
        "num_layers": config.encoder.num_layers,
        "num_heads": num_heads,
        "layer_norm_epsilon": config.encoder.layer_norm_epsilon,
        "vocab_size": config.encoder.vocab_size,
        "precision": config.train.precision,
        "replaced_token_loss_weight": getattr(config.objective, "replaced_token_loss_weight", None),
        **config.masking.model_dump(include={"masked_fraction", "mask_token_fraction", "random_token_fraction"}),
        **special_ids,
    }


def _texts(batch: dict[str, tf.Tensor], special_ids: dict[str, int]) -> np.ndarray:
    """[E, S] uint16 token ids, from which the program derives masks and segments."""
    ids, mask, segments = (batch[name].numpy() for name in ("input_ids", "input_mask", "segment_ids"))
    is_token, is_sep = ids != special_ids["pad_id"], ids == special_ids["sep_id"]
    is_second = (np.cumsum(is_sep, axis=1) - is_sep > 0) & is_token
    if not (np.array_equal(mask, is_token) and np.array_equal(segments, is_second)):
        raise UserError(
            "--data_dir: masks and segments do not follow from the token ids; build it without --examples=pack"
        )
    return ids.astype(np.uint16)


def adopt(arguments: argparse.Namespace) -> None:
    """Writes the runs of the trained weights. Raises: UserError: if a run exists, or its training is not whole."""
    trained = [(run, *_results(arm, run, arguments)) for arm in ARMS for run in _runs(arm, arguments)]
    for planned, weights, reports in trained:
        note_start(planned)
        run = planned.training
        pretrain(run.config_file, run.data_dirs, run.directory, settings=run.overrides, stop_at_step=1)
        _adopt_weights(run, weights)
        with open(RunDirectory(run.directory).metrics_file, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in reports)


def _results(arm: str, run: PlannedRun, arguments: argparse.Namespace) -> tuple[np.ndarray, list[dict]]:
    """The trained weights of a run, [P] float32, and its reports."""
    directory = arguments.stacked / arm
    settings = json.loads((directory / "arm.json").read_text(encoding="utf-8"))
    lines = (directory / "reports.jsonl").read_text(encoding="utf-8").splitlines()
    weights = np.load(directory / f"seed{run.seed}.npy")
    size = sum(math.prod(shape) for _, shape in settings["weights"])
    if run.directory.exists():
        raise UserError(f"{run.directory} exists; move it away")
    if not settings["num_steps"] == run.num_steps == json.loads(lines[-1])["step"]:
        raise UserError(f"{directory} is not trained for the {run.num_steps} steps of --budget_steps")
    if weights.shape != (size,) or not np.isfinite(weights).all():
        raise UserError(f"{directory}/seed{run.seed}.npy is damaged; take it from the GPU again")
    return weights, _reports(run, settings["seeds"].index(run.seed), lines)


def _adopt_weights(run: PretrainingRun, vector: np.ndarray) -> None:
    """Makes the trained weights the last checkpoint and the last milestone of a run."""
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    loop, directory = DeviceLoop(compiled_objective(run.config, strategy), strategy), RunDirectory(run.directory)
    task, num_steps = loop.task, run.config.train.num_steps
    checkpoints = Checkpoints(task, directory, chief=True, keep=1, metrics=loop.metrics)
    checkpoints.restore_latest()
    ends = np.cumsum([variable.shape.num_elements() for variable in task.trainable_variables])
    for variable, values in zip(task.trainable_variables, np.split(vector, ends[:-1]), strict=True):
        variable.assign(values.reshape(variable.shape))
    task.optimizer.iterations.assign(num_steps)
    checkpoints.save(num_steps, directory.milestones)
    checkpoints.save(num_steps)


def _reports(run: PlannedRun, number: int, lines: list[str]) -> list[dict]:
    """The program's reports as those of a run: `number` is its row, and a step's examples are those of its stage.

    A program that was continued counts seconds from 0 again, and may repeat its last report.
    """
    stages, reports, before = run.config.stages, [], {"step": 0, "seconds": 0.0}
    for report in map(json.loads, lines):
        if report["step"] <= before["step"]:
            continue
        first = report["step"] <= stages[0].num_steps
        examples = (report["step"] - before["step"]) * stages[0 if first else 1].batch_size
        is_continued = report["seconds"] < before["seconds"]
        seconds = report["seconds"] - (0.0 if is_continued else before["seconds"])
        means = {name: values[number] for name, values in report.items() if isinstance(values, list)}
        rate = examples / max(seconds, 1e-3)
        reports.append({"step": report["step"], "split": "train", **means, "examples_per_second": rate})
        before = report
    return reports


def _runs(arm: str, arguments: argparse.Namespace) -> list[PlannedRun]:
    num_steps = equal_flops_steps(arguments.budget_steps)[arm]
    return [PlannedRun(arm, seed, num_steps, arguments) for seed in arguments.seeds]


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    add = parser.add_argument
    add("command", choices=("prepare", "adopt"))
    add("stacked", type=Path, metavar="STACKED", help="directory of the program's files")
    add("--budget_steps", type=int, required=True, metavar="N", help="ELECTRA's steps")
    add("--seeds", type=int, nargs="+", required=True, metavar="N", help="one run of each arm per seed")
    add("--data_dir", action="append", required=True, dest="data_dirs", metavar="DIR", help="data set of each stage")
    add("--output_dir", type=Path, required=True, metavar="DIR", help="local directory of the runs")
    arguments = parser.parse_args(argv)
    return run_command(lambda: {"prepare": prepare, "adopt": adopt}[arguments.command](arguments))


if __name__ == "__main__":
    sys.exit(main())
