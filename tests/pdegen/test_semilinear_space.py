"""Three dimensions, no-flow walls, Laplacians of monomials, incompressible flow and sources of
semilinear equations, against exact solutions."""

import numpy as np
import pytest
import scipy

from pdegen.domains import CellGrid, PeriodicGrid
from pdegen.equations.semilinear.solver import projection
from pdegen.equations.vorticity.solver import Flow
from pdegen.generation.generate import generate
from pdegen.numerics.spectral import Torus, even_extension
from pdegen.recipe import load_recipe
from pdegen.sampling.gaussian import SquareGaussianField
from pdegen.schema import SchemaError
from tests.pdegen import small
from tests.pdegen.test_checks import findings
from tests.pdegen.test_semilinear_equations import declared, points, solved, solver_of

ONCE = {"of": "u", "coefficient": 1.0, "powers": [1]}
CUBE = {"of": "u", "coefficient": -1.0, "powers": [3]}
FIELD = {"law": "gaussian", "sigma": 10.0, "tau": 5.0, "alpha": 2.0, "modes": 4}
STEPS = {"resolution": 32, "dt": 0.05, "tolerance": 1e-3}


def flow(dimension, **changes):
    """Incompressible flow with ν = 0.02."""
    table = {
        "dimension": dimension, "components": ["u", "v", "w"][:dimension],
        "linear": {"diffusion": 0.02}, "nonlinear": {"convection": 1.0, "projection": True},
        "resolution": 16, "solver": {"resolution": 16, "dt": 0.05, "tolerance": 1e-2},
        "initial": {**FIELD, "alpha": 3.0, "modes": 3},
    }  # fmt: skip
    return declared(**{**table, **changes})


def box(**changes):
    """Heat between walls, with a linear exchange of two components."""
    table = {
        "dimension": 2, "walls": "no-flow", "length": 2.0, "linear": {"diffusion": 0.1},
        "initial": FIELD, "times": [0.5], "resolution": 8, "solver": {"resolution": 24},
    }  # fmt: skip
    return declared(**{**table, **changes})


# three dimensions


def test_functions_that_do_not_change_along_an_axis_are_those_of_the_plane():
    reaction = {"reaction": [ONCE, CUBE]}
    plane, space = (
        declared(dimension=d, linear={"diffusion": 0.01, "dispersion": 1e-4}, nonlinear=reaction,
                 resolution=16, initial={**FIELD, "alpha": 3.0}, solver=STEPS)
        for d in (2, 3)
    )  # fmt: skip
    x, y = points(plane)
    u0 = np.sin(2 * np.pi * x) * np.cos(2 * np.pi * y) + 0.3 * np.cos(4 * np.pi * y)
    flat = solved(plane, u0[None, None])[0][0, 0, 0]
    deep, found = solved(space, np.repeat(u0[..., None], 32, axis=2)[None, None])
    np.testing.assert_allclose(deep[0, 0, 0], np.repeat(flat[..., None], 32, axis=2), atol=1e-13)
    assert found.error.max() < 1e-4


def test_convection_of_a_scalar_has_a_term_for_each_axis():
    """u = U(x + y + z) solves uₜ + 3 U U' = 0 as long as it is smooth."""
    both = {}
    for kind in ("convection", "conservative_convection"):
        space = declared(dimension=3, linear={"diffusion": 0.01}, nonlinear={kind: 0.2},
                         times=[0.5], resolution=16, initial={**FIELD, "alpha": 3.0},
                         solver=STEPS)  # fmt: skip
        line = declared(linear={"diffusion": 0.03}, nonlinear={"convection": 0.6}, times=[0.5],
                        initial=FIELD, solver={**STEPS, "tolerance": 1e-3})  # fmt: skip
        both[kind] = space.formula
        s = 2 * np.pi * sum(points(space))
        u = solved(space, np.sin(s)[None, None])[0][0, 0, 0]
        exact = solved(line, np.sin(2 * np.pi * points(line)[0])[None, None])[0][0, 0, 0]
        index = np.indices(u.shape).sum(axis=0) % 32
        np.testing.assert_allclose(u, exact[index], atol=1e-6)
    assert "0.2 u (u_x + u_y + u_z)" in both["convection"]
    assert "0.2 ((u^2)_x + (u^2)_y + (u^2)_z)/2" in both["conservative_convection"]


