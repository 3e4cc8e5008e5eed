"""Reports of a run while it trains: a line on the terminal, a JSON object in metrics.jsonl, TensorBoard events.

And which of its evaluations was the best.
"""

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm.auto import tqdm

from electra_tf.config.errors import UserError, did_you_mean
from electra_tf.config.schema import EvaluationConfig, lower_is_better
from electra_tf.files import is_remote, read_bytes, store_errors, sync, write_atomically
from electra_tf.flops.budget import RunCost
from electra_tf.tasks.base import Task
from electra_tf.train.plateau_alarm import PlateauAlarm
from electra_tf.train.run_directory import RunDirectory

_NUM_NAMED = 5  # weights in a message
_LONGEST_LINE = 120  # characters of a short line on the terminal
_NOT_SHOWN = {"gradient_norm", "learning_rate"}


class Reporter:
    """Prints progress and writes metrics.jsonl, alarms.jsonl and TensorBoard's events.

    Args:
        directory: the run's directory; None for workers that write nothing.
        first_step: the step at which this call starts.
        num_steps: the step at which the run ends, for the time left.
        cost: the FLOPs of the run's steps; None: FLOPs are not reported.
        peak: the peak FLOP/s of all devices together; None: no utilisation is reported.
        alarm: observes the reports of training; None: no alarms.
    """

    def __init__(
        self,
        directory: RunDirectory | None,
        first_step: int,
        num_steps: int,
        cost: RunCost | None = None,
        peak: float | None = None,
        alarm: PlateauAlarm | None = None,
    ):
        self._is_on = directory is not None
        if directory is not None:
            self._metrics = JsonLines(directory.metrics_file, first_step)
            self._alarms = JsonLines(directory.alarms_file, first_step)
            self._events = {
                split: tf.summary.create_file_writer(os.path.join(directory.tensorboard, split))
                for split in ("train", "held_out")
            }
        self._num_steps = num_steps
        self._cost, self._peak, self._alarm = cost, peak, alarm
        self._bar: tqdm | None = None  # in a notebook, in place of the lines of training
        self._seconds_paused = 0.0
        self._last_step, self._last_time = first_step, self._now()
        # The time left is estimated without the first step, which compiles.
        self._steady_since: tuple[int, float] | None = None

    def start_interval(self, step: int) -> None:
        """Starts the interval of the next report's rates. Call it after the first step of a stage, which compiles."""
        self._last_step, self._last_time = step, self._now()
        self._steady_since = self._steady_since or (step, self._last_time)

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Leaves the duration of a `with` block (an evaluation or a checkpoint) out of all rates."""
        started = time.monotonic()
        yield
        self._seconds_paused += time.monotonic() - started

    def train(self, task: Task, step: int, means: dict[str, float], batch_size: int, tokens_per_example: int) -> None:
        """Reports means since the last report, their rates, the FLOPs of all steps so far, and alarms."""
        if not self._is_on:
            return
        metrics = {**means, **self._rates(step, batch_size, tokens_per_example)}
        spent: dict[str, float] = {}
        if self._cost is not None:
            cost = self._cost.spent(step)
            spent = {
                "examples_seen": cost.examples,
                "token_slots_seen": cost.token_slots,
                "paper_flops": float(cost.paper),
                "hardware_flops": float(cost.hardware.total),
            }
        self._report(step, "train", {**metrics, **spent})
        rate = metrics["examples_per_second"]
        speed = f"{rate:.{0 if rate >= 100 else 1}f} examples/s"
        if task.config.train.log_metrics == "all":
            speed += f", {metrics['tokens_per_second'] / 1e3:.1f} k tokens/s"
            speed += f", {spent['hardware_flops']:.3g} FLOPs" if spent else ""
            if "model_flops_utilization" in metrics:
                speed += f", mfu {metrics['model_flops_utilization']:.2g}"
        begin, end = f"step {step}/{self._num_steps} | ", f" | {speed}, ETA {self._time_left(step)}"
        shown = {name: value for name, value in means.items() if name not in _NOT_SHOWN}
        text = describe_metrics(task, shown, _LONGEST_LINE - len(begin + end))
        if "ipykernel" in sys.modules:  # a notebook
            self._bar = self._bar or tqdm(total=self._num_steps, initial=step, unit="step")
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(step - self._bar.n)
        else:
            self._print(begin + text + end)
        if self._alarm is not None and (message := self._alarm.observe(step, metrics)):
            self._alarms.append({"step": step, "message": message})
            self._print(f"step {step} ALARM | {message}")

    def evaluation(self, task: Task, step: int, metrics: dict[str, float]) -> None:
        """Reports metrics of the held-out split; on the terminal, those of each source of a mixture are a line."""
        if not self._is_on:
            return
        self._report(step, "held_out", metrics)
        sources: dict[str, dict[str, float]] = {}
        for name, value in metrics.items():
            source, _, metric = name.rpartition("/")
            sources.setdefault(source and f", {source}", {})[metric] = value
        for source, values in sources.items():
            begin = f"step {step} held out{source} | "
            self._print(begin + describe_metrics(task, values, _LONGEST_LINE - len(begin)))

    def versions(self, step: int, versions: dict[str, str]) -> None:
        """Records that a call continues the run with another version."""
        if self._is_on:
            self._metrics.append({"step": step, "split": "versions", **versions})

    def flush(self) -> None:
        """Writes all reports so far. Call it before a checkpoint of their step.

        Raises: UserError: if a file cannot be written.
        """
        if self._is_on:
            self._metrics.flush()
            self._alarms.flush()

    def close(self) -> None:
        """Writes all reports and closes the files of events. Raises: UserError: as `flush`."""
        self.flush()
        if self._is_on:
            for writer in self._events.values():
                writer.close()
        if self._bar is not None:
            self._bar.close()

    def _rates(self, step: int, batch_size: int, tokens_per_example: int) -> dict[str, float]:
        """The speed since the last report; starts a new interval.

        Returns: `examples_per_second`, `tokens_per_second` (with padding), and, where cost and peak are known,
            `model_flops_utilization`: the model's matrix products as a fraction of `peak_flops` (FLOP/s), without
            what is computed again to save memory.
        """
        first_step, seconds = self._last_step, max(self._now() - self._last_time, 1e-9)
        self.start_interval(step)
        examples = (step - first_step) * batch_size / seconds
        rates = {"examples_per_second": examples, "tokens_per_second": examples * tokens_per_example}
        if self._cost is not None and self._peak is not None:
            products = self._cost.spent(step).hardware.products - self._cost.spent(first_step).hardware.products
            rates["model_flops_utilization"] = products / seconds / self._peak
            rates["peak_flops"] = self._peak
        return rates

    def _report(self, step: int, split: str, metrics: dict[str, float]) -> None:
        # JSON has no NaN, which a precision is if nothing was predicted; null is written.
        values = {name: value if value == value else None for name, value in metrics.items()}
        self._metrics.append({"step": step, "split": split, **values})
        with self._events[split].as_default(step):
            for tag, value in metrics.items():
                tf.summary.scalar(tag, value)
        self._events[split].flush()

    def _now(self) -> float:
        """Seconds on a clock that stands still in a `pause`."""
        return time.monotonic() - self._seconds_paused

    def _time_left(self, step: int) -> str:
        assert self._steady_since is not None, "_rates() comes first"
        since_step, since_time = self._steady_since
        if step == since_step:
            return "unknown"
        seconds = (self._num_steps - step) * (self._now() - since_time) / (step - since_step)
        for unit, length in (("h", 3600), ("min", 60)):
            if seconds >= length:
                return f"{seconds / length:.1f} {unit}"
        return f"{seconds:.0f} s"

    def _print(self, line: str) -> None:
        # Ctrl-C also ends the `tee` of `2>&1 | tee LOG`. The run must still save its checkpoint.
        with contextlib.suppress(OSError, ValueError):
            write = print if self._bar is None else self._bar.write
            write(line, file=sys.stderr)


def describe_metrics(task: Task, metrics: Mapping[str, float], room: int) -> str:
    """The metrics of a report for the terminal: all, or with `train.log_metrics: short` those of `Task.headline`.

    Args: room: the most characters of a short text; the metrics beyond are left out.
    """
    known = {name: value for name, value in metrics.items() if value == value}
    if task.config.train.log_metrics == "all":
        return ", ".join(f"{name} {value:.4g}" for name, value in known.items())
    shown: dict[str, float | None] = {name: None for name in ("loss", "nonfinite_steps") if name in known}
    shown |= task.headline(known) or dict.fromkeys(known)
    parts = [
        f"{name.removesuffix('_loss')} {known[name]:.3g}" + ("" if baseline is None else f" vs {baseline:.3g}")
        for name, baseline in shown.items()
    ]
    while len(", ".join(parts)) > room and len(parts) > 1:
        parts.pop()
    return ", ".join(parts)


class JsonLines:
    """Appends JSON objects to a file, one a line. First removes the lines of steps that a continued run repeats.

    Lines are appended to a local file at once, so a kill cuts off at most the last one. A store cannot append: there
    `flush`, which is called before each checkpoint, writes the file anew.

    Args:
        last_step: lines of later steps are removed.
    """

    def __init__(self, path: str, last_step: int):
        self._path, self._is_written = path, True
        before = read_bytes(path) or b""
        self._content = b"".join(line + b"\n" for line in before.splitlines() if _is_within(line, last_step))
        if self._content != before:  # also where only the last line's end is missing
            write_atomically(path, self._content)

    def append(self, values: dict[str, Any]) -> None:
        """Adds a line. Raises: UserError: it cannot be written."""
        line = json.dumps(values).encode() + b"\n"
        if is_remote(self._path):
            self._content, self._is_written = self._content + line, False
            return
        with store_errors(self._path, "cannot be written"), open(self._path, "ab") as stream:
            stream.write(line)

    def flush(self) -> None:
        """Writes a remote file if it has new lines; waits for the disk of a local one. Raises: UserError: it fails."""
        if not self._is_written:
            write_atomically(self._path, self._content)
            self._is_written = True
        if os.path.exists(self._path):
            with store_errors(self._path, "cannot be written"):
                sync(self._path)


def _is_within(line: bytes, last_step: int) -> bool:
    """True for a line of a step up to `last_step`; False if a kill has cut it off."""
    try:
        return json.loads(line)["step"] <= last_step
    except ValueError:
        return False


def require_metric(best_metric: str, known: Collection[str]) -> None:
    """Raises: UserError: `evaluation.best_metric` is not one of the known held-out metrics."""
    if best_metric not in known:
        raise UserError(f"evaluation.best_metric={best_metric} is not a metric{did_you_mean(best_metric, known)}")


class BestScore:
    """Finds the best evaluation of a run by one held-out metric; among equal scores the first one.

    A continued run first observes the evaluations in its metrics.jsonl.
    """

    def __init__(self, config: EvaluationConfig):
        self._metric, self._patience = config.best_metric, config.patience
        self._scores: dict[int, float] = {}

    def observe(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Records the evaluation of a step. Raises: UserError: if it lacks `evaluation.best_metric`."""
        if self._metric is None:
            return
        require_metric(self._metric, [name for name in metrics if name not in ("step", "split")])
        value = metrics[self._metric]
        if value is None or math.isnan(value):
            self._scores[step] = -math.inf
        else:
            self._scores[step] = -value if lower_is_better(self._metric) else value

    def is_best(self, step: int) -> bool:
        """Whether the evaluation of this step is the best one so far."""
        return step in self._scores and step == self._best_step()

    def has_stalled(self) -> bool:
        """Whether the last `evaluation.patience` evaluations were no better than one before them."""
        if not self._patience or not self._scores:
            return False
        return sum(step > self._best_step() for step in self._scores) >= self._patience

    def _best_step(self) -> int:
        return max(sorted(self._scores), key=self._scores.__getitem__)


