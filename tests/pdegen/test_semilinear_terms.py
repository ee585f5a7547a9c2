"""What the terms of a semilinear equation say of its solutions, against solutions."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from pdegen.domains import PeriodicGrid
from pdegen.equations.semilinear.solver import Terms
from pdegen.numerics.spectral import Torus

ZERO = (0.0, 0.0)


def terms(*reaction, **changes):
    """Of u and v on the line."""
    content = {
        "axes": 1, "advection": ((0.0,), (0.0,)), "diffusion": ZERO, "dispersion": ZERO,
        "hyper_diffusion": ZERO, "drag": ZERO, "convection": ZERO,
        "conservative_convection": ZERO, "gradient_norm": ZERO, "reaction": reaction, **changes,
    }  # fmt: skip
    return Terms(**content)


REACTIONS = {  # monomials: a component, a coefficient, the powers of u and v
    "taken by the other": [(0, -1.0, (0, 1))],
    "taken by a product without it": [(1, -0.5, (2, 0))],
    "taken at a constant rate": [(0, -0.2, (0, 0))],
    "taken in proportion": [(0, -1.0, (1, 1)), (1, -2.0, (0, 2))],
    "given by the other": [(0, 1.0, (0, 1)), (1, 0.3, (2, 0))],
    "given and taken": [(0, -1.0, (1, 2)), (1, 1.0, (1, 2)), (1, -0.1, (1, 0))],
    "decaying by itself": [(0, -3.0, (1, 0)), (1, -1.0, (0, 1))],
}


@pytest.mark.parametrize("reaction", REACTIONS)
def test_positive_are_reactions_that_drive_no_component_below_0(reaction):
    """From states on the edges of the quadrant, without space."""
    monomials = REACTIONS[reaction]

    def rate(_, state):
        found = np.zeros(2)
        for of, coefficient, (p, q) in monomials:
            found[of] += coefficient * state[0] ** p * state[1] ** q
        return found

    lowest = min(
        solve_ivp(rate, (0, 0.3), start, rtol=1e-10, atol=1e-12).y.min()
        for start in ([0.0, 0.7], [0.6, 0.0], [0.0, 0.0])
    )
    assert terms(*monomials).positive == (lowest > -1e-9)


@pytest.mark.parametrize(
    ("drag", "reaction", "growth"),
    [
        ((0.3, -0.2), (), (-0.3, 0.2)),
        ((0.3, 0.0), ((0, 1.1, (1, 0)), (1, 0.7, (1, 0)), (1, 0.4, (0, 1))), (0.8, 0.4)),
        ((0.0, 0.0), ((0, 1.1, (2, 0)), (1, 0.7, (1, 1))), (0.0, 0.0)),
    ],
)
def test_small_states_without_the_other_grow_at_the_rate_that_is_said(drag, reaction, growth):
    found = terms(*reaction, drag=drag)
    assert found.growth == pytest.approx(growth)
    assert all(sum(powers) != 1 or len(those) for powers, those in found.monomials.items())


@pytest.mark.parametrize(
    ("reaction", "alone"),
    [
        (((0, 1.0, (2, 0)), (1, 1.0, (0, 3))), (True, True)),
        (((0, 1.0, (2, 0)), (1, 1.0, (1, 1))), (True, False)),
        (((0, 1.0, (0, 1)),), (False, True)),
    ],
)
def test_components_that_react_to_themselves_alone_are_known(reaction, alone):
    found = terms(*reaction)
    assert tuple(map(found.reacts_alone, (0, 1))) == alone


def test_the_nonlinear_map_is_the_formula_at_points():
    torus = Torus((PeriodicGrid(24), PeriodicGrid(32)), degree=3)
    low = np.hypot(*torus.numbers) < 2  # cubic products of these modes are kept
    v = torus.to_modes(np.random.default_rng(0).standard_normal((1, 2, *torus.points))) * low
    u, w = torus.to_points(v)[0]

    def derivative(values, axis):
        return torus.to_points(torus.d[axis] * torus.to_modes(values))

    reaction = [(0, -0.7, (0, 1)), (1, 0.4, (1, 2)), (0, 0.2, (0, 0))]
    velocity = {"axes": 2, "advection": (ZERO, ZERO), "conservative_convection": (1.5, 1.5)}
    nonlinear = terms(*reaction, **velocity).nonlinear(torus)
    expected = [
        -0.75 * (derivative(u * u, 0) + derivative(u * w, 1)) - 0.7 * w + 0.2,
        -0.75 * (derivative(u * w, 0) + derivative(w * w, 1)) + 0.4 * u * w**2,
    ]
    np.testing.assert_allclose(torus.to_points(nonlinear(v))[0], expected, rtol=0, atol=1e-13)
