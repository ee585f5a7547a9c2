"""Bands of modes hold the functions that their names say: a finding names a mode to its reader."""

import re
from itertools import product

import numpy as np
import pytest

from pdegen.checks.gaussian import periodic_modes, square_modes, torus_modes
from pdegen.domains import CellGrid, PeriodicGrid
from pdegen.sampling.gaussian import PeriodicGaussianField, SquareGaussianField, TorusGaussianField

N, MOST = 24, 7  # points of an axis, largest wave number that is tried


def on_the_circle():
    modes = periodic_modes(PeriodicGaussianField(25.0, 5.0, 2.0, modes=11), PeriodicGrid(N))
    x = 2 * np.pi * PeriodicGrid(N).x
    for k, (name, wave) in product(range(1, MOST), (("cosine", np.cos), ("sine", np.sin))):
        yield modes, wave(k * x), f"the {name} {k}", k, None


def on_the_square(boundary):
    field = SquareGaussianField(boundary, 3.0, 3.0, 2.0, modes=12)
    modes, x = square_modes(field, CellGrid(N)), np.pi * CellGrid(N).x
    wave, first = (np.cos, 0) if boundary == "neumann" else (np.sin, 1)
    for p, q in product(range(first, MOST), repeat=2):
        if p or q:
            values = np.outer(wave(p * x), wave(q * x))
            side = "p > q" if p > q else "p <= q"
            yield modes, values, f"the mode ({p}, {q})", np.hypot(p, q), side


def on_the_torus():
    modes = torus_modes(TorusGaussianField(18.0, 7.0, 2.5, modes=9), N)
    x = 2 * np.pi * PeriodicGrid(N).x
    for k1, k2 in product(range(MOST), range(-MOST, MOST)):
        if k1 or k2 > 0:
            phase = k1 * x[:, None] + k2 * x
            for name, wave in (("cosine", np.cos), ("sine", np.sin)):
                side = "k₂ > 0" if k2 > 0 else "k₂ <= 0"
                yield modes, wave(phase), f"the {name} ({k1}, {k2})", np.hypot(k1, k2), side


def on_the_cube():
    modes = torus_modes(TorusGaussianField(18.0, 7.0, 3.0, modes=4, axes=3), 10)
    x = 2 * np.pi * np.stack(np.meshgrid(*[PeriodicGrid(10).x] * 3, indexing="ij"))
    for k in product(range(4), range(-3, 4), range(-3, 4)):
        if k > (0, 0, 0):
            phase = np.tensordot(k, x, 1)
            for name, wave in (("cosine", np.cos), ("sine", np.sin)):
                side = "k₂ > 0" if k[1] > 0 else "k₂ <= 0"
                where = ", ".join(map(str, k))
                yield modes, wave(phase), f"the {name} ({where})", np.linalg.norm(k), side


@pytest.mark.parametrize(
    ("functions", "leading"),
    [
        (on_the_circle(), 12),
        (on_the_square("neumann"), 15),
        (on_the_square("dirichlet"), 9),
        (on_the_torus(), 48),
        (on_the_cube(), 26),
    ],
    ids=["circle", "neumann", "dirichlet", "torus", "cube"],
)
def test_a_function_is_in_the_bands_that_are_named_for_it(functions, leading):
    named = 0
    for modes, values, name, k, side in functions:
        energy = modes.transform(values[None])[0] ** 2
        (place,) = np.flatnonzero(energy > 1e-12 * energy.sum())
        bands = {band for band, mask in modes.bands.items() if mask[place]}
        single = {band for band in bands if not re.match("(the|all) modes", band)}
        assert single <= {name}
        named += len(single)
        for band in modes.bands:
            if disc := re.fullmatch(r"all modes up to (\d+)", band):
                assert (band in bands) == (k <= int(disc[1])), (name, band)
            if ring := re.match(r"the modes from (\S+) to ([0-9.e+]+)", band):
                low, high = map(float, ring.groups())
                if band in bands:  # edges are printed with three digits
                    assert 0.99 * low < k < 1.01 * high, (name, band)
        if side is not None:
            assert {band.split(", ")[1] for band in bands if band.startswith("the modes")} == {side}
    assert named == leading
