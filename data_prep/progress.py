"""How far a build is, on stderr."""

import logging
import time

_logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_LINES = 5.0


class Progress:
    """Logs, every few seconds, the share of bytes read, the speed and the time left.

    Args:
        num_bytes: of all input.
        clock: seconds, monotonic.
    """

    def __init__(self, num_bytes: int, clock=time.monotonic):
        self._num_bytes = num_bytes
        self._clock = clock
        self._begin = self._last_line = clock()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self._clock() - self._begin

    def update(self, num_bytes: int, num_tokens: int) -> None:
        """Takes the totals so far; logs a line if the last one is long enough ago."""
        now = self._clock()
        if now - self._last_line < _SECONDS_BETWEEN_LINES or not num_bytes:
            return
        self._last_line = now
        elapsed = now - self._begin
        _logger.info(
            "%.1f %% of %.1f MB | %s tokens/s | ETA %s",
            100 * num_bytes / self._num_bytes,
            self._num_bytes / 1e6,
            thousands(num_tokens / elapsed),
            duration(elapsed * (self._num_bytes - num_bytes) / num_bytes),
        )


def thousands(number: float) -> str:
    """1234567.8 -> "1,235 k"."""
    return f"{number / 1e3:,.0f} k"


def duration(seconds: float) -> str:
    """3725.4 -> "1:02:05"."""
    minutes, whole_seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{whole_seconds:02d}"
