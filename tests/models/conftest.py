"""What the tests of samplers share."""

import math
from collections.abc import Callable

import numpy as np
import pytest


@pytest.fixture(scope="session")
def follows() -> Callable[..., bool]:
    """`follows(drawn, masses)`: whether tokens were drawn in these proportions, by a chi-squared test.

    The bound is five standard deviations above the mean of that distribution.
    """

    def test(drawn: np.ndarray, masses) -> bool:
        expected = drawn.size * np.array(masses, np.float64) / np.sum(masses)
        counts, possible = np.bincount(drawn.ravel(), minlength=len(expected)), expected > 0
        assert not counts[~possible].any()
        degrees = np.count_nonzero(possible) - 1
        chi_squared = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
        return bool(chi_squared < degrees + 5 * math.sqrt(2 * degrees))

    return test
