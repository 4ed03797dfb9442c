"""Student's t distribution beside SciPy's."""

import math

import numpy as np
import pytest
from scipy import special

from seatrial.stats.student import stdtr, stdtrit

FREEDOM = [1.0, 1.5, 2.0, 3.0, 4.0, 7.3, 19.0, 40.0, 99.0, 399.0, 1e4, 1e6]
SHARES = [1e-9, 1e-6, 0.0005, 0.025, 0.2, 0.45, 0.499, 0.5, 0.501, 0.7, 0.975, 0.9995, 0.999999]


@pytest.mark.parametrize("freedom", FREEDOM)
def test_quantiles_are_those_of_scipy(freedom: float) -> None:
    expected = special.stdtrit(freedom, SHARES)
    np.testing.assert_allclose(stdtrit(freedom, SHARES), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("freedom", FREEDOM)
def test_shares_are_those_of_scipy(freedom: float) -> None:
    for t in (-1e6, -40.0, -3.3, -1.0, -1e-3, 0.0, 1e-9, 0.5, 2.0, 7.0, 1e3):
        assert stdtr(freedom, t) == pytest.approx(special.stdtr(freedom, t), rel=1e-8, abs=1e-300)


def test_arrays_are_taken_together_place_by_place() -> None:
    freedom, share = np.array([[3.0], [9.0]]), np.array([0.9, 0.99, 0.999])
    assert stdtrit(freedom, share).shape == (2, 3)
    np.testing.assert_allclose(stdtrit(freedom, share), special.stdtrit(freedom, share), rtol=1e-10)


def test_what_has_no_answer_is_nan_and_ends_are_infinite() -> None:
    assert all(
        math.isnan(float(stdtrit(freedom, share))) for freedom, share in ((0, 0.9), (-1, 0.9), (3, 1.5), (3, math.nan))
    )
    assert (float(stdtrit(3, 0)), float(stdtrit(3, 1))) == (-math.inf, math.inf)
    assert (stdtr(3, -math.inf), stdtr(3, math.inf)) == (0.0, 1.0)
    assert math.isnan(stdtr(3, math.nan))
