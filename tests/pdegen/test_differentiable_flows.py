"""PyTorch's derivatives through the solvers in Fourier space: Taylor's remainder, and no others."""

import numpy as np
import pytest
import torch

from pdegen.domains import PeriodicGrid
from pdegen.equations.semilinear.problem import SemilinearProblem
from pdegen.equations.semilinear.solver import integrator
from pdegen.equations.vorticity.solver import Flow
from pdegen.numerics.semilinear import Semilinear
from pdegen.numerics.spectral import Torus
from pdegen.recipe import load_recipe
from tests.pdegen.small import SEMILINEAR

pytestmark = pytest.mark.usefixtures("shapes")

GRID = PeriodicGrid(64)
X = GRID.x
U0 = np.stack([np.sin(2 * np.pi * X), 0.3 + np.cos(2 * np.pi * X) + 0.2 * np.sin(6 * np.pi * X)])
STEPS = (4e-2, 2e-2, 1e-2)


def orders(number, start, direction, steps=STEPS):
    """Orders of the remainder of Taylor's formula with the gradient by PyTorch."""
    at = start.clone().requires_grad_()
    value = number(at)
    value.backward()
    slope = torch.sum(at.grad * direction)
    with torch.no_grad():
        left = [float(number(start + t * direction) - value - t * slope) for t in steps]
    return np.log2(np.abs(np.divide(left[:-1], left[1:])))


def noise(shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def flow(tolerance=1e-2, dt=0.02):
    torus = Torus((PeriodicGrid(24),) * 2)
    like = torch.zeros(1, dtype=torch.float64)
    return Flow(torus, 0.01, 0.1).solver(like, dt, tolerance)


def vorticities(torus, seed=0, size=1.0, batch=2):
    """Vorticities with modes up to 3 and zero mean."""
    rng = np.random.default_rng(seed)
    w = np.fft.fft2(rng.standard_normal((batch, 1, *torus.points)))
    k = np.abs(np.fft.fftfreq(torus.points[0], 1 / torus.points[0]))
    w *= (k[:, None] <= 3) & (k <= 3) & (k[:, None] + k > 0)
    return torch.from_numpy(size * np.fft.ifft2(w).real)


def march(solver: Semilinear, u0, times):
    return solver.solve(solver.torus.to_modes(u0), times)


def test_vorticity_by_its_initial_values():
    solver = flow()
    torus = solver.torus
    weights, w0 = noise((2, 2, 1, 24, 24), 1), vorticities(torus)
    found = orders(
        lambda w: (weights * torus.to_points(march(solver, w, [0.1, 0.3]).v)).sum(),
        w0, vorticities(torus, 5),
    )  # fmt: skip
    assert found == pytest.approx(2, abs=0.1)


def test_integrals_of_vorticity_have_derivatives_and_errors_none():
    solver = flow()
    w0 = vorticities(solver.torus)
    found = orders(
        lambda w: march(solver, w, [0.3]).integrals.sum(), w0, vorticities(solver.torus, 5)
    )
    assert found == pytest.approx(2, abs=0.1)
    traced, plain = march(solver, w0.clone().requires_grad_(), [0.3]), march(solver, w0, [0.3])
    assert not traced.error.requires_grad
    assert not traced.step.requires_grad
    assert torch.equal(traced.v.detach(), plain.v)
    assert torch.equal(traced.error, plain.error)


def test_a_sample_whose_step_is_halved_has_its_own_derivative():
    solver = flow(tolerance=1e-5, dt=0.4)
    torus = solver.torus
    w0 = torch.cat([vorticities(torus, 0, 0.2, 1), vorticities(torus, 1, 4.0, 1)])
    assert len(march(solver, w0, [0.4]).step.unique()) == 2
    weights = noise((2, 1, 1, 24, 24), 1)
    for row in range(2):
        direction = torch.zeros_like(w0)
        direction[row] = vorticities(torus, 5, 1.0, 1)[0]
        found = orders(
            lambda w: (weights * torus.to_points(march(solver, w, [0.4]).v)).sum(), w0, direction,
            (1e-2, 5e-3, 2.5e-3),
        )  # fmt: skip
        assert found == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize(
    ("name", "time"),
    [("kuramoto-sivashinsky", 2.0), ("kdv", 0.1), ("allen-cahn", 1.0), ("gray-scott", 20.0),
     ("burgers-2d", 0.1)],
)  # fmt: skip
def test_semilinear_equations_by_their_initial_values(name, time):
    changes = {**SEMILINEAR[name], "times": [time], "tolerance": 1e3}
    problem = load_recipe(name).with_overrides(changes).problem
    assert isinstance(problem, SemilinearProblem)
    torus, times = problem.torus, list(problem.times)
    solver = integrator([problem.terms], torus, problem.solver.dt, 1e3, "cpu")
    u0, du = (
        problem.initial.values(torus, len(problem.components), seed, range(1), "cpu")
        for seed in (0, 1)
    )
    weights = noise(torus.to_points(march(solver, u0, times).v).shape, 1)
    found = orders(
        lambda u: (weights * torus.to_points(march(solver, u, times).v)).sum(), u0, du,
        (1e-3, 5e-4, 2.5e-4),
    )  # fmt: skip
    assert found == pytest.approx(2, abs=0.1)
