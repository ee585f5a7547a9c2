"""Forced flows with drag on tori of any length, after a burn-in, as vorticity or velocity."""

import os
import signal

import numpy as np
import pytest
import torch

from operators.symmetries import KolmogorovSymmetries
from pdegen.domains import Box, PeriodicGrid
from pdegen.equations.vorticity.problem import (
    Vorticity,
    _SpeedField,  # pyright: ignore[reportPrivateUsage]
    curl,
)
from pdegen.equations.vorticity.solver import Flow
from pdegen.generation.generate import generate
from pdegen.generation.verify import verify
from pdegen.numerics.semilinear import Semilinear
from pdegen.numerics.spectral import Torus
from pdegen.recipe import load_recipe
from pdegen.sampling.gaussian import TorusGaussianField
from pdegen.schema import SchemaError
from tests.forked import forked
from tests.pdegen.test_checks import findings
from tests.stores import objects_of
from tests.validation.plain_flow import kolmogorov, plain_flow

LENGTH = 2 * np.pi


def torus(n, length=LENGTH):
    return Torus((PeriodicGrid(n, length),) * 2)


def forced(n, nu=1 / 40, drag=0.1, wave=4, **options):
    return Flow(torus(n), nu, 1.0, 0.0, drag, "kolmogorov", wave, **options)


def random(grid, samples=1, modes=7, size=3.0):
    """Modes of random fields whose values are about `size`."""
    field = TorusGaussianField(1.0, 10.0, 2.5, modes)
    v = field.coefficients(grid, 5, range(samples))[:, None]
    return v * size / np.sqrt(field.pointwise_variance)


# exact solutions and balances


@pytest.mark.parametrize("kind", ["kolmogorov", "diagonal"])
def test_the_laminar_state_is_kept(kind):
    """w = f/(ν|k|² + α) is steady: its convection is zero."""
    nu, drag, wave = 0.3, 0.2, 2
    flow = Flow(torus(32), nu, 1.5, 0.3, drag, kind, wave)
    decay = nu * wave**2 * (2 if kind == "diagonal" else 1) + drag
    v = flow.force[None, None] / decay
    found = flow.solver(v, 0.05, 1e-6).solve(v, [1.0, 5.0])
    np.testing.assert_allclose(found.v, np.stack([v, v], axis=1), rtol=0, atol=1e-12 * abs(v).max())
    assert abs(found.integrals).max() < 1e-13


def test_taylor_green_vortices_decay_with_drag():
    grid, nu, drag = torus(24, 3.0), 0.02, 0.7
    wave = np.cos(2 * np.pi * grid.grids[0].x / 3)
    v = grid.to_modes(np.multiply.outer(wave, wave))[None, None]
    found = Flow(grid, nu, drag=drag).solver(v, 0.1, 1e-6).solve(v, [2.0])
    expected = v * np.exp(-2 * (2 * nu * (2 * np.pi / 3) ** 2 + drag))
    np.testing.assert_allclose(found.v[:, 0], expected, rtol=0, atol=1e-13)


def test_energy_changes_by_work_dissipation_and_drag():
    """dE/dt = ⟨ψf⟩ - ν⟨w²⟩ - 2αE, dE/dt by central differences, the rest by sums over points."""
    flow = forced(48, drag=0.3)
    grid, v = flow.torus, random(flow.torus)
    solver = flow.solver(v, 0.01, 1.0)
    t, h = 0.5, 0.01
    before, now, after = np.moveaxis(solver.solve(v, [t - h, t, t + h]).v, 1, 0)

    def energy(w):
        return np.mean(np.sum(grid.to_points(flow.velocity(w)[0, 0]) ** 2, axis=0)) / 2

    w, f = grid.to_points(now[0, 0]), grid.to_points(flow.force)
    psi = grid.to_points(-grid.inverse_laplacian * now[0, 0])
    gained = np.mean(psi * f) - flow.viscosity * np.mean(w**2) - 2 * 0.3 * energy(now)
    measured = (energy(after) - energy(before)) / (2 * h)
    assert measured == pytest.approx(gained, rel=1e-3)  # differences of order 2
    assert energy(now) == pytest.approx(flow.energies(now)[0, 0], rel=1e-12)


