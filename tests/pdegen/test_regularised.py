"""Weights that the data choose: on a linear problem whose best weight is known, and on Darcy."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.equations.darcy.own_weight import by_known_level, by_unknown_level
from pdegen.inverse.covariance import Covariance, ModelError
from pdegen.inverse.observation import Separable
from pdegen.inverse.phases import Level
from pdegen.inverse.prior import Prior
from pdegen.inverse.regularised import PenalisedFit, by_discrepancy, by_l_curve, corner
from pdegen.inverse.variation import dirichlet_energy, total_variation
from pdegen.sampling.gaussian import SquareGaussianField

N = 16
GRID = CellGrid(N)
WEIGHTS = tuple(10.0 ** (1 - k / 2) for k in range(13))


@dataclass(frozen=True)
class Blurred:
    """u = K p Kᵀ, linear in p."""

    matrix: np.ndarray
    u: np.ndarray

    def jvp(self, dp):
        return self.matrix @ dp @ self.matrix.T

    def vjp(self, v):
        return self.matrix.T @ v @ self.matrix


@dataclass(frozen=True)
class Blur:
    matrix: np.ndarray

    def linearise(self, p):
        return Blurred(self.matrix, self.matrix @ p @ self.matrix.T)


@pytest.fixture(scope="module")
def level():
    rows = np.exp(-0.5 * ((GRID.x[:, None] - GRID.x) / 0.08) ** 2)
    blur = Blur(rows / rows.sum(axis=1, keepdims=True))
    prior = Prior(SquareGaussianField("neumann", 1.0, 1.0, 2.0, 4), GRID)
    whole = Separable(np.eye(N), np.eye(N))
    none = ModelError(np.zeros((N, N)), np.zeros((0, N, N)), 0.0)
    return Level(prior, blur, whole, none, widths=())


@pytest.fixture(scope="module")
def truth():
    x, y = np.meshgrid(GRID.x, GRID.x, indexing="ij")
    return (np.hypot(x - 0.5, y - 0.4) < 0.3).astype(float)


@pytest.fixture(scope="module")
def bump():
    x, y = np.meshgrid(GRID.x, GRID.x, indexing="ij")
    return 0.2 + 0.6 * np.exp(-((x - 0.5) ** 2 + (y - 0.4) ** 2) / 0.05)


def covariance(deviation):
    return Covariance(np.full((N, N), deviation), np.empty((0, N, N)))


def noisy(level, truth, deviation, seed=0):
    u = level.forward.linearise(truth).u
    return u + deviation * np.random.default_rng(seed).standard_normal(u.shape)


def error(minimiser, truth):
    return float(np.linalg.norm(minimiser.fraction - truth) / np.linalg.norm(truth))


PENALTIES = pytest.mark.parametrize("penalty", [total_variation, dirichlet_energy])


@PENALTIES
def test_penalties_have_their_gradients(penalty):
    p, direction = np.random.default_rng(0).uniform(0, 1, (2, 9, 9))
    slope = (penalty(p + 1e-6 * direction)[0] - penalty(p - 1e-6 * direction)[0]) / 2e-6
    assert np.sum(penalty(p)[1] * direction) == pytest.approx(slope, rel=1e-6)


@PENALTIES
def test_the_misfit_falls_and_the_penalty_grows_with_a_smaller_weight(level, truth, penalty):
    fit = PenalisedFit(level, penalty)
    path = list(fit.path(noisy(level, truth, 0.05), covariance(0.05), WEIGHTS))
    misfits, penalties = ([getattr(one, name) for one in path] for name in ("misfit", "penalty"))
    assert (np.diff(misfits) < 1e-3).all()
    # the tail of the path is where steps are tiny
    assert (np.diff(penalties) > -1e-2).all()
    for one in path:
        r = noisy(level, truth, 0.05) - level.forward.linearise(one.fraction).u
        assert one.misfit == pytest.approx(np.mean((r / 0.05) ** 2), rel=1e-6)


@pytest.mark.parametrize("deviation", [0.02, 0.1])
@pytest.mark.parametrize(
    ("penalty", "shape"), [(total_variation, "truth"), (dirichlet_energy, "bump")]
)
def test_the_corner_is_near_the_best_weight(level, penalty, shape, deviation, request):
    """Without the deviation: R is that of 1."""
    truth = request.getfixturevalue(shape)
    fit, data = PenalisedFit(level, penalty), noisy(level, truth, deviation)
    weights = [1e-2 * weight for weight in WEIGHTS]
    found, solves = by_l_curve(fit, data, covariance(1.0), weights)
    errors = [error(one, truth) for one in fit.path(data, covariance(1.0), weights)]
    assert error(found, truth) < 1.5 * min(errors)
    assert max(errors) > 3 * min(errors)  # so the weight matters
    assert 10 < solves < 2 * 50 * 14


@PENALTIES
@pytest.mark.parametrize("deviation", [0.02, 0.1])
def test_the_discrepancy_is_reached_by_the_largest_weight(level, truth, penalty, deviation):
    fit, data = PenalisedFit(level, penalty), noisy(level, truth, deviation)
    found, _ = by_discrepancy(fit, data, covariance(deviation), WEIGHTS)
    assert 0.5 < found.misfit <= 1
    place = WEIGHTS.index(found.weight)
    *_, before = fit.path(data, covariance(deviation), WEIGHTS[:place])
    assert before.misfit > 1
    more, _ = by_discrepancy(fit, data, covariance(2 * deviation), WEIGHTS)
    # of twice the deviation the data are told to fit less well
    assert more.penalty < found.penalty


def test_where_no_weight_fits_it_is_the_smallest(level, truth):
    fit, data = PenalisedFit(level, total_variation), noisy(level, truth, 0.1)
    found, _ = by_discrepancy(fit, data, covariance(0.01), WEIGHTS[:3])
    assert found.weight == WEIGHTS[2]
    assert found.misfit > 1


def test_the_corner_does_not_ask_for_the_unit():
    misfits = np.array([9.0, 3.0, 1.2, 1.0, 0.95])
    penalties = np.array([1.0, 1.1, 1.4, 3.0, 9.0])
    assert corner(misfits, penalties) == corner(1e-6 * misfits, 1e3 * penalties) == 2
    # a bend the other way is no corner: misfits that fall fast only after penalties have grown
    assert corner([9.0, 8.9, 8.8, 2.0, 0.5], [1.0, 3.0, 9.0, 9.1, 9.2]) != 2
    with pytest.raises(ValueError, match="at least 3 weights, got 2"):
        corner([1.0, 0.5], [1.0, 2.0])


@pytest.mark.parametrize("known", [True, False])
def test_what_the_model_misses_in_the_mean_is_taken_off_the_data(level, truth, known):
    """The data and the mean error of the model move together: the coefficient stays."""
    data, deviation = noisy(level, truth, 0.05), np.full((N, N), 0.05)
    missed = 0.5 * np.outer(GRID.x, 1 - GRID.x**2)

    def inverted(error, data):
        own, phases = replace(level, error=error), (3.0, 12.0)
        if known:
            return by_known_level(own, phases, dirichlet_energy)(data, deviation).a
        return by_unknown_level(own, phases, dirichlet_energy, deviation)(data, deviation).a

    expected = inverted(level.error, data)
    found = inverted(replace(level.error, mean=missed), data + missed)
    np.testing.assert_allclose(found, expected, atol=1e-2)
    assert np.ptp(expected) > 5
    assert abs(inverted(level.error, data + missed) - expected).max() > 1
