"""Fine-tunes every milestone of a pre-training run, for figures 1, 3 and 4 of the paper."""

import json
import logging
import os
from typing import Any

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.config.loader import merge
from electra_tf.data.tables import markdown_table
from electra_tf.files import absolute_path, exists, read_json, write_atomically
from electra_tf.finetuning.run import finetune
from electra_tf.flops.budget import RunCost
from electra_tf.tasks.finetune.summary import SUMMARY, milestone_scores, score_file, seed_scores, shown
from electra_tf.tasks.pretrain.config import load_config
from electra_tf.train.checkpoints import checkpoint_prefix, latest_intact, step_of, steps_in
from electra_tf.train.distribution import is_chief
from electra_tf.train.run_directory import RunDirectory
from electra_tf.weights.source import load_pretrained

logger = logging.getLogger(__name__)

SCORES = "scores.json"


def finetune_milestones(
    values: dict[str, Any],
    source: str,
    output_dir: str,
    strategy: tf.distribute.Strategy,
    **options: Any,
) -> str:
    """Fine-tunes each milestone of a run, and its newest checkpoint. Calls `finetune` with the directory `step_N/`.

    After each step it writes `scores.json`, and a copy into the run's directory for electra-tf report, unless that has
    the scores of another `output_dir`. Finished steps are not trained again. By default no checkpoints are kept.

    Args, Returns: see `finetune`; `init_from` is the run's directory.
    Raises: UserError: see `finetune`; `init_from` is not the directory of a pre-training run with checkpoints.
    """
    task, init_from, output_dir = values["name"], values["init_from"], absolute_path(output_dir)
    run = RunDirectory(absolute_path(init_from))
    has_checkpoint = steps_in(run.milestones) or steps_in(run.checkpoints)
    if not exists(run.config_file) or run.is_finetuned or not has_checkpoint:
        raise UserError(f"init_from={init_from} is no pre-training run with checkpoints, which milestones needs")
    if values.get("untrained"):  # the scores of one random encoder would stand for all milestones
        raise UserError("untrained has no effect with milestones; remove one of them")
    values = merge({"train": {"keep": "none"}}, values)
    cost = RunCost(load_config(run.settings_file))
    scores: dict[int, dict[int, float]] = {}
    prefixes = {step: checkpoint_prefix(run.milestones, step) for step in steps_in(run.milestones)}
    if (newest := latest_intact(run.checkpoints)) is not None:
        prefixes.setdefault(step_of(newest), newest)
    for step, prefix in prefixes.items():
        logger.info("fine-tuning from step %d of %s", step, run.path)
        directory = os.path.join(output_dir, f"step_{step}")
        finetune(values, source, load_pretrained(prefix, values), directory, strategy, **options)
        if is_chief(strategy):
            summary = read_json(os.path.join(directory, SUMMARY))
            scores[step] = seed_scores(summary)
            content = {
                "task": task,
                "metric": summary.get("primary_metric", "mean of the primary metrics"),
                "init_from": run.path,
                "output_dir": output_dir,
                "results": milestone_scores(scores, cost),
            }
            _write(run, task, output_dir, content)
    if not is_chief(strategy):
        return ""
    rows = []
    for row in content["results"]:
        flops = (shown(row[name], form=".3e") for name in ("paper_flops", "hardware_flops"))
        spread = (shown(row[name], form=".4f") for name in ("median", "lowest", "highest"))
        rows.append([str(row["step"]), *flops, *spread, str(len(row["scores"]))])
    return markdown_table(["step", "paper FLOPs", "hardware", "median", "lowest", "highest", "n"], rows)


def _write(run: RunDirectory, task: str, output_dir: str, content: dict[str, Any]) -> None:
    text = (json.dumps(content, indent=1) + "\n").encode()
    scores, copy = os.path.join(output_dir, SCORES), score_file(run.path, task)
    write_atomically(scores, text)
    try:
        place = read_json(copy).get("output_dir", output_dir)
        if absolute_path(place) == output_dir:
            return write_atomically(copy, text)
        problem = f"{copy} has the scores of output_dir={place} and stays"
    except UserError as error:
        problem = str(error)
    logger.warning("%s; copy %s to that path for electra-tf report", problem, scores)
