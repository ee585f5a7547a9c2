"""Classical inversions end by their criterion, which is tight enough, and say if they do not."""

from functools import cache, partial

import numpy as np
import pytest

from pdegen.domains import CellGrid, PeriodicGrid
from pdegen.equations.burgers import inversion as burgers
from pdegen.equations.burgers.solver import ColeHopf
from pdegen.equations.darcy import inversion as darcy
from pdegen.equations.darcy import log_inversion
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.inverse import gaussian, phases, tikhonov
from pdegen.inverse.classical import InverseProblem
from pdegen.inverse.gaussian import CircleModes
from pdegen.sampling.gaussian import PeriodicGaussianField, SquareGaussianField

N, POINTS, TESTED, LEVEL = 13, 32, 2, 0.01
FIELD = SquareGaussianField("neumann", 3.0, 3.0, 2.0, 2 * N)
CIRCLE = PeriodicGaussianField(sigma=25.0, tau=5.0, alpha=2.0, modes=12)
NU, TIME = 0.1 / (2 * np.pi), 1 / (2 * np.pi)


def on_finer_cells(a):
    fine = np.repeat(np.repeat(a, 3, axis=1), 3, axis=2)
    return FiniteVolume(CellGrid(3 * N))(fine)[:, 1::3, 1::3]


def two_phases():
    a = np.where(FIELD(CellGrid(N), 0, range(60)) >= 0, 12.0, 3.0)
    return a, on_finer_cells(a)


def log_normal():
    a = np.exp(FIELD(CellGrid(N), 0, range(20)))
    return a, on_finer_cells(a)


def waves():
    xi = np.random.default_rng(1).standard_normal((20, 24))
    grid = PeriodicGrid(8 * POINTS)
    u0 = CircleModes(CIRCLE.mode_stds, grid).field_of(xi)
    u = ColeHopf(grid, NU)(u0, TIME)[:, ::8]
    return u0[:, ::8], u


def forward(a):
    return np.random.default_rng(0).standard_normal((9, 9)) / 9 @ np.exp(a)


def any_map():
    a = np.sin(np.random.default_rng(2).uniform(1, 6, (20, 1)) * np.arange(9) / 9)
    return a, np.stack([forward(row) for row in a])


# samples, and the methods for an inverse problem
PROBLEMS = {
    "two phases": (two_phases, lambda s: darcy.inversions(s, FIELD, (3.0, 12.0), 1.0)),
    "log-normal": (log_normal, lambda s: log_inversion.log_inversions(s, FIELD, 1.0, 1.0)),
    "waves": (waves, lambda s: burgers.inversions(s, CIRCLE, NU, TIME)),
    "map": (any_map, lambda s: tikhonov.by_forward(forward, s)),
}
NAMES = {
    "two phases": (
        "total variation",
        "Tikhonov",
        "level set",
        "maximum a posteriori",
        "maximum a posteriori, level estimated",
    ),
    "log-normal": ("maximum a posteriori", "Tikhonov"),
    "waves": ("maximum a posteriori", "Tikhonov"),
    "map": ("Tikhonov",),
}
every_method = pytest.mark.parametrize(
    ("problem", "name"), [(problem, name) for problem, names in NAMES.items() for name in names]
)
LIMITED = (
    (darcy, "TotalVariation", "iterations"),
    (darcy, "Tikhonov", "iterations"),
    (darcy, "LevelSet", "limit"),
    (burgers, "GaussianInversion", "steps"),
    (log_inversion, "GaussianInversion", "steps"),
    (tikhonov, "TikhonovInversion", "steps"),
)
TOLERANCES = (
    (phases, "_SETTLED"),
    (gaussian, "_CONVERGED"),
    (tikhonov, "_CONVERGED"),
)


