"""How far a build is, on stderr."""

import logging
import time

from electra_tf.text.manifest import HELD_OUT_SPLIT, Manifest

_logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_LINES = 5.0

# Of text in sentences some 85 % are kept at length 128, of paragraphs some 63 %.
_MIN_USUAL_KEPT_FRACTION = 0.7


class Progress:
    """Logs, every few seconds, the share of bytes read, the speed and the time left.

    Args:
        num_bytes: of all input.
        clock: seconds, monotonic.
        counted: what the speed is told in, a plural.
    """

    def __init__(self, num_bytes: int, clock=time.monotonic, counted: str = "tokens"):
        self._num_bytes = num_bytes
        self._counted = counted
        self._clock = clock
        self._begin = self._last_line = clock()
        self._num_bytes_skipped = self.num_tokens_skipped = 0

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self._clock() - self._begin

    def skip(self, num_bytes: int, num_tokens: int) -> None:
        """Takes what an earlier run has done: it counts as done, but not for the speed."""
        self._num_bytes_skipped += num_bytes
        self.num_tokens_skipped += num_tokens

    def update(self, num_bytes: int, num_tokens: int) -> None:
        """Takes the totals so far, what was skipped included; logs a line if the last one is long enough ago."""
        now = self._clock()
        num_bytes_now = num_bytes - self._num_bytes_skipped
        if now - self._last_line < _SECONDS_BETWEEN_LINES or not num_bytes_now:
            return
        self._last_line = now
        elapsed = now - self._begin
        _logger.info(
            "%.1f %% of %.1f MB | %s %s/s | ETA %s",
            100 * num_bytes / self._num_bytes,
            self._num_bytes / 1e6,
            thousands((num_tokens - self.num_tokens_skipped) / elapsed),
            self._counted,
            duration(elapsed * (self._num_bytes - num_bytes) / num_bytes_now),
        )


def log_summary(manifest: Manifest, seconds: float, num_tokens: int) -> None:
    """Logs what a data set holds and what was left out of it.

    Args:
        seconds: that the build took.
        num_tokens: read in this time: fewer than all where an earlier run had begun.
    """
    counts = manifest.counts
    left_out = {
        **counts.num_documents_skipped,
        "too short": counts.num_documents_too_short,
        "without a token": counts.num_documents_without_tokens,
        "duplicate": counts.num_documents_duplicate,
    }
    if any(left_out.values()):
        reasons = ", ".join(f"{number} {reason}" for reason, number in left_out.items() if number)
        _logger.info("left out: %s", reasons)
    if counts.num_tokens_kept < _MIN_USUAL_KEPT_FRACTION * counts.num_tokens_read:
        _logger.warning(
            "warning: only %.0f %% of the tokens are kept: long lines lose what overflows an example, duplicates are"
            " dropped; --sentences=split cuts lines into sentences",
            100 * counts.num_tokens_kept / counts.num_tokens_read,
        )
    splits = manifest.splits.values()
    _logger.info(
        "%d documents (%d held out) | %d examples | %d tokens read, %d kept | %s | %s tokens/s | %.1f MB on disk",
        counts.num_documents,
        manifest.splits[HELD_OUT_SPLIT].num_documents if HELD_OUT_SPLIT in manifest.splits else 0,
        sum(split.num_examples for split in splits),
        counts.num_tokens_read,
        counts.num_tokens_kept,
        duration(seconds),
        thousands(num_tokens / seconds),
        sum(shard.num_bytes for split in splits for shard in split.shards) / 1e6,
    )


def thousands(number: float) -> str:
    """1234567.8 -> "1,235 k"."""
    return f"{number / 1e3:,.0f} k"


def duration(seconds: float) -> str:
    """3725.4 -> "1:02:05"."""
    minutes, whole_seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{whole_seconds:02d}"