def test_both_forms_of_the_convection_of_a_velocity_in_space_agree():
    """Where div u = 0, ∇·(u u) = (u·∇)u."""
    changes = {}
    for kind in ("convection", "conservative_convection"):
        problem = declared(
            dimension=3, components=["u", "v", "w"], linear={"diffusion": 0.1}, resolution=16,
            nonlinear={kind: 2.0 if "conservative" in kind else 1.0},
            initial={**FIELD, "alpha": 3.0, "modes": 3}, solver={**STEPS, "dt": 0.01},
        )  # fmt: skip
        v = random_flow(problem.torus)
        changes[kind] = problem.terms.nonlinear(problem.torus)(v)
    first, second = changes.values()
    np.testing.assert_allclose(first, second, atol=1e-10 * np.abs(first).max())


def random_flow(torus):
    """Modes |k_j| <= 2 of a velocity without divergence."""
    u = np.random.default_rng(0).standard_normal((1, len(torus.grids), *torus.points))
    v = torus.to_modes(u)
    for k in torus.numbers:
        v = v * (np.abs(k) <= 2)
    v[(..., *[0] * len(torus.grids))] = 0
    return np.einsum("ij...,bj...->bi...", projection(torus), v)


# incompressible flow


def test_the_flow_of_arnold_beltrami_and_childress_decays_as_it_is():
    """Its curl is 2π times itself, so that the pressure balances the convection."""
    problem = flow(3)
    x, y, z = (2 * np.pi * axis for axis in points(problem))
    u0 = np.stack([np.sin(z) + 0.5 * np.cos(y), 0.8 * np.sin(x) + np.cos(z),
                   0.5 * np.sin(y) + 0.8 * np.cos(x)])  # fmt: skip
    u, found = solved(problem, u0[None])
    np.testing.assert_allclose(u[0, 0], np.exp(-0.02 * 4 * np.pi**2) * u0, atol=1e-13)
    assert found.error.max() < 1e-12


def test_the_vortices_of_taylor_and_green_decay_as_they_are():
    problem = flow(2)
    x, y = (2 * np.pi * axis for axis in points(problem))
    u0 = np.stack([np.sin(x) * np.cos(y), -np.cos(x) * np.sin(y)])
    u, _ = solved(problem, u0[None])
    np.testing.assert_allclose(u[0, 0], np.exp(-0.02 * 8 * np.pi**2) * u0, atol=1e-13)


def test_a_projected_velocity_in_the_plane_has_the_vorticity_of_the_other_solver():
    problem = flow(2, solver={"resolution": 32, "dt": 0.01, "tolerance": 1e-6})
    torus = problem.torus
    v0 = random_flow(torus)
    v = solver_of(problem).solve(v0, [0.5]).v[:, 0]
    (dx, dy), omega = torus.d, lambda v: torus.d[0] * v[:, 1] - torus.d[1] * v[:, 0]
    solver = Flow(torus, viscosity=0.02).solver(omega(v0), dt=0.01, tolerance=1e-6)
    expected = solver.solve(omega(v0)[:, None], [0.5]).v[:, 0, 0]
    np.testing.assert_allclose(omega(v), expected, atol=1e-7 * np.abs(expected).max())
    np.testing.assert_allclose(dx * v[:, 0] + dy * v[:, 1], 0, atol=1e-13)


CHANGED_FLOWS = {
    "the divergence": lambda u: u[:, :, [1, 0, 2]],
    "the growth of the norm": lambda u: u * np.float32(1.3),
    "the change of the mean": lambda u: u + np.float32(0.05),
    "the solution that starts": lambda u: u[:, :, :, ::-1, ::-1, ::-1],
}


@pytest.mark.parametrize("said", CHANGED_FLOWS)
def test_what_a_flow_cannot_be_is_found(said):
    values = {name: value[:1] for name, value in small.samples("decaying-3d").items()}
    checks = small.problem("decaying-3d").checks
    changed = {**values, "u": CHANGED_FLOWS[said](values["u"])}
    assert any(said in one.message for one in findings(checks(), changed))


# Laplacians of monomials


