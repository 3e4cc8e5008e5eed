"""Records of the replication: the results of each run in one line of a file for version control.

A record includes the resolved configuration, from which its FLOPs are counted.
"""

import dataclasses
import datetime
import json
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

import electra_tf
from electra_tf.config.errors import UserError
from electra_tf.files import names_in, read_json, write_atomically
from electra_tf.flops.budget import RunCost
from electra_tf.reports.runs import RunResults, read_run, score_metric, scores_by_step
from electra_tf.tasks.finetune.summary import SUMMARY, milestone_scores, seed_scores
from electra_tf.tasks.pretrain.config import PretrainingConfig, parse_config
from electra_tf.train.run_directory import RunDirectory
from experiments.processes import PROJECT
from experiments.replication.plan import PlannedRun, is_json

MAX_REPORTS = 40
_KEYS = {"name", "config", "data", "init_from", "held_out", "finetuned", "notes"}
_DIGITS = 6
# Settings that records may have and later versions of the project lack. They changed nothing in the recorded runs.
_REMOVED_TRAIN_SETTINGS = ("flops_budget", "flops_convention")
# Entries of training reports that follow from the step and the configuration, or depend on the machine.
_LEFT_OUT = ("split", "examples_seen", "token_slots_seen", "paper_flops", "hardware_flops", "peak_flops")


def note_start(run: PlannedRun) -> None:
    """Writes the project's commit, the time and the versions, once, before the first process of a run."""
    if not run.start_file.exists():
        git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=PROJECT, capture_output=True, text=True)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        content = {"commit": git.stdout.strip() or None, "time": now, "versions": _versions()}
        run.start_file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(str(run.start_file), json.dumps(content).encode())


def _versions() -> dict[str, str]:
    return {
        "electra_tf": electra_tf.__version__,
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "machine": platform.machine(),
    }


def write_run_record(run: PlannedRun, file: Path) -> None:
    """Writes or replaces the record of a trained run, with its results so far."""
    results = read_run(run.directory)
    reports = RunDirectory(run.directory).reports("train")
    seconds, steps_before = 0.0, 0
    for report in reports:
        examples = results.cost.spent(report["step"]).examples - results.cost.spent(steps_before).examples
        seconds, steps_before = seconds + examples / report["examples_per_second"], report["step"]
    every = -(-len(reports) // MAX_REPORTS)
    notes: dict[str, Any] = {
        "arm": run.arm,
        "seed": run.seed,
        "training": [
            {name: value for name, value in report.items() if name not in _LEFT_OUT}
            for report in reports[::-1][::every][::-1]
        ],
        "started": read_json(run.start_file),
        "training_seconds": seconds,
        "tokens_per_second": results.cost.spent(steps_before).token_slots / seconds,
    }
    if is_json(run.as_masked_lm_file):
        notes["as_masked_lm"] = read_json(run.as_masked_lm_file)
    finetuned = [_finetuned(run, task) for task in sorted(names_in(str(run.directory / "finetuned")))]
    results = dataclasses.replace(results, config=_without_path(run, results.config), notes=notes)
    if run.source:
        results = dataclasses.replace(results, init_from=run.source.arm)
    write_record(file, results, [each for each in finetuned if each["results"]])


def _without_path(run: PlannedRun, config: PretrainingConfig) -> PretrainingConfig:
    """The settings with the name of the auxiliary run in place of its directory."""
    if run.auxiliary is None:
        return config
    objective = config.objective.model_copy(update={"auxiliary": run.auxiliary.name})
    return config.model_copy(update={"objective": objective})


def _finetuned(run: PlannedRun, task: str) -> dict:
    """The scores of a task at all steps with finished fine-tuning, and the name of the metric."""
    steps = [int(name.removeprefix("step_")) for name in names_in(str(run.directory / "finetuned" / task))]
    summaries = {step: read_json(run.finetuned_directory(task, step) / SUMMARY) for step in sorted(steps)}
    summaries = {step: summary for step, summary in summaries.items() if summary}
    scores = {step: seed_scores(summary) for step, summary in summaries.items()}
    metrics = [summary["primary_metric"] for summary in summaries.values()]
    rows = milestone_scores(scores, RunCost(run.config))
    return {"task": task, "metric": metrics[0] if metrics else None, "results": rows}


def write_record(file: Path, run: RunResults, finetuned: Sequence[dict]) -> None:
    """Writes or replaces a run's record. Measured numbers are rounded to 6 digits, keys and lines are sorted.

    Args:
        run: its `scores` are ignored.
        finetuned: for each task: `task`, `metric`, and `results`, the rows of `milestone_scores`.
    """
    content = {
        "name": run.name,
        "config": run.config.model_dump(mode="json"),
        "data": run.data,
        "init_from": run.init_from,
        "held_out": _rounded(run.metrics),
        "finetuned": _rounded(finetuned),
        "notes": _rounded(run.notes),
    }
    contents = {each["name"]: each for each in (_contents(file) if file.exists() else ())} | {run.name: content}
    lines = (json.dumps(contents[name], sort_keys=True, allow_nan=False) + "\n" for name in sorted(contents))
    write_atomically(str(file), "".join(lines).encode())


def read_records(file: Path) -> list[RunResults]:
    """The records of a file, by name. Raises: UserError: there are none, or a line is not a record."""
    return [_results(content, f"{file}: {content['name']}") for content in _contents(file)]


def _contents(file: Path) -> list[dict]:
    try:
        contents = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None
    for number, content in enumerate(contents, start=1):
        if not isinstance(content, dict) or content.keys() != _KEYS:
            raise UserError(f"{file}:{number} is not a record; expected the keys {', '.join(sorted(_KEYS))}")
    return contents


def _results(content: dict, source: str) -> RunResults:
    groups = dict(content["config"])
    groups["train"] = {name: value for name, value in groups["train"].items() if name not in _REMOVED_TRAIN_SETTINGS}
    return RunResults(
        name=content["name"],
        config=parse_config(groups, source),
        metrics=dict(sorted((int(step), metrics) for step, metrics in content["held_out"].items())),
        data=content["data"],
        init_from=content["init_from"],
        scores={score_metric(each["task"]): scores_by_step(each["results"]) for each in content["finetuned"]},
        notes=content["notes"],
    )


def _rounded(value: Any) -> Any:
    """A value with its floats rounded to `_DIGITS` significant digits, and its keys as text."""
    if isinstance(value, dict):
        return {str(key): _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
