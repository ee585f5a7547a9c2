"""Flow around airfoils: the grid, the scheme against exact flows, and the law of stores."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.sparse import bsr_array

from pdegen.equations.airfoil.mesh import Mesh, c_grid, displacement, topology
from pdegen.equations.airfoil.problem import UniformDesign, richardson_error
from pdegen.equations.airfoil.solver import Airfoil, Euler, FreeStream, coarser, interpolated
from pdegen.equations.base import SampleError
from pdegen.generation.generate import RecipeJob, generate
from pdegen.numerics.errors import SolveError
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from tests.oracles import ringleb
from tests.pdegen import small
from tests.pdegen.test_checks import findings
from tests.stores import interrupted, objects_of

NACA_0012 = np.zeros(8)
CROSSING = np.array([0.0, 0.2, 0.2, 0.0, 0.0, -0.2, -0.2, 0.0])
DESIGNS = UniformDesign(law="uniform-design", amplitude=0.05).build(0, range(200))


def mesh(design, resolution, *, wall=True):
    m, cut = resolution // 22 * 5, resolution // 22 * 5 if wall else 0
    return Mesh(topology(resolution, m, cut, wall), c_grid(design, resolution))


# the grid


def test_the_grid_is_the_published_one():
    x = c_grid(NACA_0012, 220)
    assert x.shape == (221, 51, 2)
    side = x[110:171, 0, 0]  # the lower side, from the nose
    np.testing.assert_allclose(side[:5], [0, 1 / 236, 1 / 59, 2 / 59, 3 / 59], atol=1e-15)
    np.testing.assert_allclose(x[[0, 50, 170, 220], 0], [[40, 0], [1, 0], [1, 0], [40, 0]],
                               atol=1e-15)  # fmt: skip
    np.testing.assert_allclose(x[[0, 50, 110, 220], -1], [[40, 40], [1, 40], [-39, 0], [40, -40]],
                               atol=1e-13)  # fmt: skip
    outwards = np.linalg.norm(np.diff(x[110], axis=0), axis=-1)
    np.testing.assert_allclose(outwards[0], 39 / 40 / 60)  # the nose is at 1 from the centre
    np.testing.assert_allclose(outwards[1:37] / outwards[:36], 1.02)
    areas = mesh(NACA_0012, 220).areas
    assert areas.min() == pytest.approx(9.95e-5, rel=1e-3)
    assert areas.max() == pytest.approx(75.6, rel=1e-3)


def test_a_finer_grid_has_all_nodes_of_a_coarser_one():
    np.testing.assert_array_equal(c_grid(DESIGNS[0], 440)[::2, ::2], c_grid(DESIGNS[0], 220))


def test_control_points_move_the_points_at_them():
    x = np.array([-0.25, 0.25, 0.75, 1.25])
    design = np.arange(1.0, 9.0)
    np.testing.assert_allclose(displacement(design, x, np.full(4, -0.1)), design[:4])
    np.testing.assert_allclose(displacement(design, x, np.full(4, 0.1)), design[:3:-1])


def test_no_grid_of_a_random_airfoil_folds():
    assert all(mesh(design, 88).areas.min() > 0 for design in DESIGNS)


@pytest.mark.parametrize("design", [NACA_0012, DESIGNS[0]], ids=["symmetric", "random"])
def test_faces_close_and_neighbours_are_the_same_on_both_sides(design):
    bare = mesh(design, 88)
    sums = np.zeros((len(bare.volumes), 2))
    for column, sign in ((1, 1), (2, -1)):
        np.add.at(sums, bare.faces[0][:, column], sign * bare.faces[2])
    cells, _, normals, _ = bare.far(np.zeros((len(bare.outside), 3)))
    np.add.at(sums, cells[:, 0], normals)
    np.add.at(sums, bare.wall[0][:, 0], bare.wall[2])
    assert abs(sums).max() < 1e-13
    np.testing.assert_array_equal(bare.points[:21, 0], bare.points[:-22:-1, 0])


# the scheme


@pytest.mark.parametrize("design", [NACA_0012, DESIGNS[0]], ids=["symmetric", "random"])
def test_a_stream_through_the_grid_stays(design):
    bare = mesh(design, 220, wall=False)  # lets the stream through airfoil and wake
    euler = Euler(bare, FreeStream(0.8, 1.25))
    assert abs(euler.residual(euler.undisturbed)).max() < 1e-13


def test_derivatives_are_those_of_the_residual():
    euler = Airfoil(DESIGNS[0], FreeStream(0.9)).euler(88)
    euler = replace(euler, outside=np.tile(euler.stream.state, (len(euler.mesh.outside), 1)))
    rng = np.random.default_rng(0)
    q = euler.undisturbed * (1 + 0.05 * rng.normal(size=euler.undisturbed.shape))
    change = rng.normal(size=q.shape)
    top = euler.mesh.topology
    product = bsr_array((euler.jacobian(q), top.columns, top.starts)) @ change.ravel()
    step = 1e-6 * change
    expected = (euler.residual(q + step) - euler.residual(q - step)).ravel() / 2e-6
    assert abs(product - expected).max() < 1e-6 * abs(expected).max()  # difference quotients


def ringleb_error(n):
    """L² error of the density in a part of Ringleb's flow, Mach 0.3 to 0.62, on n x n cells."""
    corners = np.meshgrid(np.linspace(0.3, 0.6, n + 1), np.linspace(0.7, 0.9, n + 1), indexing="ij")
    part = Mesh(topology(n, n, 0, False), ringleb.positions(*corners))
    stream = FreeStream(0.5)
    units = np.sqrt(stream.enthalpy / ringleb.ENTHALPY) * np.ones(3)
    units[0] = 1
    exact = ringleb.states(part.centres) * units
    euler = Euler(part, stream, ringleb.states(part.outside) * units)
    q = euler.solve(exact, 1e-10).q
    return np.sqrt(np.sum(part.volumes * (q - exact)[:, 0] ** 2) / part.volumes.sum())