@pytest.mark.parametrize(
    ("n", "fine", "modes"), [(64, 96, 5), pytest.param(128, 256, 31, marks=pytest.mark.slow)]
)
def test_the_error_is_that_against_an_independent_solver(n, fine, modes):
    """Re = 200, t = 1, as in InverseBench."""
    flow = Flow(torus(n), 1 / 200, 1.0, 0.0, 0.0, "kolmogorov", 4)
    v = random(flow.torus, modes=modes, size=4.0)
    found = flow.solver(v, 0.01, np.inf).solve(v, [1.0])
    start = flow.torus.to_points(v[0, 0], (fine, fine))
    exact = plain_flow(start, LENGTH, 1 / 200, 0.0, kolmogorov(fine, LENGTH, 4), 1.0, fine)
    solved = flow.torus.to_points(found.v[0, 0, 0], (fine, fine))
    error = np.linalg.norm(solved - exact) / np.linalg.norm(exact)
    assert error > 1e-6  # a claim about the flow, not about rounding
    assert 0.5 < found.error[0, 0] / error < 2


def test_the_force_is_that_of_a_torus_of_any_length():
    grid, amplitude, phase = torus(16, 3.0), 1.5, 0.3
    kappa = 2 * np.pi * 2 / 3.0
    flow = Flow(grid, 0.1, amplitude, phase, 0.0, "kolmogorov", 2)
    expected = -kappa * amplitude * np.cos(kappa * grid.grids[1].x + phase)
    force = grid.to_points(flow.force)
    np.testing.assert_allclose(force, np.broadcast_to(expected, (16, 16)), atol=1e-12)


@pytest.mark.parametrize("length", [1.0, 3.0])
def test_the_field_of_the_speed_has_the_mean_square_of_the_velocity(length):
    initial, grid = problem().initial, torus(48, length)
    w = initial.build().coefficients(grid, 0, range(200))
    squares = np.sum(grid.weights * np.abs(Flow(grid, 1.0).velocity(w)) ** 2, axis=(1, 2, 3))
    # few long waves make the speed: of 200 samples, the mean deviates by about 3 %
    assert _SpeedField.of(initial, length).pointwise_variance == pytest.approx(
        np.mean(squares), rel=0.15
    )


# symmetries


@pytest.mark.parametrize("reflection", [True, False])
def test_symmetries_map_kolmogorov_flows_to_flows(reflection):
    def solved(w):
        flow = forced(32, wave=2)
        v = flow.torus.to_modes(w)[:, None]
        found = flow.solver(v, 0.05, 1.0).solve(v, [0.3, 0.6])
        return np.moveaxis(flow.torus.to_points(found.v[:, :, 0]), 1, -1)

    w = torus(32).to_points(random(torus(32), 12, modes=5)[:, 0])
    torch.manual_seed(0)
    symmetry = KolmogorovSymmetries(2, reflection)
    b, v = symmetry(torch.from_numpy(w)[..., None], torch.from_numpy(solved(w)))
    np.testing.assert_allclose(solved(b[..., 0].numpy()), v.numpy(), atol=1e-10)
    sums = np.sign(np.sum(b[..., 0].numpy() ** 3, axis=(1, 2)) * np.sum(w**3, axis=(1, 2)))
    assert set(sums) == ({1, -1} if reflection else {1})
    # x -> -x with w -> -w alone turns the force into its negative
    mirrored = -np.roll(w[:, ::-1], 1, axis=1)
    other = -np.roll(solved(w)[:, ::-1], 1, axis=1)
    assert abs(solved(mirrored) - other).max() > 0.1


def test_symmetries_are_drawn_equally_often_and_need_their_points():
    v = torch.arange(1.0, 65.0).reshape(8, 8, 1)
    torch.manual_seed(0)
    b, u = KolmogorovSymmetries(2)(v.repeat(6400, 1, 1, 1), v.repeat(6400, 1, 1, 2))
    assert torch.equal(u, b.repeat(1, 1, 1, 2))
    _, counts = torch.unique(b.flatten(1), dim=0, return_counts=True)
    assert len(counts) == 64  # 8 shifts, 4 half waves, 2 turns
    assert float(((counts - 100) ** 2 / 100).sum()) < 103.4  # 63 degrees of freedom: p = 0.001
    for domain, message in (
        (Box.periodic(8), "wave needs two periodic axes"),
        (Box.periodic(8, 12), "wave = 4 needs a multiple of 8 points along y, got 12"),
    ):
        with pytest.raises(ValueError, match=message):
            KolmogorovSymmetries(4).check(domain, torch.from_numpy(domain.points))


