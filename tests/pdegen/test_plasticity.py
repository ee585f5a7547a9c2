"""Forging of a block: the flat die, the yield surface, energy, contact, and the law of stores."""

from functools import lru_cache

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from pdegen.equations.base import SampleError
from pdegen.equations.plasticity import kernels
from pdegen.equations.plasticity import problem as checks
from pdegen.equations.plasticity.problem import Spline, SplineDie
from pdegen.equations.plasticity.solver import Billet, Forging, Metal, centred
from pdegen.generation.generate import generate
from pdegen.numerics.errors import SolveError
from pdegen.recipe import load_recipe
from tests.pdegen.test_checks import findings

SMALL = Forging(Billet(across=20, up=6))
FLAT = np.zeros((1, 4))
STEEL = np.array([2e5, 0.3, 70.0, 7.85e-3, Metal().sound, 0.1, 0.0])


def heights(seed):
    return np.random.default_rng(seed).uniform(0, 9, (1, 9))


def die(heights):
    """The polynomials of a die whose lowest point touches the block."""
    spline = Spline(50.0, 9)
    pieces = spline.pieces(heights)
    pieces[..., 0] -= spline.minimum(pieces)
    return pieces[0]


def random_die(seed=0):
    return die(heights(seed))


@lru_cache
def forged(seed=0, across=40):
    return Forging(Billet(across=across, up=across * 3 // 10))(random_die(seed))


# the flat die: a block in homogeneous compression


def test_a_flat_die_stretches_the_block_evenly_against_the_yield_stress():
    """Length and thickness grow alike, so 70 MPa acts on 50 mm² times 15 over the height. The work
    is σ_Y V ln(15/9.3), beside that of waves. Both free directions stretch by (15/9.3)^(1/2);
    inertia holds the sides back by up to 1.5 %."""
    flat = Forging(Billet(across=40, up=12))(FLAT)
    np.testing.assert_allclose(flat.force[1:], 3500 * 15 / (15 - 0.3 * np.arange(1, 20)), rtol=3e-3)
    assert flat.elements[1].mean() == pytest.approx(-70, rel=2e-3)
    assert np.sqrt((flat.elements[0] ** 2).mean()) < 3
    assert flat.plastic[-1] == pytest.approx(70 * 750 * np.log(15 / 9.3), rel=2e-3)
    assert flat.work[-1] == pytest.approx(flat.plastic[-1], rel=3e-3)
    stretch = np.sqrt(15 / 9.3)
    ends = flat.u[-1, 0, [0, -1]]
    np.testing.assert_allclose(ends, 25 * (stretch - 1) * np.array([[-1], [1]]) + 0 * ends,
                               rtol=0.015)  # fmt: skip
    np.testing.assert_allclose(flat.elements[3], stretch, rtol=0.03)
    np.testing.assert_allclose(flat.u[-1, 1, :, -1], -5.7, atol=0.01)


# random dies


@pytest.mark.parametrize("seed", [0, 1])
def test_energy_is_in_balance(seed):
    frames = forged(seed)
    assert frames.imbalance < 2e-3
    assert np.all(np.diff(frames.work) > 0)
    assert np.all(np.diff(frames.plastic) > 0)
    assert frames.viscous[-1] < 0.02 * frames.work[-1]


@pytest.mark.parametrize("seed", [0, 1])
def test_the_block_is_between_the_floor_and_the_die(seed):
    frames, spline, nodes = forged(seed), Spline(50.0, 9), Billet(across=40, up=12).nodes
    assert not frames.u[:, 1, :, 0].any()
    assert not frames.u[0].any()
    for frame in range(1, 20):
        x, y = (nodes + frames.u[frame])[..., -1]
        # the die meets points of the edges, and they are its tangents: nodes may be below
        above = y - (15 - 0.3 * frame) - spline.values(random_die(seed)[None], x)[0]
        assert -0.05 < above.max() < 0.05


def test_the_law_of_contact_is_that_of_edges_which_may_lose_the_die_for_some_frames():
    """If contact were at nodes alone, the tip of this die would sink in between them. A block that
    slides on loses the die, as in sample 20 of plasticity-quick."""
    problem = small_problem(resolution=41)
    bounds = checks._Physics(problem.forging, problem.die.build(50.0), lambda _: pieces, True)
    frames, pieces = forged(1), random_die(1)[None]
    values = {"u": frames.u[None], "z": np.zeros((1, 9))}
    for quantity in (bounds.depth, bounds.gap):
        observed, limit = quantity(values)
        assert observed <= limit
    for frames_off, allowed in ((range(13, 16), True), (range(5, 20), False)):
        u = frames.u[None].copy()
        u[:, frames_off, 1] -= 0.4
        fraction, limit = bounds.gap({"u": u, "z": np.zeros((1, 9))})
        assert (fraction[0] <= limit) == allowed


def test_a_mirrored_die_gives_the_mirrored_block():
    u, mirrored_u = SMALL(random_die(5)).u, SMALL(die(heights(5)[:, ::-1])).u
    mirrored = mirrored_u[:, :, ::-1] * np.array([-1, 1])[:, None, None]
    np.testing.assert_allclose(u, mirrored, atol=1e-6)


def test_smaller_steps_change_little():
    frames, fine = SMALL(random_die()), Forging(SMALL.block, share=0.3)(random_die())
    assert fine.steps > 2 * frames.steps
    # with smaller steps the contact is stiffer, as its stiffness is relative to step⁻²
    assert SMALL.difference(centred(frames), centred(fine)) < 0.015


def test_the_drift_is_that_of_the_bottom():
    frames = forged(3)
    assert abs(frames.drift[-1]) > 1
    rest = centred(frames)
    np.testing.assert_allclose((rest[:, 0, 1:, 0] + rest[:, 0, :-1, 0]).mean(axis=1), 0, atol=1e-12)
    assert np.array_equal(rest[:, 1], frames.u[:, 1])


# parts of the solver


def test_stresses_return_to_the_yield_surface_along_the_deviator():
    """Direction and size of the plastic strain are those of the definition."""
    rng = np.random.default_rng(0)
    trials = rng.normal(size=(200, 3)) * 150
    stresses, flows = trials.T.copy(), np.empty(200)
    kernels.return_to_yield_surface(*stresses, STEEL, flows)
    for trial, stress, flow in zip(trials, stresses.T, flows, strict=True):
        xx, yy, xy = stress
        equivalent = np.sqrt(xx**2 - xx * yy + yy**2 + 3 * xy**2)
        trial_equivalent = np.sqrt(
            trial[0] ** 2 - trial[0] * trial[1] + trial[1] ** 2 + 3 * trial[2] ** 2
        )
        if trial_equivalent <= 70:
            assert flow == 0
            np.testing.assert_allclose(stress, trial, rtol=1e-15)
            continue
        assert equivalent == pytest.approx(70, rel=1e-8)
        strain = flow * np.array([(2 * xx - yy) / 3, (2 * yy - xx) / 3, 2 * xy])
        stiff = 2e5 / 0.91 * np.array([[1, 0.3, 0], [0.3, 1, 0], [0, 0, 0.35]])
        np.testing.assert_allclose(trial - stress, stiff @ strain, atol=1e-6)


ONE = Billet(across=1, up=1, length=1, height=1).nodes


def step(x, velocity, dt, material=STEEL, stress=(0.0, 0.0, 0.0)):
    """Stress, forces and energies after one step of elements with these nodes."""
    cells = x.shape[1] - 1, x.shape[2] - 1
    state = np.zeros((5, *cells))
    state[:4] = np.array([*stress, 1.0])[:, None, None]
    energy, force, scratch = np.zeros(4), np.empty_like(x), np.empty((6, *cells))
    kernels.element_forces(
        np.concatenate([x, velocity]), dt, state, material, scratch, force, energy
    )
    return state[:3], force, energy


def distorted(seed, motion):
    """One step of distorted elements that move by a linear velocity."""
    x = Billet(across=4, up=4, length=4, height=4).nodes.copy()
    x[:, 1:-1, 1:-1] += np.random.default_rng(seed).uniform(-0.2, 0.2, (2, 3, 3))
    return step(x, np.tensordot(motion, x, axes=1), 1e-5, stress=(30.0, -20.0, 10.0))


def test_a_linear_velocity_gives_one_stress_and_no_force_inside():
    """The patch test, and no hourglass mode in it."""
    motion = np.array([[3.0, -1.0], [2.0, -4.0]])
    stress, force, energy = distorted(0, motion)
    np.testing.assert_allclose(stress, stress[:, :1, :1] + 0 * stress, rtol=1e-12)
    assert abs(force[:, 1:-1, 1:-1]).max() < 1e-9
    assert energy[kernels.HOURGLASS] < 1e-20
    gained = 2e5 / 0.91 * (3 - 0.3 * 4) * 1e-5
    turned = 2 * (-1 - 2) / 2 * 1e-5 * 10
    assert stress[0, 0, 0] == pytest.approx(30 + gained + turned, rel=1e-6)


def test_a_turning_block_turns_its_stress_and_keeps_its_forces_balanced():
    stress, force, _ = distorted(1, np.array([[0.0, -7.0], [7.0, 0.0]]))
    turn = np.array([[0, -7e-5], [7e-5, 0]])
    before = np.array([[30.0, 10], [10, -20]])
    after = before + turn @ before - before @ turn
    np.testing.assert_allclose(stress[:, 0, 0], [after[0, 0], after[1, 1], after[0, 1]], atol=1e-6)
    assert abs(force.sum(axis=(1, 2))).max() < 1e-9


def test_an_hourglass_mode_is_damped_and_dissipates_energy():
    u = np.array([[1.0, -1.0], [-1.0, 1.0]])
    stress, force, energy = step(ONE, np.stack([u, 0 * u]), 1e-5)
    assert not stress.any()
    assert np.all(force[0] * u < 0)
    assert energy[kernels.HOURGLASS] == pytest.approx(-(force[0] * u).sum() * 1e-5)


@pytest.mark.parametrize("poisson", [0.0, 0.3, 0.45])
@pytest.mark.parametrize("motion", [(3.0, -1.0), (-1.0, 2.0)])
def test_waves_are_damped_by_the_rate_of_the_volume(poisson, motion):
    """The pressure is q ρ c l times the volume rate: (1 - 2ν)/(1 - ν) of the rate of the area."""
    dt, forces, energies = 1e-6, [], []
    for viscosity in (0.0, 0.06):
        material = STEEL.copy()
        material[[1, 6]] = poisson, viscosity
        _, force, energy = step(ONE, ONE * np.reshape(motion, (2, 1, 1)), dt, material)
        forces.append(force)
        energies.append(energy[kernels.VISCOUS])
    rate = (1 - 2 * poisson) / (1 - poisson) * sum(motion)
    damping = 0.06 * STEEL[3] * STEEL[4] * rate
    corners = damping / 2 * np.array([[[1, 1], [-1, -1]], [[1, -1], [1, -1]]])
    np.testing.assert_allclose(forces[1] - forces[0], corners, rtol=1e-4)
    assert energies == [0, pytest.approx(damping * sum(motion) * dt, rel=1e-4)]


def quadrilaterals(count):
    """Random quadrilaterals of positive area, many flat or concave: x and y by corners [i, j]."""
    rng, accepted = np.random.default_rng(3), []
    while len(accepted) < count:
        x = ONE + rng.uniform(-0.7, 0.7, (2, 2, 2))
        if kernels.smallest_width(*x) > 0.01:
            accepted.append(x)
    return accepted


def test_steps_are_stable_for_elements_of_any_shape():
    """The stable step is 2/ω with ω the highest frequency; mass is lumped to the corners."""
    elastic = 2e5 / 0.91 * np.array([[1, 0.3, 0], [0.3, 1, 0], [0, 0, 0.35]])
    ratios = []
    for x in quadrilaterals(200):
        corners = x[:, [0, 1, 1, 0], [0, 0, 1, 1]]
        a, b = corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1]
        area = (a[0] * b[1] - a[1] * b[0]) / 2
        dx, dy = np.array([[-b[1], a[1], b[1], -a[1]], [b[0], -a[0], -b[0], a[0]]]) / (-2 * area)
        strain = np.zeros((3, 8))
        strain[0, :4] = strain[2, 4:] = dx
        strain[1, 4:] = strain[2, :4] = dy
        stiffness = strain.T @ elastic @ strain * area
        highest = np.sqrt(np.linalg.eigvalsh(stiffness)[-1] / (7.85e-3 * area / 4))
        ratios.append(kernels.smallest_width(*x) / Metal().sound * highest / 2)
    assert max(ratios) <= 1
    assert min(ratios) > 0.7


def test_hourglass_modes_are_damped_alike_in_elements_of_any_shape():
    """So a concave element does not make a step unstable."""
    for x in quadrilaterals(50):
        damping = np.empty((8, 8))
        for k in range(8):
            velocity = np.zeros(8)
            velocity[k] = 1
            damping[k] = -step(x, velocity.reshape(2, 2, 2), 1e-12)[1].ravel()
        a, b = x[:, 1, 1] - x[:, 0, 0], x[:, 0, 1] - x[:, 1, 0]
        area = (a[0] * b[1] - a[1] * b[0]) / 2
        expected = 0.1 * 7.85e-3 * Metal().sound * np.sqrt(area)
        np.testing.assert_allclose(np.linalg.eigvalsh(damping)[-2:], expected, rtol=1e-3)


def test_a_die_is_a_natural_spline_that_continues_straight():
    rng = np.random.default_rng(0)
    spline, knots = Spline(50.0, 9), rng.uniform(0, 9, (3, 9))
    pieces, x = spline.pieces(knots), np.linspace(-25, 25, 2001)
    expected = CubicSpline(np.linspace(-25, 25, 9), knots, axis=1, bc_type="natural")
    np.testing.assert_allclose(spline.values(pieces, x), expected(x), atol=1e-12)
    np.testing.assert_allclose(spline.minimum(pieces), expected(x).min(axis=1), atol=1e-4)
    assert np.all(spline.minimum(pieces) <= expected(x).min(axis=1) + 1e-12)
    beyond = np.array([-30.0, 28.0])
    slopes = expected(np.array([-25.0, 25.0]), 1)
    straight = expected(np.array([-25.0, 25.0])) + slopes * np.array([-5, 3])
    np.testing.assert_allclose(spline.values(pieces, beyond), straight, atol=1e-11)
    for point in (-26.0, -25.0, -3.3, 0.0, 12.5, 25.0, 31.0):
        value, _ = kernels.die_surface(pieces[0], 25.0, point)
        assert value == pytest.approx(spline.values(pieces[:1], np.array([point]))[0, 0], abs=1e-12)


# failures


def test_a_die_that_misses_the_block_is_refused():
    high = FLAT + np.array([5.71, 0, 0, 0])
    with pytest.raises(SolveError, match=r"the die misses the block: it comes down 5\.7 mm"):
        SMALL(high)


def test_a_die_that_crushes_the_block_is_a_failure_with_a_reason():
    with pytest.raises(SolveError, match=r"is crushed by the die at .* ms: use a flatter"):
        Forging(Billet(across=10, up=4), speed=3.0607, frames=50)(FLAT)
    x, y = Billet(across=2, up=2, length=2, height=2).nodes
    assert kernels.smallest_width(x, y) == pytest.approx(np.sqrt(0.5))
    x[1, 1] = 2.5
    assert kernels.smallest_width(x, y) < 0


# stores


def small_problem(**overrides):
    overrides = {"resolution": 21, **overrides}
    return load_recipe("plasticity-quick").with_overrides(overrides).problem


@lru_cache
def values_of(**overrides):
    return small_problem(**overrides).compute(0, range(6))


def test_a_sample_is_recomputed_from_its_numbers():
    problem, values = small_problem(), values_of()
    pieces = SplineDie(law="natural-spline").pieces(values["z"][2:3], 50.0)
    frames = problem.forging(pieces[0])
    assert np.array_equal(frames.u.astype(np.float32), values["u"][2])
    assert np.array_equal(frames.drift, values["drift"][2])
    assert (frames.steps, frames.imbalance) == (values["iterations"][2], values["residual"][2])


def test_labels_without_drift_are_shifted_labels_with_drift():
    kept, removed = values_of(), values_of(drift="removed")
    moved = kept["u"].astype(float)
    moved[:, :, 0] -= kept["drift"][..., None, None]
    np.testing.assert_allclose(removed["u"], moved, atol=1e-6)
    assert np.array_equal(removed["error"], kept["error_at_rest"])
    assert np.array_equal(removed["drift"], kept["drift"])


def test_sound_stores_without_drift_pass():
    assert findings(small_problem(drift="removed").checks(), values_of(drift="removed")) == []


def test_a_label_that_is_off_by_more_than_twice_itself_is_a_named_sample():
    problem = small_problem(frames=3, drift="removed")
    with pytest.raises(
        SampleError, match=r"sample 10: the error of u is 1[0-9], at most 2 is allowed"
    ):
        problem.compute(0, range(10, 11))


WAVE = np.sin(np.pi * np.arange(21) / 20)[:, None] * np.sin(np.pi * np.arange(7) / 6)
FAULTS = [  # a variable, a part of its values, and what replaces it
    ("u", np.s_[3, 1:, 1], lambda u: u + 0.3 * WAVE),
    ("u", np.s_[3], lambda u: 1.03 * u),
    ("u", np.s_[[1, 4]], lambda u: u[::-1]),
    ("u", np.s_[2, 1:], lambda u: np.concatenate([0 * u[:1], u[:-1]])),
    ("u", np.s_[2, 1:, 0], lambda u: u + 0.2),
    ("u", np.s_[2, 5, 1, 4, 0], lambda u: 0.1),
    ("u", np.s_[2, 0], lambda u: u + 0.01),
    ("u", np.s_[5, 7, 0, 10, 3], lambda u: u + 6.0),
    ("u", np.s_[5], lambda u: u[:, :, ::-1] * np.array([-1, 1])[:, None, None]),
    ("u", 2, lambda u: np.nan),
    ("z", 3, lambda z: 0.25),
    ("a", 3, lambda a: 20.0),
    ("drift", 1, lambda drift: 0.5),
    ("work", 1, lambda work: 1.0),
    ("plastic", 1, lambda plastic: 1.0),
    ("plastic", np.s_[:], lambda plastic: 1.05 * plastic),
    ("error", 0, lambda error: np.nan),
    ("error", 1, lambda error: 0.0),
    ("error_at_rest", 0, lambda error: -1.0),
    ("error_at_rest", 1, lambda error: 0.0),
    ("residual", 0, lambda residual: 0.1),
    ("iterations", 0, lambda iterations: 0),
    ("status", 0, lambda status: 1),
]


@pytest.mark.parametrize("drift", ["kept", "removed"])
@pytest.mark.parametrize(("name", "part", "change"), FAULTS)
def test_changed_stores_are_noticed(drift, name, part, change):
    changed = values_of(drift=drift)[name].copy()
    changed[part] = change(changed[part])
    law = small_problem(drift=drift).checks()
    assert findings(law, {**values_of(drift=drift), name: changed})


def test_a_sample_out_of_balance_is_named_and_others_are_kept(tmp_path):
    recipe = load_recipe("plasticity-quick").with_overrides({"resolution": 21, "samples": 4})
    limit = float(np.sort(recipe.problem.compute(0, range(4))["residual"])[2:].mean())
    strict = recipe.with_overrides({"imbalance": limit})
    store = generate(strict, str(tmp_path / "s"), workers=1, skip_failed=True)
    assert len(store.skipped) == 1
    (sample,) = store.skipped
    assert np.isfinite(store.values("error", range(4))).sum() == 3
    with pytest.raises(SampleError, match=f"sample {sample}: energy is out of balance by"):
        strict.problem.compute(0, range(sample, sample + 1))