def test_the_laplacian_of_a_cube_is_that_of_its_waves():
    """cos³ θ = (3 cos θ + cos 3θ)/4."""
    term = {"of": "u", "coefficient": 0.5, "powers": [3], "laplacian": True}
    problem = declared(linear={"hyper_diffusion": 1e-6}, nonlinear={"reaction": [term]},
                       solver={**STEPS, "dt": 1e-3}, initial=FIELD)  # fmt: skip
    torus = problem.torus
    theta = 2 * np.pi * torus.grids[0].x
    change = problem.terms.nonlinear(torus)(torus.to_modes(np.cos(theta))[None, None])
    expected = -0.5 * 4 * np.pi**2 * (0.75 * np.cos(theta) + 2.25 * np.cos(3 * theta))
    np.testing.assert_allclose(torus.to_points(change)[0, 0], expected, atol=1e-12)
    assert problem.formula.startswith("u_t = -1e-06 u_xxxx + 0.5 (u^3)_xx, ")


@pytest.mark.parametrize("change", ["none", "reversed", "shifted"])
def test_the_energy_of_cahn_and_hilliard_falls_and_the_mean_stays(change):
    values = {name: value.copy() for name, value in small.samples("cahn-hilliard").items()}
    if change == "reversed":
        values["u"] = values["u"][:, ::-1]
    elif change == "shifted":
        values["u"] += np.float32(0.01)
    found = [one.message for one in findings(small.problem("cahn-hilliard").checks(), values)]
    said = {"reversed": "the growth of the functional", "shifted": "the change of the mean"}
    assert found == [] if change == "none" else any(said[change] in one for one in found)


# no-flow walls


def test_heat_between_walls_is_the_sum_of_cosines_that_decay():
    """The resolution of the solver is three times that of the output, whose cells it divides."""
    problem = box()
    values = problem.compute(3, range(2))
    field = problem.initial.field(2, True)
    assert isinstance(field, SquareGaussianField)
    k = np.pi * np.arange(4) / 2.0  # of a square of side 2
    basis = field.basis(CellGrid(8))
    for name, t in (("a", 0.0), ("u", 0.5)):
        decay = np.exp(-0.1 * (k[:, None] ** 2 + k**2) * t)
        exact = basis @ (decay * field.coefficients(3, range(2))) @ basis.T
        np.testing.assert_allclose(values[name], exact, atol=1e-6 * np.abs(exact).max())


def test_a_nonlinear_solution_stays_even():
    problem = small.problem("diffusion-reaction")
    torus = problem.torus
    u0 = problem.initial.values(torus, 2, 0, range(2), None, True)
    v = solver_of(problem).solve(torus.to_modes(u0), [1.0]).v[:, 0]
    u = torus.to_points(v)
    np.testing.assert_allclose(u, even_extension(u[..., :32, :32], 2), atol=1e-12)


# sources


def test_a_source_pushes_linear_waves_as_the_formula_says():
    """û(t) = e^(Lt) â + (e^(Lt) - 1)/L f̂."""
    problem = declared(linear={"diffusion": 0.02, "drag": 0.3}, source={**FIELD, "mean": 0.5},
                       initial=FIELD, solver={**STEPS, "tolerance": 1e-6},
                       times=[0.4, 1.0])  # fmt: skip
    values = problem.compute(0, range(3))
    torus = Torus((PeriodicGrid(32),), 1)
    a, f = (torus.to_modes(values[name].astype(float)) for name in ("a", "f"))
    linear = 0.02 * torus.laplacian - 0.3
    for k, t in enumerate(problem.times):
        exact = torus.to_points(np.exp(linear * t) * a + np.expm1(linear * t) / linear * f)
        np.testing.assert_allclose(values["u"][:, k], exact, atol=3e-7 * np.abs(exact).max())
    assert findings(problem.checks(), values) == []
    assert problem.formula.startswith("u_t = 0.02 u_xx - 0.3 u + f, ")
    swapped = {**values, "f": values["f"][[1, 0, 2]]}
    assert any("the solution that starts" in one.message
               for one in findings(problem.checks(), swapped))  # fmt: skip