def test_the_scheme_has_order_two_on_the_flow_of_ringleb():
    errors = np.array([ringleb_error(n) for n in (16, 32, 64)])
    assert np.log2(errors[:-1] / errors[1:]) == pytest.approx([2, 2], abs=0.1)


@cache
def flow(mach, angle=0.0, resolution=110, design=(0.0,) * 8, tolerance=1e-10):
    return Airfoil(np.array(design), FreeStream(mach, angle), tolerance).solve(resolution)


def mach_number(euler, solution):
    return euler.stream.mach_number(euler.mesh.at_nodes(solution.q))


def test_a_slow_flow_has_nearly_no_drag():
    euler, solution = flow(0.3, tolerance=1e-6)
    drag, lift = euler.forces(solution.q)
    assert abs(drag) < 5e-4  # 2.2e-4 on 220 cells, and 5.2e-5 on 440 (tests/validation)
    assert abs(lift) < 1e-6


def pressure_coefficients(euler, solution):
    """x of wall faces from the nose; coefficients of the upper and of the lower side."""
    cells, weights, _ = euler.mesh.wall
    p = np.sum(weights * euler.stream.pressure(solution.q)[cells], axis=1)
    half, side = euler.stream.speed**2 / 2, len(p) // 2
    first = (euler.mesh.topology.n - len(p)) // 2
    x = euler.mesh.points[first : first + len(p) + 1, 0, 0]
    x = ((x[1:] + x[:-1]) / 2)[side:]
    return x, (p[:side][::-1] - 1) / half, (p[side:] - 1) / half


def shock(x, cp):
    """The x behind the smallest pressure at which the sonic pressure is passed, at Mach 0.8."""
    sonic = (((1 + 0.2 * 0.64) / 1.2) ** 3.5 - 1) / (0.7 * 0.64)
    ahead = np.flatnonzero((cp < sonic) & (x > 0.1))[-1]
    fraction = (sonic - cp[ahead]) / (cp[ahead + 1] - cp[ahead])
    return x[ahead] + fraction * (x[ahead + 1] - x[ahead])


