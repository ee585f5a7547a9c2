"""Forging beside CalculiX: forces and displacements of two blocks under symmetric random dies."""

import shutil

import numpy as np
import pytest

from pdegen.equations.plasticity.problem import Spline
from pdegen.equations.plasticity.solver import Billet, Forging
from tests.absent import absent
from tests.validation.calculix import forged

SPLINE = Spline(50.0, 5)


@pytest.fixture(scope="module")
def calculix():
    if shutil.which("ccx") is None:
        absent("CalculiX is missing: apt-get install calculix-ccx")


def symmetric(seed):
    heights = np.random.default_rng(seed).uniform(0, 9, 3)
    pieces = SPLINE.pieces(np.concatenate([heights, heights[1::-1]])[None])
    pieces[..., 0] -= SPLINE.minimum(pieces)[:, None]
    return pieces[0]


def test_under_a_flat_die_the_force_is_the_same(calculix, tmp_path):
    """Both find 70 MPa times the section, which grows as the height falls."""
    forging = Forging(Billet(across=20, up=6), frames=4)
    expected = 3500 * 15 / (15 - forging.drop)
    _, force = forged(forging, SPLINE, np.zeros((4, 4)), tmp_path)
    assert force == pytest.approx(expected, rel=1e-3)
    assert forging(np.zeros((4, 4))).force[-1] == pytest.approx(expected, rel=3e-3)


@pytest.mark.parametrize(
    ("seed", "off"), [pytest.param(0, 0.07, marks=pytest.mark.slow), (1, 0.12)]
)
def test_under_a_random_die_the_block_is_the_same(calculix, tmp_path, seed, off):
    """After 1.5 mm, a static block of quadratic elements against a moving one. Without hardening,
    more than one motion has nearly the same force."""
    forging, die = Forging(Billet(across=40, up=12), frames=6), symmetric(seed)
    u, force = forged(forging, SPLINE, die, tmp_path)
    frames = forging(die)
    weights = forging.block.weights * ~np.isnan(u[0])
    u = np.nan_to_num(u)
    distance = (weights * (frames.u[-1] - u) ** 2).sum() / (weights * u**2).sum()
    assert frames.force[-1] == pytest.approx(force, rel=0.025)
    assert np.sqrt(distance) < off
    print(f"force {frames.force[-1]:.0f} and {force:.0f} N, displacement {np.sqrt(distance):.3f}")