def test_stores_state_the_symmetries_of_their_force():
    quick = load_recipe("kolmogorov-quick")
    assert set(quick.problem.physics().symmetries) == KolmogorovSymmetries(4).names
    for changes in ({"phase": 0.1}, {"output": "velocity"}):
        stated = set(quick.with_overrides(changes).problem.physics().symmetries)
        assert stated == KolmogorovSymmetries(4, reflection=False).names
    assert "shift" in load_recipe("ns-decaying-nu").problem.physics().symmetries  # no force
    assert "shift" not in load_recipe("ns-1e-3").problem.physics().symmetries


# stores

QUICK = {"burn_in": 1.0, "drag": 0.1, "samples": 8, "shard": 4}


def problem(**changes) -> Vorticity:
    return load_recipe("kolmogorov-quick").with_overrides({**QUICK, **changes}).problem


@pytest.mark.parametrize("output", ["vorticity", "velocity"])
def test_labels_start_from_the_stored_input(output):
    one = problem(output=output)
    values = one.compute(0, range(3))
    np.testing.assert_array_equal(one.target_of_interpolant(values["a"]), values["u"])
    grid = Torus(one.domain.grids, degree=1)
    a = values["a"].astype(float)
    w = grid.to_modes(a) if output == "vorticity" else curl(grid, a)
    beyond = grid.numbers[0] ** 2 + grid.numbers[1] ** 2 > 15**2
    assert abs(w * beyond).max() < 1e-5 * abs(w).max()  # float32
    start = np.stack([grid.to_points(v, (64, 64)) for v in w])
    force = kolmogorov(64, LENGTH, 4)
    exact = np.stack([plain_flow(w, LENGTH, 1 / 40, 0.1, force, 1.0, 200) for w in start])
    fine = torus(64)
    v = fine.to_modes(exact)
    if output == "velocity":
        v = Flow(fine, 1.0).velocity(v)
    u, expected = values["u"][:, -1].astype(float), fine.to_points(v, (32, 32))
    off = np.sqrt(np.sum((u - expected) ** 2, axis=tuple(range(1, u.ndim))))
    size = np.sqrt(np.sum(expected**2, axis=tuple(range(1, u.ndim))))
    assert np.all(off / size < 2 * values["error"][:, -1])


def test_a_finer_output_samples_the_same_flow():
    coarse, fine = (problem(**{"problem.resolution": n}).compute(0, range(3)) for n in (32, 64))
    # rounding of the stored input, 6e-8, grows by at most ten in a time of 1
    np.testing.assert_allclose(coarse["a"], fine["a"][:, ::2, ::2], atol=2e-6)
    both = torus(64).to_points(torus(64).to_modes(fine["u"].astype(float)), (32, 32))
    np.testing.assert_allclose(coarse["u"], both, atol=1e-5)


def test_a_velocity_has_the_vorticity_of_the_other_output_and_errors_of_its_own():
    w, velocity = (problem(output=o).compute(0, range(3)) for o in ("vorticity", "velocity"))
    grid = Torus(problem().domain.grids, degree=1)
    found = grid.to_points(curl(grid, velocity["u"].astype(float)))
    np.testing.assert_allclose(found, w["u"], atol=1e-4)  # rounding times the wave number
    assert velocity["u"].shape == (3, 2, 2, 32, 32)
    assert np.all(velocity["error"] < w["error"] / 2)  # which are those of small scales


LAWS = {
    "viscosity": {"problem.viscosity": 0.0275},
    "drag": {"drag": 0.2},
    "wave": {"force.wave": 3},
    "amplitude": {"force.amplitude": 1.1},
    "length": {"length": 6.0},
}


@pytest.mark.parametrize("changes", [{}, {"output": "velocity"}, {"initial.burn_in": 0.0}])
def test_the_law_notices_swapped_samples_and_wrong_constants(changes):
    one = problem(**changes)
    values = one.compute(0, range(8))
    assert findings(one.checks(), values) == []
    swapped = {"u": np.roll(values["u"], 1, axis=0), "work": -values["work"]}
    swapped |= {"a": values["a"][::-1], "error": values["error"] + 0.1}
    for name, wrong in swapped.items():
        assert findings(one.checks(), {**values, name: wrong}), name
    for name, constant in LAWS.items():
        assert findings(problem(**changes, **constant).checks(), values), name


def test_a_velocity_with_a_divergence_is_a_finding():
    one = problem(output="velocity")
    values = one.compute(0, range(2))
    x = np.linspace(0, 2 * np.pi, 32, endpoint=False)
    gradient = 1e-3 * np.sin(x)[:, None] * np.array([1, 0])[:, None, None]
    (found,) = findings(one.checks(), {**values, "u": values["u"] + gradient.astype(np.float32)})
    assert "the divergence and the mean" in found.message