def explain_nonfinite(task: Task, step: int, metrics: Mapping[str, tf.Tensor]) -> str:
    """Returns one line on a failed step: its losses, the norm of its gradients, broken weights, and what to do.

    Args:
        task: with the weights from before the step.
        step: the number of steps before the failed one. The message names step + 1.
        metrics: of the failed step, see `metric_names`.
    """
    shown = ", ".join(f"{name} {float(metrics[name]):.4g}" for name in (*task.term_names, "gradient_norm"))
    message = f"the loss or a gradient of step {step + 1} is not finite ({shown})"
    # The last ones first, as they are nearest to the losses.
    broken = [each.path for each in task.trained_variables if not np.isfinite(each.numpy()).all()][::-1]
    if broken:
        more = len(broken) - _NUM_NAMED
        message += "; weights not finite before it: " + ", ".join(broken[:_NUM_NAMED])
        message += f" and {more} more" if more > 0 else ""
    skip = "" if broken else "continue with train.on_nonfinite=skip, or "
    precise = "" if task.config.train.precision == "float32" else ", train.precision=float32"
    return (
        f"{message}; usual causes: a learning rate that is too high, a warm-up that is too short; the step "
        f"changed nothing: {skip}start again with a lower optimizer.learning_rate{precise} or more "
        "optimizer.warmup_steps"
    )