def limited(patch, limit):
    """Methods with other largest numbers of steps, each computed by `limit` from its default."""
    for module, name, field in LIMITED:
        method = getattr(module, name)
        patch.setattr(module, name, partial(method, **{field: limit(getattr(method, field))}))
    patch.setattr(darcy, "_EXTRA_STEPS", limit(darcy._EXTRA_STEPS))


def offered(problem, a, u):
    x = CellGrid(N).x if a.ndim == 3 else np.arange(a.shape[1]) / a.shape[1]
    return PROBLEMS[problem][1](InverseProblem(x, a, u))


def estimates(problem, name, level=LEVEL):
    """Estimates of the last samples, and their mean relative error."""
    a, u = PROBLEMS[problem][0]()
    method = offered(problem, a[:-TESTED], u[:-TESTED])[name]
    weight = method.weights[len(method.weights) // 2]
    invert, std = method.with_weight(weight), level * u.std(axis=0)
    noise = np.random.default_rng(3).standard_normal(u[-TESTED:].shape)
    found = [invert(d, std) for d in u[-TESTED:] + std * noise]
    errors = [np.linalg.norm(e.a - t) / np.linalg.norm(t)
              for e, t in zip(found, a[-TESTED:], strict=True)]  # fmt: skip
    return found, float(np.mean(errors))


as_they_are = cache(estimates)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_method_that_is_offered_is_tested(problem):
    assert tuple(offered(problem, *PROBLEMS[problem][0]())) == NAMES[problem]


@every_method
def test_ten_times_the_limit_changes_the_mean_error_by_less_than_two_percent(
    problem, name, monkeypatch
):
    found, error = as_they_are(problem, name)
    limited(monkeypatch, lambda limit: 10 * limit)
    assert estimates(problem, name)[1] == pytest.approx(error, rel=0.02)
    assert all(estimate.converged for estimate in found)
    assert all(estimate.iterations > 0 for estimate in found)


@every_method
def test_a_tighter_criterion_changes_the_mean_error_by_less_than_two_percent(
    problem, name, monkeypatch
):
    _, error = as_they_are(problem, name)
    for module, constant in TOLERANCES:
        monkeypatch.setattr(module, constant, getattr(module, constant) / 10)
    for method in ("TotalVariation", "Tikhonov"):
        rtol = getattr(darcy, method).rtol / 10
        monkeypatch.setattr(darcy, method, partial(getattr(darcy, method), rtol=rtol))
    assert estimates(problem, name)[1] == pytest.approx(error, rel=0.02)


@every_method
def test_a_limit_that_is_too_small_is_reported_as_not_converged(problem, name, monkeypatch):
    if name.endswith("level estimated"):
        name = "maximum a posteriori"  # the estimated level of so few points explains all misfits
    limited(monkeypatch, lambda _: 0)
    found, _ = estimates(problem, name, LEVEL / 10)
    assert not any(estimate.converged for estimate in found)


def test_a_single_short_step_does_not_end_the_steps():
    assert not tikhonov.settled([8.0, 4.0, 2.0, 1.999], 1e-2)
    assert tikhonov.settled([2.0, 2.0, 1.999, 1.998], 1e-2)
    assert not tikhonov.settled([2.0, 2.0, 2.0], 1e-2)


@pytest.mark.parametrize("method", [darcy.TotalVariation, darcy.Tikhonov])
@pytest.mark.parametrize("value", [3.0, 12.0, 1.0, 20.0])
def test_an_iteration_that_starts_at_or_reaches_a_minimum_has_converged(method, value):
    """Data of a constant coefficient, which is a phase or lies beyond both."""
    grid = CellGrid(16)
    d = FiniteVolume(grid)(np.full((1, 16, 16), value))[0]
    std = np.full_like(d, 0.01 * d.std())
    found = method(grid, grid.x, (3.0, 12.0), weight=0.1).estimate(d, std)
    assert found.converged
    np.testing.assert_allclose(found.a, np.clip(value, 3, 12), rtol=0.02)