def test_a_source_is_independent_of_an_initial_value_of_the_same_law():
    """Of 2 components on 40 samples of 4 modes: 320 pairs of numbers, deviation 1/√320."""
    problem = declared(components=["u", "v"], linear={"diffusion": 0.1}, source=FIELD,
                       initial=FIELD, solver={**STEPS, "tolerance": 1e-1})  # fmt: skip
    values = problem.compute(0, range(40))
    for a, f in ((0, 0), (1, 1), (0, 1), (1, 0)):
        pair = values["a"][:, a].ravel(), values["f"][:, f].ravel()
        assert abs(np.corrcoef(*pair)[0, 1]) < 0.3


def test_sources_and_coefficients_may_differ_by_sample():
    law = {"law": "log-uniform", "low": 0.01, "high": 0.1}
    problem = declared(linear={"diffusion": law}, source=FIELD, initial=FIELD, times=[0.3],
                       nonlinear={"reaction": [CUBE]},
                       solver={**STEPS, "tolerance": 1e-4})  # fmt: skip
    together, alone = (problem.compute(0, samples) for samples in (range(3), range(1, 2)))
    for name, value in alone.items():
        assert np.array_equal(together[name][1:2], value)


# what cannot be, and what does not depend on the engine


@pytest.mark.parametrize(
    ("build", "changes", "said"),
    [
        (flow, {"components": ["u", "v"]}, "needs one component for each of two or three axes"),
        (flow, {"dimension": 2, "components": ["u", "v", "w"]}, "needs one component for each of"),
        (flow, {"linear": {"diffusion": [0.1, 0.1, 0.2]}}, "the same linear terms in all"),
        (flow, {"nonlinear": {"projection": True, "convection": 1.0, "gradient_norm": 1.0}},
         "projection needs nonlinear.convection alone"),
        (flow, {"initial": {**FIELD, "alpha": 3.0, "law": "bounded"}}, 'initial.law = "gaussian"'),
        (flow, {"source": {**FIELD, "alpha": 3.0}}, "projection needs no source"),
        (flow, {"initial": FIELD | {"alpha": 1.5}}, "alpha > 1.5"),
        (box, {"dimension": 3, "initial": {**FIELD, "alpha": 3.0}}, "needs dimension 2"),
        (box, {"linear": {"diffusion": 0.1, "advection": 1.0}}, "no advection, dispersion"),
        (box, {"source": {**FIELD, "mean": [1.0, 2.0]}}, "source.mean has 2 numbers, expected one"),
        (box, {"source": {**FIELD, "modes": 9}}, "source.modes = 9 need resolution >= 10, got 8"),
        (box, {"solver": {"resolution": 16}}, "an odd multiple of resolution = 8"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(build, changes, said):
    given = {"dimension": 3} if build is flow else {}
    with pytest.raises(SchemaError, match=said):
        build(**{**given, **changes})


@pytest.mark.parametrize("powers", [[1], [0]])
def test_laplacians_of_linear_terms_are_diffusion(powers):
    term = {"of": "u", "coefficient": 0.5, "powers": powers, "laplacian": True}
    with pytest.raises(SchemaError, match="of a monomial of degree 2 or more"):
        declared(nonlinear={"reaction": [term]}, solver=STEPS)


def test_a_store_is_the_same_for_one_worker_and_two(tmp_path):
    tiny = {"problem.solver.resolution": 16, "problem.resolution": 16, "modes": 3, "samples": 6,
            "shard": 2, "times": [0.1], "tolerance": 1.0, "diffusion": 0.05, "dt": 0.1}  # fmt: skip
    recipe = load_recipe("decaying-3d").with_overrides(tiny)
    first, second = (
        generate(recipe, str(tmp_path / f"{n}.zarr"), workers=n) for n in (1, 2)
    )  # fmt: skip
    assert first.metadata.content == second.metadata.content


@pytest.mark.parametrize("axes", [2, 3])
def test_even_functions_have_real_coefficients_about_the_wall(axes):
    u = np.random.default_rng(0).standard_normal([6] * axes)
    whole = even_extension(u, axes)
    assert whole.shape == (12,) * axes
    assert np.array_equal(whole, np.flip(whole))
    cosines = scipy.fft.dctn(u, type=2) / 12**axes
    v = np.fft.fftn(whole, norm="forward")[(slice(6),) * axes]
    phase = sum(np.meshgrid(*[np.arange(6)] * axes, indexing="ij")) * np.pi / 12
    np.testing.assert_allclose(v * np.exp(-1j * phase), cosines, atol=1e-14)
