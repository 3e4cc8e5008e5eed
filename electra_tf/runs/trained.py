"""Reading a finished, or half-finished, run back: its model and its tokenizer."""

import json
import os

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.runs.checkpoint import restore_strictly
from electra_tf.runs.checkpoint_files import CheckpointFolder, require_whole
from electra_tf.runs.run_directory import RunDirectory
from electra_tf.tasks.base import Objective
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import load_config
from electra_tf.text.tokenizer import BertTokenizer
from electra_tf.text.vocabulary import Vocabulary
from electra_tf.train.phases import phase_at, phases_of


def load_run(model_dir: str | os.PathLike, step: int | None = None) -> Objective:
    """The objective of a run with its weights; before its last phase, the objective of the phase that had them.

    Args:
        step: of a checkpoint or a milestone that the run has; None: the newest whole checkpoint. Newer ones that are
            damaged are warned of.
    Raises: UserError: if `model_dir` holds no run, or no checkpoint yet, or no whole one.
    """
    run = _run_in(model_dir)
    prefix, step = _newest(run) if step is None else (_checkpoint_of(run, step), step)
    objective = build_objective(load_config(run.config_file))
    restore_strictly(tf.train.Checkpoint(objective=objective), prefix)
    phases = phases_of(objective)
    phase = phase_at(phases, step)
    return objective if phase is phases[-1] else phase.objective


def _newest(run: RunDirectory) -> tuple[str, int]:
    folder = CheckpointFolder(run.checkpoints)
    step = folder.newest_whole()
    if step is None:
        raise UserError(f"{run.checkpoints} holds no checkpoint yet; train first with run_pretraining.py")
    return folder.prefix(step), step


def _checkpoint_of(run: RunDirectory, step: int) -> str:
    folders = [CheckpointFolder(path) for path in (run.milestones, run.checkpoints)]
    prefixes = [folder.prefix(step) for folder in folders if step in folder.steps()]
    if not prefixes:
        found = sorted({step for folder in folders for step in folder.published_steps()})
        raise UserError(f"{run.path} has no checkpoint of step {step}; it has those of {', '.join(map(str, found))}")
    require_whole(prefixes[0])
    return prefixes[0]


def load_tokenizer(model_dir: str | os.PathLike) -> BertTokenizer:
    """The tokenizer of the text that a run was trained on.

    Raises: UserError: if `model_dir` holds no run or has not seen data yet.
    """
    run = _run_in(model_dir)
    if not run.tokenizer_file.exists():
        raise UserError(f"{run.tokenizer_file} is missing: the run has not read any data yet; train first")
    settings = json.loads(run.tokenizer_file.read_text(encoding="utf-8"))
    return BertTokenizer(Vocabulary.load(run.vocab_file), **settings)


def _run_in(model_dir: str | os.PathLike) -> RunDirectory:
    run = RunDirectory(model_dir)
    if not run.config_file.exists():
        raise UserError(f"--model_dir={model_dir} holds no config.yaml; give the directory of a run")
    return run
