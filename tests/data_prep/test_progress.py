import logging

import pytest

from data_prep.progress import Progress, duration, thousands


class Clock:
    """Seconds that only the test moves."""

    def __init__(self):
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_line_has_share_speed_and_time_left(caplog):
    clock = Clock()
    progress = Progress(num_bytes=4_000_000, clock=clock)
    clock.now += 20
    with caplog.at_level(logging.INFO):
        progress.update(num_bytes=1_000_000, num_tokens=240_000)
    assert caplog.messages == ["25.0 % of 4.0 MB | 12 k tokens/s | ETA 0:01:00"]


def test_lines_are_seconds_apart(caplog):
    clock = Clock()
    progress = Progress(num_bytes=100, clock=clock)
    with caplog.at_level(logging.INFO):
        for num_bytes in range(1, 13):
            clock.now += 1
            progress.update(num_bytes, num_tokens=1)
    assert [message.split()[0] for message in caplog.messages] == ["5.0", "10.0"]


def test_what_an_earlier_run_has_done_counts_as_done_but_not_for_the_speed(caplog):
    clock = Clock()
    progress = Progress(num_bytes=4_000_000, clock=clock)
    progress.skip(num_bytes=2_000_000, num_tokens=500_000)
    clock.now += 20
    with caplog.at_level(logging.INFO):
        progress.update(num_bytes=3_000_000, num_tokens=740_000)
    assert caplog.messages == ["75.0 % of 4.0 MB | 12 k tokens/s | ETA 0:00:20"]


def test_thousands():
    assert thousands(1_234_567.8) == "1,235 k"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00:00"), (59.6, "0:01:00"), (3725.4, "1:02:05")])
def test_duration(seconds, text):
    assert duration(seconds) == text
