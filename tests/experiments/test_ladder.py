"""The slope of the gap between two arms over FLOPs."""

import math

import pytest

from experiments.replication.ladder import Slope, slope_of, slope_sentence

E = math.e


def test_the_slope_is_that_of_the_difference_of_two_lines():
    upper = [(1.0, 0.2), (1.0, 0.4), (E**2, 0.9), (E**2, 1.1)]  # 0.3 and 1.0
    lower = [(1.0, 0.5), (1.0, 0.7), (E**2, 0.7), (E**2, 0.9)]  # 0.6 and 0.8
    slope = slope_of(upper, lower)
    assert (slope.value, slope.gap) == pytest.approx((0.25, -0.05), abs=1e-12)
    # Every value is 0.1 from its line: a variance of 8 * 0.01 / 4. The slope of one arm has it over 4 * 1 ** 2.
    half = 2.776445 * math.sqrt(2 * 0.02 / 4)
    assert (slope.low, slope.high) == pytest.approx((0.25 - half, 0.25 + half), abs=1e-6)
    assert slope.crossing is None


def test_the_gap_crosses_zero_where_the_interval_of_the_slope_excludes_zero():
    upper = [(1.0, 0.30), (1.0, 0.31), (E**2, 1.0), (E**2, 1.01)]
    lower = [(1.0, 0.60), (1.0, 0.61), (E**2, 0.8), (E**2, 0.81)]
    slope = slope_of(upper, lower)
    assert slope.crossing == pytest.approx(E**1.2, rel=1e-9)  # -0.3 + 0.25 * log


@pytest.mark.parametrize(
    ("measured", "end"), [([1e10, 1e12], "0 at 1e+11 FLOPs."), ([1e12, 1e13], "0 at 1e+11 FLOPs, outside the rungs.")]
)
def test_a_crossing_beyond_the_runs_is_called_so(measured, end):
    # A gap of 0.02 * ln(10) at 10^12, and 0.02 more with each factor of e.
    slope = Slope(0.02, 0.01, 0.03, 0.02 * math.log(10), 12 * math.log(10))
    expected = "With ten times the FLOPs the gap changes by +4.61 points (+2.30 to +6.91); it is "
    assert slope_sentence(slope, measured) == expected + end


@pytest.mark.parametrize("runs", [[(1.0, 0.1), (E, 0.2)], [(2.0, 0.1), (2.0, 0.2), (2.0, 0.3)]])
def test_too_few_runs_or_one_rung_have_no_slope(runs):
    assert slope_of(runs, runs) is None