def test_the_shocks_of_the_symmetric_flow_have_their_known_positions():
    euler, solution = flow(0.8)
    x, upper, lower = pressure_coefficients(euler, solution)
    assert 0.49 < shock(x, upper) < 0.53  # cells are 0.034 wide
    assert abs(upper - lower).max() < 1e-6
    assert abs(euler.forces(solution.q)[1]) < 1e-8
    mach = mach_number(euler, solution)
    assert abs(mach - mach[::-1]).max() < 1e-6
    assert 1.2 < mach.max() < 1.3


def test_a_flow_does_not_depend_on_its_start():
    airfoil = Airfoil(NACA_0012, FreeStream(0.6, 1.25), 1e-10)
    coarse = airfoil.solve(88)
    euler, solution = airfoil.solve(110, coarse)
    back = coarse[0].solve(interpolated(euler, solution, coarse[0].mesh), 1e-10)
    assert abs(back.q - coarse[1].q).max() < 1e-7
    assert abs(airfoil.solve(110)[1].q - solution.q).max() < 1e-7


@pytest.mark.parametrize(("mach", "angle", "gamma"), [(0.4, 3.0, 1.4), (0.7, -2.0, 1.67)])
def test_the_free_stream_is_that_of_the_formulas(mach, angle, gamma):
    """Density and pressure 1, M = |u|/√γ; where it rests p = (1 + (γ-1)M²/2)^(γ/(γ-1)); drag and
    lift of more pressure on ten faces above the nose are those of their chord."""
    recipe = load_recipe("airfoil-quick").with_overrides(
        {"mach": mach, "angle": angle, "gamma": gamma}
    )
    stream = recipe.problem.stream
    rho, u, v = stream.state
    assert (rho, float(stream.pressure(stream.state))) == pytest.approx((1, 1))
    assert np.hypot(u, v) == pytest.approx(mach * np.sqrt(gamma))
    assert np.degrees(np.arctan2(v, u)) == pytest.approx(angle)
    at_rest = 1 + (gamma - 1) / 2 * mach**2
    state = np.array([at_rest ** (1 / (gamma - 1)), 0.0, 0.0])
    assert stream.pressure(state) == pytest.approx(at_rest ** (gamma / (gamma - 1)))
    assert stream.mach_number(stream.state) == pytest.approx(mach)

    euler = Airfoil(NACA_0012, stream).euler(88)
    q = euler.undisturbed
    cells = euler.mesh.wall[0]
    q[cells[len(cells) // 2 - 10 : len(cells) // 2].ravel(), 0] *= 1.5  # as much more pressure
    end, nose = euler.mesh.points[[34, 44], 0]
    x, y = 0.5 * (end - nose)[1], -0.5 * (end - nose)[0]
    cos, sin, unit = np.cos(np.radians(angle)), np.sin(np.radians(angle)), gamma * mach**2 / 2
    expected = (x * cos + y * sin) / unit, (y * cos - x * sin) / unit
    assert euler.forces(q) == pytest.approx(expected, rel=1e-6)


def test_the_vortex_outside_has_the_circulation_of_the_lift():
    """Γ = |u| lift/2, clockwise around a point at a quarter of the chord; linear theory conserves
    its mass at any Mach number."""
    stream, lift = FreeStream(0.6, 3.0), 1e-3
    angle = 2 * np.pi * np.arange(720) / 720
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    q = stream.with_vortex(lift, [0.25, 0.0] + 40 * circle)
    step = 40 * 2 * np.pi / 720
    along = np.stack([-np.sin(angle), np.cos(angle)], axis=-1)
    circulation = np.sum(q[:, 1:] * along) * step
    assert circulation == pytest.approx(-stream.speed * lift / 2, rel=1e-9)
    outflow = np.sum(q[:, :1] * q[:, 1:] * circle) * step
    assert abs(outflow) < 1e-6 * abs(circulation)
    assert stream.pressure(q) == pytest.approx(q[:, 0] ** 1.4, rel=1e-12)


def test_the_stream_outside_has_the_vortex_of_the_lift_of_the_flow():
    euler, solution = flow(0.5, 2.0, resolution=88, tolerance=1e-8)
    _, lift = euler.forces(solution.q)
    fixed = replace(euler, outside=euler.stream.with_vortex(lift, euler.mesh.outside))
    np.testing.assert_array_equal(fixed.residual(solution.q), euler.residual(solution.q))
    bare = replace(euler, outside=np.tile(euler.stream.state, (len(euler.mesh.outside), 1)))
    without = bare.forces(bare.solve(solution.q, 1e-8, courant=50.0).q)[1]
    # 40 chords away it turns the stream by a hundredth of the angle of attack
    assert 1.003 < lift / without < 1.03


def test_values_at_nodes_are_interpolated_between_cells():
    flat = mesh(DESIGNS[0], 88)
    # a linear function of the position is reproduced, up to the bend of the lines of cells
    values = flat.at_nodes(flat.centres)
    distance = np.linalg.norm(values - flat.points, axis=-1)[:, 1:-1]
    assert np.median(distance / np.sqrt(flat.areas[:, 1:][[*range(88), -1]])) < 0.02
    np.testing.assert_array_equal(values[:21, 0], values[:-22:-1, 0])  # both sides of the wake


def test_a_flow_that_is_not_steady_is_an_error():
    with pytest.raises(SolveError, match=r"is not steady: its residual is .* after 120 steps"):
        Airfoil(NACA_0012, FreeStream(0.8)).solve(44)  # ten layers of cells do not resolve it


def test_an_airfoil_whose_sides_cross_is_an_error():
    with pytest.raises(SolveError, match="the upper and lower sides of the airfoil cross"):
        Airfoil(CROSSING, FreeStream(0.8)).euler(88)


# the recipe


@pytest.fixture(scope="module")
def quick():
    """A problem on fewer cells than recipes may have, and two samples."""
    problem = small.problem("airfoil-quick").model_copy(update={"resolution": 132})
    return problem, problem.compute(0, range(2))


def test_sound_samples_follow_the_law_and_are_functions_of_their_numbers(quick):
    problem, values = quick
    assert findings(problem.checks(), values) == []
    recomputed = problem.compute(0, range(1, 2))
    assert all(np.array_equal(recomputed[name], values[name][1:]) for name in values)


def test_a_run_is_resumed_without_the_failed_sample(tmp_path, monkeypatch):
    """Each sample is a shard; the second one fails, and the third is interrupted."""
    sizes = {"samples": 3, "shard": 1, "splits.train": 1, "splits.validation": 1, "splits.test": 1}
    recipe, url = load_recipe("airfoil-quick").with_overrides(sizes), str(tmp_path / "a.zarr")
    variables = recipe.problem.variables()

    def solve(self, seed, samples, device=None):
        if 1 in samples:
            raise SolveError(0, "the flow is not steady")
        return {v.name: np.full((1, *v.shape), samples[0], v.dtype) for v in variables}

    monkeypatch.setattr(type(recipe.problem), "solve", solve)
    with interrupted(RecipeJob, sample=2):
        generate(recipe, url, workers=1, skip_failed=True)
    store = generate(recipe, url, workers=1, skip_failed=True, resume=True)
    assert store.skipped == [1]
    whole = generate(recipe, str(tmp_path / "b.zarr"), workers=1, skip_failed=True)
    assert objects_of(store) == objects_of(whole)
    assert np.isfinite(store.values("u", range(3))).all(axis=(1, 2)).tolist() == [True, False, True]


@pytest.mark.parametrize("cells", [132, 154])
def test_the_error_estimate_assumes_order_two(cells):
    """The errors of the fields are h² times a function that is smooth in i and j."""

    def field(n):
        i, j = np.meshgrid(np.linspace(0, 1, n + 1), np.linspace(0, 1, n * 5 // 22 + 1),
                           indexing="ij")  # fmt: skip
        return 1 + i * j, np.sin(3 * i + j) * (44 / n) ** 2

    (exact, off), (coarse, coarse_off) = field(220), field(cells)
    true = np.linalg.norm(off) / np.linalg.norm(exact)
    assert richardson_error(exact + off, coarse + coarse_off) == pytest.approx(true, rel=0.03)


def test_flows_are_compared_with_those_on_three_quarters_of_the_cells():
    assert [coarser(n) for n in (176, 220, 264, 440)] == [132, 154, 198, 330]


FIELDS = ("u", "density", "pressure", "velocity")


def scaled(*names):
    return lambda v: {name: np.float32(1.01) * v[name] for name in names}


def of_the_next(*names):
    return lambda v: {name: np.roll(v[name], 1, axis=0) for name in names}


def at_a_node(name):
    """A change of the last sample at one node."""

    def changed(v):
        values = v[name].copy()
        values[-1].flat[values[-1].size // 3] *= np.float32(1.01)
        return {name: values}

    return changed


CHANGES = {
    "the target scaled": (scaled("u"), "u"),
    "the velocity scaled": (scaled("velocity"), "pressure"),
    "density and pressure scaled": (scaled("density", "pressure"), "density"),
    **{f"{name} at a node of a sample": (at_a_node(name), fault) for name, fault in
       {"u": "u", "density": "u", "pressure": "pressure", "x": "x", "y": "x"}.items()},
    "one field of the next sample": (of_the_next("pressure"), "pressure"),
    "all fields of the next sample": (of_the_next(*FIELDS), "lift"),
    "fields and forces of the next sample": (of_the_next(*FIELDS, "lift", "drag"), "velocity"),
    "fields mirrored": (
        lambda v: {**{name: v[name][:, ::-1] for name in FIELDS[:3]},
                   "velocity": v["velocity"][:, :, ::-1] * np.float32([1, -1])[:, None, None]},
        "lift"),
    "other positions": (scaled("y"), "x"),
    "another design": (of_the_next("design"), "x"),
    "the fixed control point moved": (lambda v: {"design": v["design"] + 1e-9}, "design"),
    "forces of another sign": (lambda v: {"lift": -v["lift"]}, "lift"),
    "other weights": (scaled("weight"), "weight"),
    "a large residual": (lambda v: {"residual": v["residual"] + 1e-5}, "residual"),
    "no error": (lambda v: {"error": 0 * v["error"]}, "error"),
    "another status": (lambda v: {"status": v["status"] + 1}, "status"),
    "no density at a node": (
        lambda v: {"density": np.where(np.arange(31) == 3, -1, v["density"])},
        "density"),
    "the same sample twice": (lambda v: {n: v[n][[0, 0]] for n in v}, "design"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_changed_stores_are_noticed(quick, change):
    problem, values = quick
    changed, fault = CHANGES[change]
    report = findings(problem.checks(), {**values, **changed(values)})
    assert fault in {finding.variable for finding in report}


def test_designs_of_another_size_are_noticed():
    problem = load_recipe("airfoil-quick").problem
    law = problem.checks().each[0]
    law.add(np.arange(200), {"design": 1.1 * DESIGNS})
    assert any("outside (0, 1)" in finding.message for finding in law.findings())


def test_an_invalid_airfoil_is_a_named_sample():
    problem = load_recipe("airfoil-quick").with_overrides({"amplitude": 0.2}).problem
    designs = problem.design.build(0, range(100))
    airfoils = [Airfoil(design, problem.stream) for design in designs]
    crossing = next(k for k, airfoil in enumerate(airfoils) if not has_sides_apart(airfoil))
    with pytest.raises(
        SampleError, match=f"sample {crossing}: the upper and lower sides of the airfoil cross"
    ):
        problem.compute(0, range(crossing, crossing + 1))


def test_a_device_is_refused(tmp_path):
    url = str(tmp_path / "a.zarr")
    with pytest.raises(SchemaError, match="airfoil is solved with NumPy only, got device 'cuda'"):
        generate(load_recipe("airfoil-quick"), url, device="cuda")


def has_sides_apart(airfoil):
    try:
        airfoil.euler(44)
    except SolveError:
        return False
    return True


def test_the_vortex_outside_is_odd_around_a_quarter_of_the_chord():
    stream, angle = FreeStream(0.6, 3.0), 2 * np.pi * np.arange(720) / 720
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    q = stream.with_vortex(0.5, [0.25, 0.0] + 40 * circle)
    swirl = q[:, 1:] - stream.state[1:]
    np.testing.assert_allclose(swirl[360:], -swirl[:360], atol=1e-9 * abs(swirl).max())
