"""The same sample in other units, and shapes by their formulas: keys of the solvers that no short
second computation replaces."""

import numpy as np
import pytest
from scipy.interpolate import CubicHermiteSpline

from pdegen.recipe import load_recipe
from tests.pdegen.recomputed.case import SEED, pairs, uniforms

FORGED = {"problem.resolution": 21, "frames": 10, "problem.height": 15.0, "imbalance": 0.2,
          "heights": [1.0, 7.0], "gap": 0.5}  # fmt: skip


def sample_of(name, changes, number=5):
    problem = load_recipe(name).with_overrides(changes).problem
    values = problem.compute(SEED, range(number, number + 1))
    return {name: value[0] for name, value in values.items()}


def test_a_forged_block_is_the_same_in_other_units():
    """Of stress, length and time; powers of two, so that rounding is the same."""
    stress, length, time = 4.0, 2.0, 0.5
    own = sample_of("plasticity-quick", FORGED)
    other = sample_of(
        "plasticity-quick",
        {
            **FORGED,
            "problem.length": 50.0 * length,
            "problem.height": 15.0 * length,
            "heights": [1.0 * length, 7.0 * length],
            "gap": 0.5 * length,
            "problem.speed": 3.0 * length / time,
            "interval": 0.1 * time,
            "young": 2e5 * stress,
            "problem.material.limit": 70.0 * stress,
            "density": 7.85e-3 * stress * time**2 / length**2,
        },
    )
    force = stress * length**2  # over the thickness, and along a way
    sizes = {"a": length, "u": length, "drift": length, "work": force, "plastic": force}
    assert np.ptp(own["u"]) > 1
    for name, values in own.items():
        np.testing.assert_allclose(
            other[name], sizes.get(name, 1.0) * values, rtol=1e-6,
            atol=1e-6 * float(abs(values).max()), err_msg=name,
        )  # fmt: skip


LINEAR = {"young": 1.2e6, "problem.material.poisson": 0.3, "traction": 50.0}
RUBBER = {"c1": 1.9e5, "c2": 9.8e3, "traction": 2000.0}


@pytest.mark.parametrize(
    ("recipe", "keys", "moduli"),
    [
        ("elasticity-quick", LINEAR, ["young"]),
        ("elasticity-hyperelastic", {**RUBBER, "problem.resolution": 12}, ["c1", "c2"]),
    ],
)
def test_a_sheet_is_the_same_in_other_units(recipe, keys, moduli):
    own = sample_of(recipe, {"problem.resolution": 12, **keys})
    scaled = {key: 4.0 * keys[key] for key in ("traction", *moduli)}
    other = sample_of(recipe, {"problem.resolution": 12, **keys, **scaled})
    assert own["displacement"][1].max() > 1e-6
    for name, values in own.items():
        size = 4.0 if name == "u" else 1.0
        np.testing.assert_allclose(other[name], size * values, rtol=1e-5, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("key", ["traction", "young"])
def test_a_linear_sheet_moves_by_its_load_over_its_modulus(key):
    own = sample_of("elasticity-quick", {"problem.resolution": 12, **LINEAR})
    other = sample_of(
        "elasticity-quick", {"problem.resolution": 12, **LINEAR, key: 3 * LINEAR[key]}
    )
    by = {"traction": (3, 3), "young": (1, 1 / 3)}[key]
    for name, size in zip(("u", "displacement"), by, strict=True):
        np.testing.assert_allclose(other[name], size * own[name], rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize(
    "changes", [{}, {"least": 0.15}, {"span": 0.1}, {"sigma": 8.0}, {"tau": 2.0}, {"modes": 3}]
)
def test_a_void_has_the_radius_of_its_formula(changes):
    """least + span/(1 + exp g), g = π^(-½) Σ (l² + τ²)^(-1) (θ cos lφ + θ' sin lφ), θ = σ ξ."""
    law = {"least": 0.2, "span": 0.2, "sigma": 16.0, "tau": 3.0, "modes": 5, **changes}
    keys = {f"problem.void.{key}": value for key, value in law.items()}
    found = sample_of("elasticity-quick", {"problem.resolution": 12, **keys})
    xi, zeta = pairs(SEED, 5, law["modes"])
    angle, g = np.linspace(0, 2 * np.pi, len(found["radius"])), 0.0
    for k in range(1, law["modes"] + 1):
        wave = xi[k - 1] * np.cos(k * angle) + zeta[k - 1] * np.sin(k * angle)
        g = g + law["sigma"] / np.sqrt(np.pi) / (k**2 + law["tau"] ** 2) * wave
    np.testing.assert_allclose(
        found["radius"], law["least"] + law["span"] / (1 + np.exp(g)), rtol=1e-12
    )


@pytest.mark.parametrize(
    "changes", [{}, {"heights": [-0.2, 0.6]}, {"slopes": [-0.5, 0.1]}, {"problem.length": 7.0}]
)
def test_a_pipe_is_the_cubic_of_its_knots(changes):
    """Heights 0, d_1 ... d_4, slopes m_0 ... m_4 for each quarter of the length."""
    keys = {"heights": [-1.0, 1.0], "slopes": [-2.0, 2.0], "problem.length": 10.0, **changes}
    problem = load_recipe("pipe-quick").with_overrides({"problem.resolution": 33, **keys}).problem
    z = uniforms(SEED, 5, 9)
    (low, high), (least, most) = keys["heights"], keys["slopes"]
    heights, slopes = low + (high - low) * z[:4], least + (most - least) * z[4:]
    length = keys["problem.length"]
    curve = CubicHermiteSpline(
        np.linspace(0, length, 5), [0.0, *heights], np.array(slopes) * 4 / length
    )
    y = problem.heights(z[None])[0]
    np.testing.assert_allclose(y.mean(axis=1), curve(np.linspace(0, length, 33)), atol=1e-13)
    np.testing.assert_allclose(np.ptp(y, axis=1), 1, rtol=1e-13)
