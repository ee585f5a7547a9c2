"""Waves: exact modes, order, reversibility, invariants, and what the law notices."""

from itertools import pairwise

import numpy as np
import pytest

from pdegen.equations.wave.solver import WaveMarch, march
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from tests.pdegen.small import problem, samples

NAME = "wave-quick"


def grid(n):
    return np.meshgrid(np.arange(n) / n, np.arange(n) / n, indexing="ij")


def smooth(n):
    x, y = grid(n)
    c = 1 + 0.4 * np.sin(2 * np.pi * x) * np.cos(2 * np.pi * y + 1)
    return np.cos(2 * np.pi * (x + y)) + np.sin(2 * np.pi * (2 * x - y)), c


def findings(problem, values):
    report = problem.checks_of_store().check([(np.arange(len(values["a"])), values)])
    return [finding.variable for finding in report]


def test_modes_of_constant_speed_are_cosines_in_time():
    n, times = 64, [0.25, 0.5, 1.5]
    x, y = grid(n)
    mode, omega = np.cos(2 * np.pi * (x + 2 * y)), 2 * np.pi * np.sqrt(5) * 0.7
    u, _ = WaveMarch.stable(n, 0.7, times)(mode, np.full((n, n), 0.7))
    for t, frame in zip(times, u, strict=True):
        assert frame == pytest.approx(np.cos(omega * t) * mode, abs=2e-3)  # (kh)^4/90 of the phase


def test_the_order_is_four_where_the_speed_is_smooth():
    frames = [WaveMarch.stable(n, 1.4, [0.5])(*smooth(n))[0][0, :: n // 32, :: n // 32]
              for n in (64, 128, 256)]  # fmt: skip
    first, second = (np.linalg.norm(b - a) for a, b in pairwise(frames))
    assert np.log2(first / second) == pytest.approx(4, abs=0.1)


def test_time_runs_backwards_to_rounding():
    u, c = smooth(48)
    dt, start = 0.8 / 48 / 1.4, u.copy()
    before = u.copy()
    march(u, before, c**2, dt, 200)
    march(before, u, c**2, dt, 200)  # u(t - dt) and u(t), exchanged
    assert np.abs(u - start).max() < 1e-11
    assert np.abs(before - start).max() < 1e-11


def test_energy_and_the_weighted_mean_are_conserved():
    u0, c = smooth(32)
    u, drift = WaveMarch.stable(32, 1.4, [0.5, 2.0])(u0, c)
    assert drift < 1e-12
    mean = np.mean(u0 / c**2)
    assert np.mean(u / c**2, axis=(1, 2)) == pytest.approx([mean, mean], abs=1e-12)


@pytest.mark.parametrize("name", [NAME, "wave-layers"])
def test_swapped_samples_other_frames_and_other_constants_are_found(name):
    changes = {} if name == NAME else {"problem.resolution": 32, "times": [0.2, 0.4]}
    recipe = load_recipe(name).with_overrides(changes)
    sound = samples(NAME) if name == NAME else recipe.problem.compute(0, range(4))
    if name == NAME:
        recipe = recipe.with_overrides({})
    assert findings(recipe.problem, sound) == []
    for key in "acu":
        assert findings(recipe.problem, sound | {key: sound[key][::-1].copy()}) == ["u"]
    for change in (
        {"u": np.roll(sound["u"], 1, axis=1)}, {"u": np.roll(sound["u"], 1, axis=2)},
        {"u": -sound["u"]}, {"error": 2 * sound["error"]}, {"error": sound["error"] / 2},
        {"c": sound["c"] * np.float32(0.99)}, {"drift": sound["drift"] + 1e-6},
    ):  # fmt: skip
        assert findings(recipe.problem, sound | change)
    for key, value in (("times", [0.26, 0.52]), ("high", 1.6), ("low", 0.4)):
        assert findings(recipe.with_overrides({key: value}).problem, sound)


@pytest.mark.parametrize(("name", "change"), [
    (NAME, {"speed.sigma": 300.0}), ("wave-layers", {"speed.tau": 60.0}),
    ("wave-layers", {"initial.sigma": 9000.0}),
])  # fmt: skip
def test_another_law_of_the_inputs_is_found(name, change):
    short = {"problem.resolution": 32, "times": [0.01]}
    recipe = load_recipe(name).with_overrides(short)
    values = recipe.problem.compute(0, range(250))
    assert findings(recipe.problem, values) == []
    other = recipe.with_overrides(change).problem
    assert set(findings(other, values)) & {"a", "c"}


def test_a_sample_does_not_depend_on_its_batch():
    alone = problem(NAME).compute(0, range(5, 6))
    for key, value in samples(NAME).items():
        assert np.array_equal(value[5], alone[key][0]), key


@pytest.mark.parametrize(("change", "message"), [
    ({"times": [0.2, 0.3]}, "times must be multiples of the first one"),
    ({"speed.low": 2.0}, "speed.low must be below speed.high"),
    ({"initial.modes": 20}, "initial.modes must be at most 15 for resolution = 32"),
])  # fmt: skip
def test_bad_recipes_are_refused(change, message):
    with pytest.raises(SchemaError, match=message):
        load_recipe(NAME).with_overrides(change)
