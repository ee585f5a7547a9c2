"""Residuals of predictions in the labels' scheme, and corrections by steps of the solver."""

import numpy as np
import pytest
import torch

from pdegen.domains import CellGrid
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.poisson.solver import SineSolver
from pdegen.numerics.elliptic import EllipticSystem
from pdegen.recipe import load_recipe

DARCY = {"problem.resolution": 13, "field.modes": 13}
CONTRAST = 4  # 12 over 3


def problem(name, **overrides):
    return load_recipe(name).with_overrides(overrides).problem


def relative_norm(e, u, product):
    return np.sqrt(np.sum(e * product(e), axis=(1, 2)) / np.sum(u * product(u), axis=(1, 2)))


@pytest.mark.parametrize("compact", [True, False])
def test_the_residual_of_poisson_is_the_relative_energy_error(compact):
    """The stencil, not its sines, gives the energy: sum over nodes of -e times the stencil of e."""
    rng, solver = np.random.default_rng(0), SineSolver(17, 0.0, compact)
    f, e = rng.standard_normal((2, 3, 17, 17))
    e[:, [0, -1]] = e[:, :, [0, -1]] = 0
    u = solver(f)

    def energy(v):
        return -np.pad(solver.residual(v, np.zeros_like(v)), [(0, 0), (1, 1), (1, 1)])

    found = solver.system(f).residual(u + e)
    np.testing.assert_allclose(found, relative_norm(e, u, energy), rtol=1e-10)  # rounding


def test_values_on_walls_do_not_count_for_poisson():
    solver = SineSolver(17, 3.0, True)
    f = np.random.default_rng(1).standard_normal((2, 17, 17))
    u = solver(f)
    u[:, 0] = 1
    assert solver.system(f).residual(u).max() < 1e-12


@pytest.mark.parametrize("k", [0.0, 12.0])
def test_one_step_solves_poisson_and_helmholtz_from_anywhere(k):
    """Also above the first eigenvalues, where the stencil is indefinite."""
    rng, solver = np.random.default_rng(2), SineSolver(17, k, True)
    f, start = rng.standard_normal((2, 3, 17, 17))
    start[:, [0, -1]] = start[:, :, [0, -1]] = 0
    system, u = solver.system(f), solver(f)
    np.testing.assert_allclose(system.corrected(start, 1), u, atol=1e-12 * abs(u).max())
    assert system.residual(u).max() < 1e-13


LABELS = {
    "two phases": ("darcy-quick", DARCY),
    "smooth": ("darcy-lognormal", DARCY),
    "a source field": ("darcy-source", DARCY | {"source.modes": 13}),
    "arithmetic faces": ("darcy-quick", DARCY | {"solver.faces": "arithmetic"}),
    "walls": ("darcy-quick", DARCY | {"walls": 0.01}),
    "five points": ("helmholtz-128-published", {"problem.resolution": 21, "field.modes": 21}),
    "compact": ("poisson-quick", {}),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_of_the_scheme_have_no_residual(name):
    """Beyond rtol = 1e-8 and the rounding to float32, 6e-8 of u, times n² in the worst mode."""
    recipe, overrides = LABELS[name]
    declared = problem(recipe, **overrides)
    if recipe.startswith("darcy"):
        declared = problem(recipe, **overrides, **{"solver.refinement": 1})
    values = declared.compute(0, range(3))
    found = declared.residual(values, values["u"])
    assert found is not None
    assert 0 < found.max() < 3e-6
    doubled = declared.residual(values, 2 * values["u"] - (0.01 if name == "walls" else 0))
    np.testing.assert_allclose(doubled, 1, rtol=1e-5)  # 2u - walls errs by u - walls


@pytest.mark.parametrize("name", LABELS)
def test_tensors_and_arrays_have_the_same_residual(name):
    declared = problem(LABELS[name][0], **LABELS[name][1])
    values = declared.compute(0, range(2))
    u = 1.1 * values["u"]
    tensors = {key: torch.tensor(value) for key, value in values.items()}
    found = declared.residual(tensors, torch.tensor(u))
    np.testing.assert_allclose(found, declared.residual(values, u), rtol=1e-12)


@pytest.mark.parametrize(("name", "changes"), [
    ("darcy-quick", {"problem.resolution": 5, "field.modes": 5}),
    ("darcy-lognormal", {"problem.resolution": 5, "field.modes": 5}),
    ("poisson-quick", {"problem.resolution": 6, "field.modes": 6}),
])  # fmt: skip
def test_residuals_have_derivatives_in_the_prediction_and_in_the_input(name, changes):
    declared = problem(name, **changes)
    n, generator = changes["problem.resolution"], torch.Generator().manual_seed(0)
    a, u = (torch.rand(2, n, n, generator=generator, dtype=torch.float64) + 0.5 for _ in "au")

    def residual(a, u):
        return declared.residual({"a": a}, u)

    assert torch.autograd.gradcheck(residual, (a.requires_grad_(), u.requires_grad_()))


def test_the_residual_of_darcy_is_the_energy_error_up_to_the_contrast():
    """a/12 L <= A/12 <= L and 3 L <= A for the two phases, so norms differ by at most 12/3."""
    rng, solver = np.random.default_rng(3), FiniteVolume(CellGrid(13))
    a = np.where(rng.random((4, 13, 13)) < 0.5, 3.0, 12.0)
    system = solver.system(a, np.ones_like(a), 0.0, smooth=False)
    u, e = solver(a), rng.standard_normal(a.shape)
    ratio = system.residual(u + e) / relative_norm(e, u, system.operator)
    assert (ratio > CONTRAST**-0.5).all()
    assert (ratio < CONTRAST**0.5).all()


@pytest.mark.parametrize("name", ["darcy-quick", "darcy-lognormal"])
def test_steps_lower_the_energy_error_and_end_at_the_solution(name):
    declared = problem(name, **DARCY, **{"solver.refinement": 1, "walls": 2.0})
    values = declared.compute(0, range(3))
    system, u = declared.system(values), values["u"]
    assert system is not None
    start = u * (1 + 0.2 * np.random.default_rng(4).standard_normal(u.shape))
    energy = [
        np.sum(e * system.operator(e), axis=(1, 2))
        for steps in range(1, 8)
        if (e := system.corrected(start, steps) - u) is not None
    ]
    # conjugate gradients lower this norm in each step, until float32 labels end the comparison
    assert (np.diff(energy, axis=0) < 0).all()
    np.testing.assert_allclose(system.corrected(start, 60), u, rtol=1e-6)


def test_only_equations_with_a_system_have_residuals():
    assert problem("heat").residual({}, np.zeros((1, 4, 4))) is None
    law = {"law": "uniform", "low": 1.0, "high": 2.0}
    assert problem("darcy-quick", **DARCY, source=law).system({"a": np.ones((1, 13, 13))}) is None
    declared = problem("darcy-contrast", **DARCY)  # laws of the coefficient alone
    assert isinstance(declared.system({"a": np.ones((1, 13, 13))}), EllipticSystem)
