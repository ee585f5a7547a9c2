"""Levels of samples: the stated law, and numbers that depend on (seed, sample, epoch) alone."""

import numpy as np
import pytest
from scipy import stats

from pdegen.sampling.noise import EnsembleNoise, Levels
from tests.pdegen.test_noise import ALL, fields, std


@pytest.mark.parametrize("low", [0.0, 0.025])
def test_levels_have_the_stated_law(low: float) -> None:
    levels = Levels(low, 0.1)
    drawn = levels.drawn(3, range(4000))
    first = np.sqrt(low / 0.1)
    share = np.clip((levels.feature(drawn) - first) / (1 - first), 0, 1)  # sin⁴(πv/2)
    v = 2 / np.pi * np.arcsin(share**0.25)
    assert stats.kstest(v, "uniform").pvalue > 1e-3
    assert drawn.min() >= low
    assert drawn.max() <= 0.1
    np.testing.assert_allclose(levels.feature(drawn) ** 2 * 0.1, drawn, rtol=1e-14)


def test_levels_are_a_function_of_seed_sample_and_epoch() -> None:
    levels = Levels(0.0, 0.1)
    drawn = levels.drawn(1, range(100), epoch=2)
    np.testing.assert_array_equal(levels.drawn(1, [7, 99, 3], epoch=2), drawn[[7, 99, 3]])
    for other in (levels.drawn(2, range(100), epoch=2), levels.drawn(1, range(100), epoch=3)):
        # of 100 pairs, to four deviations
        assert abs(np.corrcoef(drawn, other)[0, 1]) < 0.4


def test_levels_say_nothing_of_the_noise() -> None:
    """The level of a sample and the size of its noise, of one number each."""
    u = np.zeros((2000, 1))
    noise = EnsembleNoise(1.0)(u, 5, range(2000), np.ones(1))[:, 0]
    assert abs(np.corrcoef(Levels(0.0, 1.0).drawn(5, range(2000)), noise)[0, 1]) < 0.09


@pytest.mark.parametrize("ends", [(0.1, 0.1), (0.1, 0.0), (-0.1, 0.1), (0.0, np.inf), (0, np.nan)])
def test_impossible_ranges_are_refused(ends: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"a range of levels has 0 <= low < high, got \["):
        Levels(*ends)


@ALL
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_levels_of_later_blocks_are_their_own(
    kind: type, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    u, sigma = fields((6, 8)), std((6, 8))
    levels = np.array([0.1, 0.3, 2.0, 0.0, 0.5])
    whole = kind(0.7).add(u, 1, range(5), sigma, 4, levels)
    monkeypatch.setattr("pdegen.sampling.noise._CACHE_POINTS", 48 * rows)
    found = kind(0.7).add(u, 1, range(5), sigma, 4, levels)
    np.testing.assert_array_equal(found, whole)


@ALL
def test_rows_with_levels_of_their_own_have_the_bits_of_these_levels(kind: type) -> None:
    u, sigma = fields((6, 8)).astype(np.float32), std((6, 8))
    levels = np.array([0.0, 0.3, 0.1, 0.3, 2.0])
    found = kind(0.7).add(u, 1, range(5), sigma, 4, levels)
    for row, level in enumerate(levels.tolist()):
        one = kind(level).add(u[row : row + 1], 1, [row], sigma, 4)
        np.testing.assert_array_equal(found[row], one[0])
