"""Makes a checkpoint of a run of the state that `train` wrote."""

import argparse

from benchmarks.stablehlo_step.export import build_step, state_variables
from benchmarks.stablehlo_step.files import StepFiles, state_from
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError
from electra_tf.runs.checkpoints import Checkpoints, checkpoint_prefix, steps_in
from electra_tf.runs.directory import RunDirectory
from electra_tf.runs.lock import locked
from electra_tf.tasks.pretrain.config import parse_config
from electra_tf.tasks.pretrain.input import open_stages
from electra_tf.train.metrics import metric_accumulator


def main(arguments: argparse.Namespace) -> int:
    return run_command(lambda: restore(arguments))


def restore(arguments: argparse.Namespace) -> None:
    """Writes checkpoints/step-N, from which run_pretraining.py goes on, and what else a run's directory holds.

    Raises: UserError, BadInput: if the state, the data set or the run there does not fit, or the run is as far already.
    """
    manifest = StepFiles(arguments.step_dir).manifest
    values = state_from(arguments.checkpoint, manifest)
    config = parse_config(manifest["config"], arguments.step_dir)
    (stage,) = open_stages(config, [arguments.data_dir])
    run, step = RunDirectory(arguments.model_dir), int(values[manifest["step_variable"]])
    run.create()
    with locked(run):
        before = steps_in(run.checkpoints)
        if before and before[-1] >= step:
            raise UserError(f"{run.path} is at step {before[-1]}, {arguments.checkpoint} at {step}; give a new run")
        run.adopt_config(config, is_started=bool(before))
        run.adopt_tokenizer(*stage.tokenizer, is_started=bool(before))
        run.adopt_data([stage.identity], is_started=bool(before))
        objective, _ = build_step(config, replicas=1)
        objective.adopt_data(stage.data)
        keep, metrics = config.train.keep_checkpoints, metric_accumulator(objective)
        checkpoints = Checkpoints(objective, run, chief=True, keep=keep, metrics=metrics)
        checkpoints.restore_latest()  # what the step does not use stays as the run has it
        variables = state_variables(objective)
        for name, value in values.items():
            variables[name].assign(value)
        checkpoints.save(step)
        checkpoints.close()
    print(f"wrote {checkpoint_prefix(run.checkpoints, step)}")