def test_samples_with_numbers_of_their_own_are_those_of_each_alone():
    laws = {
        "problem.viscosity": {"law": "uniform", "low": 0.025, "high": 0.05},
        "drag": {"law": "uniform", "low": 0.0, "high": 0.2},
    }
    one = problem(**laws)
    values = one.compute(3, range(5))
    assert findings(one.checks_of_store(), values) == []
    for i in range(5):
        alone = one.of_sample(3, i).compute(3, range(i, i + 1))
        for name, expected in alone.items():
            np.testing.assert_array_equal(values[name][i], expected[0], name)


@pytest.fixture(scope="module")
def recipe():
    return load_recipe("kolmogorov-quick").with_overrides(QUICK)


@pytest.fixture(scope="module")
def made(recipe, tmp_path_factory):
    return generate(recipe, str(tmp_path_factory.mktemp("flows") / "store.zarr"), workers=1)


def test_two_workers_make_the_same_bytes(recipe, made, tmp_path):
    assert verify(made.url, deep=3).faults == []
    assert objects_of(generate(recipe, str(tmp_path / "two"), workers=2)) == objects_of(made)


def test_what_a_killed_job_has_burnt_in_is_kept(recipe, made, tmp_path):
    url = str(tmp_path / "store.zarr")

    def killed_after_a_shard(progress):
        if progress.done:
            os.kill(os.getpid(), signal.SIGKILL)

    ended = forked(lambda: generate(recipe, url, workers=1, progress=killed_after_a_shard))
    assert ended.killed, ended.why
    shard = tmp_path / "store.zarr/a/c/0"
    (file,) = (path for path in shard.rglob("*") if path.is_file())
    before = file.stat().st_mtime_ns
    resumed = generate(recipe, url, workers=1, resume=True, take_over=True)
    assert objects_of(resumed) == objects_of(made)
    assert file.stat().st_mtime_ns == before


def test_deep_verification_allows_another_burn_in_but_no_other_label(recipe, tmp_path, monkeypatch):
    """A store of another processor, whose rounding a chaotic burn-in has amplified."""
    small = recipe.with_overrides({"samples": 4, "times": [0.5], "burn_in": 0.1})
    evolved, original = "pdegen.numerics.semilinear.Semilinear.evolved", Semilinear.evolved
    with monkeypatch.context() as patch:
        patch.setattr(evolved, lambda solver, v, t: original(solver, v * 1.01, t))
        store = generate(small, str(tmp_path / "a"), workers=1)
    assert verify(store.url, deep=4).faults == []
    with monkeypatch.context() as patch:
        patch.setattr(evolved, lambda solver, v, t: original(solver, v * 1.01, t))
        patch.setattr(Vorticity, "_modes", lambda p, grid, a: grid.to_modes(
            Torus(p.domain.grids, 1).to_points(1.001 * Torus(p.domain.grids, 1).to_modes(
                a.astype(float)), grid.points)))  # fmt: skip
        wrong = generate(small, str(tmp_path / "b"), workers=1)
    faults = verify(wrong.url, check_values=False, deep=4).faults
    assert [str(fault).partition(":")[0] for fault in faults[:2]] == ["u, shard 0"] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modes": 16}, "initial.modes must be below resolution/2 = 16 with a burn-in"),
        ({"wave": 22}, "force.wave must be at most 21, the highest mode of 64 points, got 22"),
        ({"output": "velocity", "restriction": "stride"}, "output velocity needs restriction four"),
        ({"burn_in": 1e6}, r"solver.dt must be at least 0.1: 0.02 makes 5e\+07 steps"),
        ({"drag": -0.1}, "problem.drag: must be at least 0, got -0.1"),
        ({"force.kind": "y"}, "problem.force.kind: must be 'diagonal' or 'kolmogorov', got 'y'"),
    ],
)
def test_impossible_requests_are_refused_in_one_line(changes, message):
    with pytest.raises(SchemaError, match=message):
        load_recipe("kolmogorov-quick").with_overrides(changes)


def test_a_burn_in_that_blows_up_names_the_sample():
    one = problem(**{"dt": 0.07, "force.amplitude": 1e4, "burn_in": 50.0})
    with pytest.raises(ArithmeticError, match="sample 0: the state at t = 50 is not finite"):
        one.compute(0, range(2))


def test_keys_of_today_change_no_earlier_fingerprint():
    dump = load_recipe("ns-quick").problem.model_dump()
    assert not {"length", "drag", "output"} & dump.keys()
    assert dump["force"] == {"amplitude": 0.1, "phase": 0.0}
    assert "burn_in" not in dump["initial"]
