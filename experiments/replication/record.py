"""Records of the replication: the results of each run in one line of a file for version control.

A record includes the resolved configuration, from which its FLOPs are counted.
"""

import datetime
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import tensorflow as tf

import electra_tf
from electra_tf.files import read_json, write_atomically
from electra_tf.flops.budget import RunCost
from electra_tf.reports.runs import read_run
from electra_tf.tasks.finetune.summary import SUMMARY, milestone_scores, seed_scores
from electra_tf.train.run_directory import RunDirectory
from experiments.processes import PROJECT
from experiments.replication.arms import TASKS
from experiments.replication.plan import PlannedRun

_DIGITS = 6


def note_start(run: PlannedRun) -> None:
    """Writes the project's commit, the time and the versions, once, before the first process of a run."""
    if not run.start_file.exists():
        git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=PROJECT, capture_output=True, text=True)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        versions = {"electra_tf": electra_tf.__version__, "tensorflow": tf.__version__}
        versions |= {"python": platform.python_version(), "machine": platform.machine()}
        content = {"commit": git.stdout.strip() or None, "time": now, "versions": versions}
        run.start_file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(str(run.start_file), json.dumps(content).encode())


def write_run_record(run: PlannedRun, file: Path) -> None:
    """Writes or replaces the record of a trained run, with its results so far.

    Measured numbers are rounded to 6 digits, keys and lines are sorted.
    """
    results = read_run(run.directory)
    seconds, examples_before = 0.0, 0
    for report in RunDirectory(run.directory).reports("train"):
        examples = results.cost.spent(report["step"]).examples
        seconds += (examples - examples_before) / report["examples_per_second"]
        examples_before = examples
    started = read_json(run.start_file)
    content = {
        "name": run.name,
        "config": results.config.model_dump(mode="json"),
        "data": results.data,
        "init_from": results.init_from,
        "held_out": _rounded(results.metrics),
        "finetuned": _rounded(_finetuned(run)),
        "notes": _rounded({"arm": run.arm, "seed": run.seed, "started": started, "training_seconds": seconds}),
    }
    recorded = file.read_text(encoding="utf-8").splitlines() if file.exists() else ()
    contents = {each["name"]: each for each in map(json.loads, recorded)} | {run.name: content}
    lines = (json.dumps(contents[name], sort_keys=True, allow_nan=False) + "\n" for name in sorted(contents))
    write_atomically(str(file), "".join(lines).encode())


def _finetuned(run: PlannedRun) -> list[dict]:
    """The scores of each task whose fine-tuning has finished, and the name of its metric."""
    summaries = {task: read_json(run.finetuned_directory(task) / SUMMARY) for task in sorted(TASKS)}
    cost = RunCost(run.config)
    return [
        {
            "task": task,
            "metric": summary["primary_metric"],
            "results": milestone_scores({run.num_steps: seed_scores(summary)}, cost),
        }
        for task, summary in summaries.items()
        if summary
    ]


def _rounded(value: Any) -> Any:
    """A value with its floats rounded to `_DIGITS` significant digits, and its keys as text."""
    if isinstance(value, dict):
        return {str(key): _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
