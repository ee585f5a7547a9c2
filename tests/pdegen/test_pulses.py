"""Square pulses on the circle: exact averages, wherever the ends of a pulse lie."""

import numpy as np
import pytest

from pdegen.equations.pulses.solver import Pulse, Transport
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError

RNG = np.random.default_rng(0)
PULSE = Pulse(RNG.uniform(0.2, 0.8, 50), RNG.uniform(0.05, 0.3, 50), RNG.uniform(0, 1, 50))


@pytest.mark.parametrize("shift", [0.0, 0.5, 0.123, -2.7, 31.4])
def test_averages_are_those_of_many_points(shift):
    n, fine = 20, 1000
    x = (np.arange(n * fine) + 0.5) / (n * fine)
    centre, width = (PULSE.centre + shift)[:, None], PULSE.width[:, None]
    inside = abs((x - centre + 0.5) % 1 - 0.5) < width / 2
    mean = (PULSE.height[:, None] * inside).reshape(50, n, fine).mean(axis=2)
    assert abs(PULSE.averages(n, shift) - mean).max() < 2 * 0.8 / fine  # two ends of a pulse


def test_content_is_kept_to_round_off():
    content = Transport(1024, 0.7)(PULSE, 0.9).mean(axis=1)
    assert abs(content - PULSE.height * PULSE.width).max() < 1e-14


def test_averages_over_coarser_cells_are_averages_of_averages():
    fine = PULSE.averages(1024, 0.123).reshape(50, 64, 16).mean(axis=2)
    np.testing.assert_allclose(PULSE.averages(64, 0.123), fine, atol=1e-13)


def test_whole_cells_are_carried_exactly():
    moved = Transport(100, 2.0)(PULSE, 0.05)
    np.testing.assert_allclose(moved, np.roll(PULSE.averages(100), 10, axis=1), atol=1e-13)


def test_a_pulse_stays_between_nothing_and_its_height():
    u = Transport(128)(PULSE, 0.31)
    assert u.min() > -1e-13
    assert np.all(u <= PULSE.height[:, None] + 1e-13)
    variation = abs(np.diff(u, append=u[:, :1])).sum(axis=1)
    np.testing.assert_allclose(variation, 2 * PULSE.height, atol=1e-12)


@pytest.fixture(scope="module")
def quick():
    return load_recipe("pulses-quick")


def test_the_recipe_is_that_of_the_card():
    recipe = load_recipe("pulses")
    problem, splits = recipe.problem, recipe.splits
    assert problem.speed * problem.times[0] == 0.5
    assert problem.initial.ranges == {
        "height": (0.2, 0.8), "width": (0.05, 0.3), "centre": (0.0, 1.0),
    }  # fmt: skip
    assert (splits.train, splits.validation, splits.test) == (1024, 128, 128)


def test_a_predictor_that_does_not_move_is_bad_and_the_mean_is_bad(quick):
    """Closed forms: pulses of one half turn overlap nothing; the mean is flat."""
    stored = quick.problem.compute(0, range(2000))
    a, u = stored["a"].astype(float), stored["u"].astype(float)
    size = abs(u).sum(axis=1)
    assert (abs(u - a).sum(axis=1) / size).mean() == pytest.approx(2, abs=1e-6)
    flat = (abs(u - u.mean(axis=0)).sum(axis=1) / size).mean()
    # E h w = 0.0875 everywhere: the mean of 2 - 2 w + ... within two per cent of this law
    height, width = 0.2 + 0.6 * stored["z"][:, 0], 0.05 + 0.25 * stored["z"][:, 1]
    exact = (abs(height - 0.0875) * width + 0.0875 * (1 - width)) / (height * width)
    assert flat == pytest.approx(exact.mean(), rel=0.02)


def test_a_sample_depends_on_its_number_alone(quick):
    values = quick.problem.compute(0, range(40))
    for name, value in quick.problem.compute(0, range(37, 39)).items():
        assert np.array_equal(values[name][37:39], value)


def test_other_resolutions_have_the_same_pulses(quick):
    fine = quick.problem.compute(0, range(4))
    coarse = quick.with_overrides({"problem.resolution": 64}).problem.compute(0, range(4))
    for name in "au":
        mean = fine[name].astype(float).reshape(4, 64, 4).mean(axis=2)
        np.testing.assert_allclose(coarse[name], mean, atol=1e-7)  # rounded to float32


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"times": [0.0]}, "times.0: must be greater than 0, got 0.0"),
        ({"times": [0.2, 0.1]}, "times: must increase, got [0.2, 0.1]"),
        ({"initial.width": [0.1, 1.0]}, "a pulse is shorter than the circle of length 1"),
        ({"initial.width": [0.0, 0.1]}, "initial.width.0: must be greater than 0"),
        ({"initial.height": [0.8, 0.2]}, "a range is two numbers that do not fall"),
        ({"initial.centre": [0.0]}, "initial.centre.1: is missing"),
    ],
)
def test_impossible_recipes_are_refused(quick, changed, said):
    with pytest.raises(SchemaError) as error:
        quick.with_overrides({f"problem.{key}": value for key, value in changed.items()})
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def findings(problem, stored):
    numbers = np.arange(len(stored["z"]))
    return [one.what for one in problem.law().check([(numbers, stored)])]


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"times": [0.1, 0.5, 7.3], "resolution": 1024},
        {"speed": -0.33, "resolution": 3},
        {"initial.width": [0.5, 0.999], "initial.centre": [-3.0, 5.0]},
        {"initial.height": [0.5, 0.5], "initial.centre": [0.0, 0.0]},
    ],
)
def test_samples_follow_the_law(quick, changed):
    overrides = {f"problem.{key}": value for key, value in changed.items()}
    problem = quick.with_overrides(overrides).problem
    assert findings(problem, problem.compute(0, range(200))) == []


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("z", lambda z: z / 2, "statistics of the uniform numbers"),
        ("z", lambda z: z[[0, *range(199)]], "is the same as sample 0"),
        ("a", lambda a: np.roll(a, 1, axis=1), "the distance from what the pulse covers"),
        ("u", lambda u: np.roll(u, 1, axis=1), "the distance from what the pulse covers"),
        ("u", lambda u: u * np.float32(1.00001), "the distance of the means"),
    ],
)
def test_the_law_sees_other_values(quick, name, changed, said):
    stored = quick.problem.compute(0, range(200))
    found = findings(quick.problem, {**stored, name: changed(stored[name])})
    assert any(said in what for what in found)
