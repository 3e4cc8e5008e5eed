"""What a run says of itself while it trains: one line a report on the terminal, one JSON object a report in a file."""

import json
import sys
import time
from pathlib import Path


class TrainingReporter:
    """Prints progress and appends to metrics.jsonl.

    Args:
        metrics_file: appended to; None for workers that write nothing.
        first_step, num_steps: where this call starts and where the run ends, for the time left.
        batch_size, tokens_per_example: for the rates.
    """

    def __init__(
        self, metrics_file: Path | None, first_step: int, num_steps: int, batch_size: int, tokens_per_example: int
    ):
        self._metrics_file = metrics_file
        self._num_steps = num_steps
        self._batch_size = batch_size
        self._tokens_per_example = tokens_per_example
        self._last_step, self._last_time = first_step, time.monotonic()
        # The very first report holds the compilation; the time left is judged by what follows it.
        self._steady_since: tuple[int, float] | None = None

    def rates(self, step: int) -> dict[str, float]:
        """`examples_per_second` and `tokens_per_second` (with padding) since the last report; a new interval starts."""
        now = time.monotonic()
        examples = (step - self._last_step) * self._batch_size / max(now - self._last_time, 1e-9)
        self._last_step, self._last_time = step, now
        if self._steady_since is None:
            self._steady_since = (step, now)
        return {"examples_per_second": examples, "tokens_per_second": examples * self._tokens_per_example}

    def pause(self) -> "_Pause":
        """A context whose duration (an evaluation, a checkpoint) counts for no rate."""
        return _Pause(self)

    def train(self, step: int, metrics: dict[str, float]) -> None:
        """Reports means over the steps since the last report; `metrics` includes the rates."""
        self._append(step, "train", metrics)
        shown = ["loss", *sorted(set(metrics) - _NOT_SHOWN)]
        parts = [f"step {step}/{self._num_steps}", *(f"{name} {metrics[name]:.4g}" for name in shown)]
        parts += [
            f"{metrics['examples_per_second']:.1f} examples/s",
            f"{metrics['tokens_per_second'] / 1e3:.1f} k tokens/s",
        ]
        self._say(" | ".join([*parts, f"ETA {self._time_left(step)}"]))

    def evaluation(self, step: int, metrics: dict[str, float]) -> None:
        """Reports metrics of the held-out split."""
        self._append(step, "held_out", metrics)
        self._say(f"step {step} held out | " + " | ".join(f"{name} {value:.4g}" for name, value in metrics.items()))

    def _append(self, step: int, split: str, metrics: dict[str, float]) -> None:
        if self._metrics_file is None:
            return
        # JSON has no NaN (a precision with nothing predicted, say): null.
        values = {name: value if value == value else None for name, value in metrics.items()}
        with open(self._metrics_file, "a", encoding="utf-8") as stream:
            stream.write(json.dumps({"step": step, "split": split, **values}) + "\n")

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
        if self._metrics_file is not None:
            print(line, file=sys.stderr, flush=True)

    def _shift(self, seconds: float) -> None:
        self._last_time += seconds
        if self._steady_since is not None:
            self._steady_since = (self._steady_since[0], self._steady_since[1] + seconds)


_NOT_SHOWN = {"loss", "gradient_norm", "learning_rate", "examples_per_second", "tokens_per_second"}


class _Pause:
    def __init__(self, reporter: TrainingReporter):
        self._reporter = reporter

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(self, *_) -> None:
        self._reporter._shift(time.monotonic() - self._started)
