"""PDEBench's family: law of the initial values, exact solutions, and the fault of its labels."""

import numpy as np
import pytest

from pdegen.equations.semilinear.initial import Waves
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from tests.pdegen.small import problem, samples
from tests.pdegen.test_semilinear_problem import findings
from tests.validation.published_reaction import by_galerkin, by_scheme
from tests.validation.waves import initial

QUICK = ("pdebench-advection-quick", "pdebench-burgers-quick", "pdebench-reaction-quick")


@pytest.mark.parametrize("scaled", [False, True])
def test_initial_values_are_those_of_a_second_program(scaled):
    law, x = Waves(law="waves", scaled=scaled), np.arange(64) / 64
    z = law.numbers(3, range(200))
    for row, u in zip(z, law.of(z, 64), strict=True):
        # scaled values are cut to [0, 1]: between the 4,096 points u passes both by 1e-5 at most
        assert abs(u - initial(row, x, scaled)).max() < (1e-5 if scaled else 1e-12)


def test_constants_and_doubled_waves_are_those_of_the_published_script():
    """Waves 2 and 2 of four: sin 4·2πx with the amplitude of wave 2, and three constants."""
    z = np.full((1, 15), 0.5)
    z[0, :2], z[0, 6:10] = 0.3, (0.25, 0.0, 0.25, 0.25)
    u = Waves(law="waves").of(z, 32)[0]
    assert u == pytest.approx(-(1.5 + 0.5 * np.sin(8 * np.pi * np.arange(32) / 32)))


def test_typical_values_are_those_of_the_law():
    law = Waves(law="waves", absolute=0.0, window=0.0)
    u = law.of(law.numbers(0, range(4000)), 128)
    slope = np.gradient(np.pad(u, ((0, 0), (1, 1)), "wrap"), 1 / 128, axis=1)[:, 1:-1]
    for values, expected in zip((u, slope), law.typical(1.0), strict=True):
        assert np.sqrt(np.mean(values**2)) == pytest.approx(expected, rel=0.05)  # 4,000 samples


def test_advection_of_kinks_states_its_error():
    """Absolute values have kinks, which no grid resolves. The true solution is u0(x - ct)."""
    kinks = {"absolute": 1.0, "window": 0.0, "problem.solver.resolution": 1024}
    moved = load_recipe("pdebench-advection-quick").with_overrides(kinks).problem
    values, n = moved.compute(0, range(20)), moved.resolution
    ratio = list[float]()
    for z, u, error in zip(values["z"], values["u"], values["error"], strict=True):
        z[10] = 0  # absolute in `initial`
        z[12] = 1  # no window there
        exact = np.stack([initial(z, np.arange(n) / n - 0.1 * t, False) for t in moved.times])
        distance = np.linalg.norm(u - exact, axis=1) / np.linalg.norm(exact, axis=1)
        ratio.append(error / distance.max())
    # two grids of nearly equal size: the estimate is a little small
    assert np.mean((np.array(ratio) > 1 / 3) & (np.array(ratio) < 2)) >= 0.95


@pytest.mark.parametrize("name", QUICK)
def test_swapped_samples_other_numbers_and_other_constants_are_found(name):
    sound = samples(name)
    assert findings(problem(name), sound) == []
    swapped = {"u": sound["u"][::-1].copy()}, {"a": sound["a"][::-1].copy()}
    changed = {"z": np.roll(sound["z"], 1, axis=0)}, {"a": 1.001 * sound["a"]}
    for change in (*swapped, *changed):
        assert findings(problem(name), sound | change)
    key = "advection" if "advection" in name else "diffusion"
    number = getattr(problem(name).linear, key)
    other = load_recipe(name).with_overrides({key: 1.05 * number}).problem
    assert findings(other, sound)


def test_waves_need_the_circle_and_one_component():
    recipe = load_recipe("pdebench-advection-quick")
    with pytest.raises(SchemaError, match="waves needs dimension = 1, without walls"):
        recipe.with_overrides({"dimension": 2})
    with pytest.raises(SchemaError, match="waves needs one component"):
        recipe.with_overrides({"components": ["u", "v"]})


def test_the_published_scheme_grows_in_float64_and_not_in_float32():
    """The reaction alone: from 1/2 on cells that are as wide as the published ones."""
    u0, t = np.full(1024, 0.5), 0.02
    exact = by_galerkin(u0, 0.5, 1.0, t).mean()
    assert exact == pytest.approx(1 / (1 + np.exp(-t)), abs=1e-6)
    assert by_scheme(u0, 0.5, 1.0, t, np.float64).mean() == pytest.approx(exact, abs=1e-6)
    assert by_scheme(u0, 2.0, 1.0, t, np.float32).mean() == pytest.approx(0.5, abs=1e-5)
