"""Radial dam breaks: volume, similarity, the planar limit, order, and what the law notices."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import brentq

from pdegen.equations.dam_break.solver import RadialFlow, disc_areas, on_square, ring_shares
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from tests.pdegen.small import problem, samples

NAME = "dam-break-quick"


def findings(problem, values):
    report = problem.checks_of_store().check([(np.arange(len(values["a"])), values)])
    return [finding.message for finding in report if finding.variable]


def test_the_volume_is_conserved_on_rings_and_on_cells():
    flow = RadialFlow(400, 2.5)
    rings = flow(flow.disc(0.6, 2.0), [0.3, 0.9])
    u = on_square(ring_shares(16, 5.0, flow), rings)
    volume = np.pi * 0.6**2
    assert (rings - 1) @ np.diff(np.pi * flow.edges**2) == pytest.approx(volume, rel=1e-12)
    assert (u - 1).sum(axis=(1, 2)) * (5 / 16) ** 2 == pytest.approx(volume, rel=1e-12)
    for axis in (1, 2):
        assert np.array_equal(u, np.flip(u, axis))
    assert u == pytest.approx(u.transpose(0, 2, 1), abs=1e-12)


@pytest.mark.parametrize("radius", [0.05, 1.0, 2.5, 3.0])
def test_areas_of_a_disc_are_those_of_its_points(radius):
    areas, x = disc_areas(8, 5.0, radius), (np.arange(1600) + 0.5) * 2.5 / 1600
    inside = (np.hypot(x[:, None], x) < radius).reshape(8, 200, 8, 200).mean(axis=(1, 3))
    assert areas / (2.5 / 8) ** 2 == pytest.approx(inside, abs=1e-2)  # two rows of points in 200
    if radius <= 2.5:
        assert areas.sum() == pytest.approx(np.pi * radius**2 / 4)


def test_a_dam_twice_as_large_takes_twice_the_time():
    small, large = RadialFlow(256, 2.0), RadialFlow(256, 4.0)
    expected = small(small.disc(0.5, 3.0), [0.4])
    assert large(large.disc(1.0, 3.0), [0.8]) == pytest.approx(expected, rel=1e-12)


def test_behind_the_shock_of_a_very_large_dam_is_the_height_of_stoker():
    """2 (√H - √h) = (h - 1) √((h + 1)/2h) for a straight dam (Stoker 1957); here r = 100 t."""
    flow = RadialFlow(8000, 100.0)
    h = np.interp(50.0, flow.edges[:-1], flow(flow.disc(50.0, 2.0), [0.5])[0])

    def rankine_hugoniot(h):
        return 2 * (np.sqrt(2) - np.sqrt(h)) - (h - 1) * np.sqrt((h + 1) / (2 * h))

    assert h == pytest.approx(brentq(rankine_hugoniot, 1, 2), rel=0.01)  # t/r = 1/100


def test_the_order_is_that_of_shocks():
    frames = []
    for rings in (250, 500, 1000):
        flow = RadialFlow(rings, 2.5)
        frames.append(on_square(ring_shares(32, 5.0, flow), flow(flow.disc(0.5, 2.0), [0.5])))
    first, second = (np.linalg.norm(b - a) for a, b in pairwise(frames))
    assert 0.9 < np.log2(first / second) < 1.6  # 2 where the flow is smooth


def test_the_stated_error_is_that_against_eight_times_the_rings():
    finer = load_recipe(NAME).with_overrides({"rings": 2560}).problem
    found, fine = (one.compute(0, range(2)) for one in (load_recipe(NAME).problem, finer))
    off, size = (np.linalg.norm(u, axis=(2, 3)) for u in (found["u"] - fine["u"], fine["u"]))
    ratio = (off / size).max(axis=1) / found["error"]
    assert np.all((ratio > 0.5) & (ratio < 2)), ratio


def test_swapped_samples_other_frames_and_other_constants_are_found():
    sound = samples(NAME)
    assert findings(problem(NAME), sound) == []
    for change in (
        {"u": sound["u"][::-1].copy()}, {"a": sound["a"][::-1].copy()},
        {"u": np.roll(sound["u"], 1, axis=1)}, {"u": np.roll(sound["u"], 1, axis=2)},
        {"radius": sound["radius"] + 1e-3},
    ):  # fmt: skip
        assert findings(problem(NAME), sound | change)
    other = load_recipe(NAME).with_overrides({"height": 2.01}).problem
    assert findings(other, sound)
    later = load_recipe(NAME).with_overrides({"times": [0.3, 0.55, 0.8, 1.0]}).problem
    assert findings(later, sound)


def test_waves_must_not_reach_the_sides():
    with pytest.raises(SchemaError, match="until 2 waves may come as far as"):
        load_recipe(NAME).with_overrides({"times": [2.0]})
    with pytest.raises(SchemaError, match=r"height: .*greater than 1"):
        load_recipe(NAME).with_overrides({"height": 0.5})
