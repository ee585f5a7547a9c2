"""What holds of every equation, by small recipes; of airfoils, which take long, in their file."""

import pickle

import numpy as np
import pytest

from pdegen.equations.shock_tube.solver import Gas
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from tests.pdegen.small import SMALL, problem, samples
from tests.pdegen.test_checks import findings

PUBLISHED = {  # samples, those of the splits, and points of a target
    "airfoil": (1200, 900, 100, 200, (221, 51)),
    "inviscid-burgers": (1280, 1024, 128, 128, (1024,)),
    "plasticity": (987, 827, 80, 80, (20, 2, 101, 31)),
    "pulses": (1280, 1024, 128, 128, (1024,)),
    "shock-tube": (1280, 1024, 128, 128, (3, 2048)),
}


@pytest.fixture(params=[name for name in SMALL if not name.startswith("airfoil")])
def name(request):
    if request.param in ("darcy-fem", "darcy-inclusion-quick"):
        request.getfixturevalue("dolfinx")
    return request.param


def test_sound_samples_follow_the_law(name):
    assert findings(problem(name).checks_of_store(), samples(name)) == []


def test_a_sample_is_a_function_of_its_number_alone(name, monkeypatch):
    """In any company, whatever the size of a block; and a problem comes to another process."""
    again = pickle.loads(pickle.dumps(problem(name)))
    assert (again, hash(again)) == (problem(name), hash(problem(name)))
    start, last = SMALL[name][1] - 2, SMALL[name][1]
    monkeypatch.setattr(type(again), "largest_batch", 1)
    found = again.compute(0, range(start, last))
    shapes = {variable.name: variable.shape for variable in again.variables()}
    assert {variable: values.shape[1:] for variable, values in found.items()} == shapes
    for variable, values in found.items():
        np.testing.assert_array_equal(values, samples(name)[variable][start:], variable)


@pytest.mark.parametrize("name", SMALL)
def test_a_device_of_pytorch_computes_the_same_or_is_refused(name, monkeypatch):
    """In blocks: up to the rounding of what is stored, and of what is estimated; inputs and
    targets up to one rounding to float32."""
    if not problem(name).supports_device or name in ("darcy-421-published", "darcy-fem"):
        with pytest.raises(SchemaError, match=r"(NumPy|CPU) only, got device 'cpu'"):
            problem(name).check_solver("cpu")
        return
    monkeypatch.setattr("pdegen.equations.base.samples_at_once", lambda values: 2)
    found = problem(name).compute(0, range(3), "cpu")
    assert found.keys() == samples(name).keys()
    for variable, values in found.items():
        expected = samples(name)[variable][:3]
        assert isinstance(values, np.ndarray)
        assert values.dtype == expected.dtype
        rtol = 1e-5 if expected.ndim > 1 and expected.dtype == np.float32 else 1e-3
        np.testing.assert_allclose(values, expected, rtol=rtol, atol=2e-6, err_msg=variable)
        if variable in ("a", "u"):
            assert abs(values - expected).max() < 2e-7 * abs(expected).max()
        if variable == "residual":
            assert values.max() <= 1e-8


def of_shocks(problem, values):
    left, right, _ = problem.initial.build(values["z"])
    star = Gas(problem.gamma).star(left, right)
    return {"residual": star.residual, "iterations": star.iterations}


def of_forging(problem, values):
    frames = problem.forging(problem.die.pieces(values["z"][:1], problem.length)[0])
    mean = frames.work[-1] - sum(
        getattr(frames, part)[-1] for part in ("plastic", "elastic", "kinetic", "viscous")
    )
    return {
        "work": frames.work[None], "plastic": frames.plastic[None],
        "residual": abs(mean / frames.work[-1]), "iterations": frames.steps,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "qualities"), [("shock-tube-quick", of_shocks), ("plasticity-quick", of_forging)]
)
def test_qualities_of_a_sample_are_those_of_its_solution(name, qualities):
    for quality, expected in qualities(problem(name), samples(name)).items():
        found = samples(name)[quality][: len(np.atleast_1d(expected))]
        np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=quality)


@pytest.mark.parametrize("name", ["kdv", "fisher-kpp", "ns-quick", "ns-1e-3"])
def test_the_step_is_that_of_the_recipe_where_it_meets_the_error(name):
    assert set(samples(name)["step"]) == {problem(name).solver.dt}


def test_the_largest_violation_of_a_budget_is_stored(monkeypatch):
    violation = np.array([1e-4, 3e-4])
    monkeypatch.setattr("pdegen.equations.vorticity.problem._violation", lambda *_: violation)
    assert np.array_equal(problem("ns-quick").compute(0, range(2))["budget"], violation)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sets_have_their_sizes(name):
    recipe, (count, train, validation, test, shape) = load_recipe(name), PUBLISHED[name]
    splits = recipe.splits
    assert (recipe.samples, splits.train, splits.validation, splits.test) == (
        count, train, validation, test)  # fmt: skip
    assert next(v.shape for v in recipe.problem.variables() if v.name == "u") == shape
