"""What a run says of itself while it trains: one line a report on the terminal, one JSON object a report in a file."""

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from electra_tf.config.errors import UserError
from electra_tf.flops.budget import RunCost
from electra_tf.runs.disk import DISK_ERRORS, Backlog, disk_reason
from electra_tf.runs.run_directory import RATES, RunDirectory
from electra_tf.runs.tensorboard_events import EventWriter
from electra_tf.train.device_peak import Peak

logger = logging.getLogger(__name__)


class TrainingReporter:
    """Prints progress and appends to metrics.jsonl and TensorBoard's events.

    A line is written and flushed as a whole, so a kill leaves at most one torn line, the last. What a full disk does
    not take is kept, and no checkpoint is to stand for it until it is written: see `sync`.

    Args:
        directory: of the run; None for workers that write nothing.
        first_step, num_steps: where this call starts and where the run ends, for the time left.
        cost: what the steps of the run take; None: nothing is said of it.
        peak: what all devices together could reach; None: no utilisation is reported.
    """

    def __init__(
        self,
        directory: RunDirectory | None,
        first_step: int,
        num_steps: int,
        cost: RunCost | None = None,
        peak: Peak | None = None,
    ):
        self._directory = directory
        self._events = {
            split: EventWriter(directory.tensorboard / split if directory else None) for split in ("train", "held_out")
        }
        self._lines = Backlog[tuple[Path, dict]](_append)
        self._new_events = Backlog[tuple[str, int, dict]](self._write_event)
        self._num_steps = num_steps
        self._cost, self._peak = cost, peak
        self._has_doubted_the_peak = False
        self._last_step, self._last_time = first_step, time.monotonic()
        # What comes before holds the compilation; the time left is judged by what follows.
        self._steady_since: tuple[int, float] | None = None

    def start_interval(self, step: int) -> None:
        """The rates of the next report count from here: the first step of an input, which compiles, is over."""
        self._last_step, self._last_time = step, time.monotonic()
        self._steady_since = self._steady_since or (step, self._last_time)

    def rates(self, step: int, batch_size: int, tokens_per_example: int) -> dict[str, float]:
        """What was done a second since the last report; a new interval starts.

        Returns: `examples_per_second`, `tokens_per_second` (with padding), and where cost and peak are known
            `model_flops_utilization`: the matrix products of the model as a share of what the devices could reach,
            which is `peak_flops`, FLOP/s. What is computed again to save memory does not count.
        """
        first_step, seconds = self._last_step, max(time.monotonic() - self._last_time, 1e-9)
        self.start_interval(step)
        examples = (step - first_step) * batch_size / seconds
        rates = {"examples_per_second": examples, "tokens_per_second": examples * tokens_per_example}
        if self._cost is not None and self._peak is not None:
            done = self._cost.spent(step).hardware.products - self._cost.spent(first_step).hardware.products
            rates["model_flops_utilization"] = done / seconds / self._peak.flops_per_second
            rates["peak_flops"] = self._peak.flops_per_second
            self._doubt_the_peak(step, rates["model_flops_utilization"])
        return rates

    def _doubt_the_peak(self, step: int, utilization: float) -> None:
        """Says once that no device does more than it can."""
        if utilization <= 1.0 or self._has_doubted_the_peak:
            return
        self._has_doubted_the_peak = True
        logger.warning(
            "step %d: model_flops_utilization is %.3g, so the peak of %.4g FLOP/s (%s) is too low; state a device's as "
            "train.peak_flops",
            step,
            utilization,
            *self._peak,
        )

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """A context whose duration (an evaluation, a checkpoint) counts for no rate."""
        started = time.monotonic()
        yield
        self._shift(time.monotonic() - started)

    def train(self, step: int, metrics: dict[str, float]) -> None:
        """Reports means over the steps since the last report, and what all steps so far took.

        Args:
            metrics: the means, and what `rates` returns.
        """
        spent = self._spent(step)
        self._report(step, "train", {**metrics, **spent})
        shown = ["loss", *sorted(set(metrics) - _NOT_SHOWN)]
        parts = [f"step {step}/{self._num_steps}", *(f"{name} {metrics[name]:.4g}" for name in shown)]
        parts += [
            f"{metrics['examples_per_second']:.1f} examples/s",
            f"{metrics['tokens_per_second'] / 1e3:.1f} k tokens/s",
        ]
        if spent:
            parts.append(f"{spent['hardware_flops']:.3g} FLOPs")
        if "model_flops_utilization" in metrics:
            parts.append(f"mfu {metrics['model_flops_utilization']:.2g}")
        self._say(" | ".join([*parts, f"ETA {self._time_left(step)}"]))

    def evaluation(self, step: int, metrics: dict[str, float]) -> None:
        """Reports metrics of the held-out split."""
        self._report(step, "held_out", metrics)
        self._say(f"step {step} held out | " + " | ".join(f"{name} {value:.4g}" for name, value in metrics.items()))

    def alarm(self, step: int, message: str) -> None:
        """Says that the training goes wrong."""
        if self._directory is not None:
            self._lines.put((self._directory.alarms_file, {"step": step, "message": message}))
        self._say(f"step {step} ALARM | {message}")

    def sync(self) -> None:
        """Has the reports on disk before the checkpoint that stands for them, should the machine lose its power.

        TensorBoard's events are tried, and hold no checkpoint back: metrics.jsonl has all that they say.

        Raises: one of `DISK_ERRORS`: if the disk does not take the lines of metrics.jsonl.
        """
        self._lines.empty()
        if self._directory is not None and self._directory.metrics_file.exists():
            with open(self._directory.metrics_file, "ab") as stream:
                os.fsync(stream.fileno())
        with contextlib.suppress(*DISK_ERRORS):
            self._new_events.empty()

    def close(self) -> None:
        """Raises: UserError: if there are reports that the disk did not take to the end."""
        try:
            self.sync()
            self._new_events.empty()
        except DISK_ERRORS as error:
            raise UserError(
                f"the last reports could not be written to {self._directory.path} ({disk_reason(error)}); make room "
                "and give the same command again"
            ) from None
        finally:
            for writer in self._events.values():
                writer.close()

    def _spent(self, step: int) -> dict[str, float]:
        """What the run took up to a step: a function of the step, so a run that continues goes on with the same."""
        if self._cost is None:
            return {}
        spent = self._cost.spent(step)
        return {
            "examples_seen": spent.examples,
            "token_slots_seen": spent.token_slots,
            "paper_flops": float(spent.paper),
            "hardware_flops": float(spent.hardware.total),
        }

    def _report(self, step: int, split: str, metrics: dict[str, float]) -> None:
        if self._directory is None:
            return
        # JSON has no NaN (a precision with nothing predicted, say): null.
        values = {name: value if value == value else None for name, value in metrics.items()}
        self._lines.put((self._directory.metrics_file, {"step": step, "split": split, **values}))
        self._new_events.put((split, step, metrics))

    def _write_event(self, report: tuple[str, int, dict]) -> None:
        split, step, metrics = report
        self._events[split].write(step, metrics)

    def _time_left(self, step: int) -> str:
        assert self._steady_since is not None, "rates() comes before train()"
        since_step, since_time = self._steady_since
        if step == since_step:
            return "unknown"
        seconds = (self._num_steps - step) * (time.monotonic() - since_time) / (step - since_step)
        minutes, seconds = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"

    def _say(self, line: str) -> None:
        if self._directory is None:
            return
        # A terminal that was closed, or a pipe whose reader has ended, ends no training: what counts is in the files.
        with contextlib.suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)

    def _shift(self, seconds: float) -> None:
        self._last_time += seconds
        if self._steady_since is not None:
            self._steady_since = (self._steady_since[0], self._steady_since[1] + seconds)


_NOT_SHOWN = {"loss", "gradient_norm", "learning_rate", *RATES}


def _append(line: tuple[Path, dict]) -> None:
    jsonl_file, values = line
    size = jsonl_file.stat().st_size if jsonl_file.exists() else 0
    try:
        with open(jsonl_file, "a", encoding="utf-8") as stream:  # one write, when it is closed
            stream.write(json.dumps(values) + "\n")
    except OSError:
        if jsonl_file.exists():
            os.truncate(jsonl_file, size)
        raise
