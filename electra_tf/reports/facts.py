"""What a run's directory knows of its weights beside them: the `facts` of a `StoredModel`, for model cards."""

import os
import statistics
from collections.abc import Iterator

import yaml

from electra_tf.config.errors import UserError
from electra_tf.config.validation import validate
from electra_tf.files import names_in, read_bytes, read_json
from electra_tf.flops.budget import known_cost
from electra_tf.runs.directory import RunDirectory, run_in
from electra_tf.runs.json_lines import reports_of
from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.summary import SUMMARY, score_file
from electra_tf.tasks.pretrain.config import load_config


def run_facts(model_dir: str | os.PathLike, step: int) -> dict:
    """What is known of a checkpoint of a pre-training run, or of a seed of fine-tuning; keys as in `StoredModel`.

    Of pre-training: data, initial weights, FLOPs, the last evaluation until the step, and scores of models that were
    fine-tuned from it. Of fine-tuning: the encoder it began with, the last evaluation, and the scores of all seeds.

    Raises: UserError: if there is no run, or one of its files is damaged.
    """
    run = run_in(model_dir)
    facts = (_finetuning_facts if run.is_finetuned else _pretraining_facts)(run, step)
    return {name: value for name, value in facts.items() if value}


def _pretraining_facts(run: RunDirectory, step: int) -> dict:
    cost = known_cost(load_config(run.config_file))
    flops = {}
    if cost is not None:
        spent = cost.spent(step)
        flops = {"paper": float(spent.paper), "hardware": float(spent.hardware.total)}
    return {
        "data": read_json(run.data_file).get("data"),
        "init_from": read_json(run.warm_start_file).get("init_from"),
        "flops": flops,
        "evaluation": _evaluation(run, step),
        "scores": list(_milestone_scores(run, step)),
    }


def _finetuning_facts(run: RunDirectory, step: int) -> dict:
    config = validate(yaml.safe_load(read_bytes(run.config_file)), FinetuningConfig, run.config_file)
    file = os.path.join(os.path.dirname(run.path.rstrip("/")), SUMMARY)
    try:
        scores = list(_summary_scores(read_json(file)))
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{file} is not what run_finetuning.py writes; move it away, or give that command again") from (
            None
        )
    return {
        "init_from": config.init_from,
        "evaluation": _evaluation(run, step),
        "scores": [score for score in scores if score["task"] == config.name],
    }


def _evaluation(run: RunDirectory, step: int) -> dict[str, float]:
    """Metrics without a value are left out."""
    reports = [report for report in reports_of(run.metrics_file, "held_out") if report["step"] <= step]
    last = reports[-1] if reports else {}
    return {name: value for name, value in last.items() if name != "split" and value is not None}


def _milestone_scores(run: RunDirectory, step: int) -> Iterator[dict]:
    """Of every task on which `run_finetuning.py --milestones` has fine-tuned this step; of `glue` all tasks' own."""
    for name in scored_tasks(run.path):
        file = score_file(run.path, name)
        content = read_json(file)
        try:
            summary = read_json(os.path.join(content["output_dir"], f"step_{step}", SUMMARY))
            rows = [row for row in content["results"] if row["step"] == step]
            yield from list(_summary_scores(summary)) or (
                _score(content["task"], content["metric"], row) for row in rows
            )
        except (KeyError, TypeError, AttributeError):
            raise UserError(
                f"{file} is not what run_finetuning.py --milestones writes; give that command again, it continues"
            ) from None


def _score(task: str, metric: str, row: dict) -> dict:
    values = list(row["scores"].values())
    has_sigma = len(values) > 1 and None not in values
    sigma = statistics.stdev(values) if has_sigma else None
    return {"task": task, "metric": metric, "median": row["median"], "sigma": sigma, "n": len(values)}


def _summary_scores(summary: dict) -> Iterator[dict]:
    """The primary metric of each task in a summary.json, of one task or of several."""
    for task in summary.get("tasks", [summary] if summary else []):
        values = task["statistics"][task["primary_metric"]]
        numbers = {name: values[name] for name in ("median", "sigma", "n")}
        yield {"task": task["task"], "metric": task["primary_metric"], **numbers}


def scored_tasks(model_dir: str | os.PathLike) -> list[str]:
    """The tasks of which a pre-training run's directory holds scores."""
    begin, end = os.path.basename(score_file("", "*")).split("*")
    names = (name for name in sorted(names_in(model_dir)) if name.startswith(begin) and name.endswith(end))
    return [name.removeprefix(begin).removesuffix(end) for name in names]
