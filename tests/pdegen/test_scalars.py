"""Numbers that differ from sample to sample: their laws, streams, stores and refusals."""

import numpy as np
import pytest

from pdegen.checks.check import ScalarsCheck, StoreChecks
from pdegen.equations.base import Problem, SampleError
from pdegen.recipe import load_recipe
from pdegen.sampling.scalars import (
    LogUniform,
    Uniform,
    laws_of,
    stream_of,
    variable_names,
    with_numbers,
)
from pdegen.schema import SchemaError, parse_overrides
from tests.pdegen.test_checks import findings

UNIFORM = Uniform(law="uniform", low=0.5, high=2.0)
LOG = LogUniform(law="log-uniform", low=1e-3, high=0.1)
FORCE = {"law": "uniform", "low": 0, "high": 0.1}
NU = {"law": "log-uniform", "low": 0.01, "high": 0.1}


def burgers(**changes):
    return load_recipe("burgers-quick").with_overrides({"viscosity": NU, **changes})


@pytest.mark.parametrize("law", [UNIFORM, LOG])
def test_the_number_of_a_sample_is_a_function_of_key_seed_and_number(law):
    some = law.values("viscosity", 3, range(20))
    assert (law.values("viscosity", 3, [7, 19]) == some[[7, 19]]).all()
    for key, seed in (("viscosity", 4), ("amplitude", 3)):
        assert not (law.values(key, seed, range(20)) == some).any()
    assert ((some > law.low) & (some < law.high)).all()


def test_quantiles_are_those_of_the_law():
    assert UNIFORM.at(0.25) == 0.875
    assert LOG.at(0.5) == pytest.approx(1e-2, rel=1e-14)
    z = np.linspace(0.01, 0.99, 9)
    for law in (UNIFORM, LOG):
        np.testing.assert_allclose(law.place(np.array([law.at(v) for v in z])), z, atol=1e-14)


def test_numbers_with_one_name_are_stored_by_their_whole_keys():
    keys = ["initial.low", "force.low", "initial.high", "linear.drag.0", "nonlinear.drag.0"]
    assert list(variable_names(keys).values()) == [
        "initial_low", "force_low", "high", "linear_drag_0", "nonlinear_drag_0"
    ]  # fmt: skip


def test_streams_of_keys_are_not_the_stream_of_the_fields():
    assert len({stream_of("a", 0), stream_of("b", 0), stream_of("a", 1), 0, 1}) == 5


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda nu: nu, None),
        (lambda nu: nu * 0.9, "not in the range of its law, log-uniform in"),
        (lambda nu: np.sqrt(nu * 0.1), "statistics of the numbers of the samples"),
        (lambda nu: np.where(nu == nu[5], np.nan, nu), "sample 5: nu is not in the range"),
    ],
)
def test_the_law_of_numbers_notices_changed_numbers(changed, message):
    nu = LOG.values("nu", 0, range(300))
    report = findings(StoreChecks((ScalarsCheck({"nu": LOG}),)), {"nu": changed(nu)})
    assert [f for f in report if message is None] == []
    assert message is None or any(message in finding.message for finding in report)


def test_numbers_of_two_keys_must_be_independent():
    nu = LOG.values("nu", 0, range(300))
    other = LogUniform(law="log-uniform", low=1.0, high=100.0)
    laws = {"nu": LOG, "mu": other}
    assert not findings(
        StoreChecks((ScalarsCheck(laws),)), {"nu": nu, "mu": other.values("mu", 0, range(300))}
    )
    report = findings(StoreChecks((ScalarsCheck(laws),)), {"nu": nu, "mu": nu * 1000})
    assert any("nu and mu on one side" in finding.message for finding in report)


# problems


def test_a_sample_equals_that_of_the_problem_with_its_number():
    recipe = burgers()
    values = recipe.problem.compute(0, range(4, 7))
    for row, nu in enumerate(values["viscosity"]):
        plain = burgers(viscosity=float(nu)).problem
        alone = plain.compute(0, range(4 + row, 5 + row))
        for name in ("a", "u", "error"):
            assert (alone[name][0] == values[name][row]).all()
        assert recipe.problem.of_sample(0, 4 + row) == plain


def test_a_plain_number_keeps_its_variables_and_its_fingerprint():
    plain = load_recipe("burgers-quick")
    digits = "9bce100d54a20cf1de3bb31fe37fe739aa2c2fe9b5e303ed7452f6d535928c58"
    assert plain.fingerprint == digits != burgers().fingerprint
    assert [v.name for v in plain.problem.variables()] == ["a", "u", "error"]
    parameter = burgers().problem.variables()[-1]
    assert (parameter.name, parameter.attributes["role"]) == ("viscosity", "parameter")
    assert burgers().problem.physics().parameters["viscosity"].log


def test_a_law_can_be_changed_key_by_key_and_replaced_by_a_number():
    recipe = burgers()
    changed = recipe.with_overrides({"viscosity.low": 0.02, "viscosity.law": "uniform"})
    assert changed.problem.viscosity == Uniform(law="uniform", low=0.02, high=0.1)
    assert changed.with_overrides({"viscosity": 0.1}).problem.viscosity == 0.1


def test_laws_are_found_and_replaced_in_nested_declarations():
    problem = burgers().problem
    assert laws_of(problem) == {"viscosity": problem.viscosity}
    assert with_numbers(problem, {"initial.sigma": 3.0}).initial.sigma == 3.0


@pytest.mark.parametrize(
    ("name", "laws", "formula"),
    [
        ("heat", {"linear.diffusion": {"law": "log-uniform", "low": 1e-3, "high": 1e-2}},
         "u_t = diffusion laplace u, x on the square torus of side 1, diffusion log-uniform in "),
        ("ns-quick", {"viscosity": {**NU, "low": 1e-3, "high": 1e-2}, "amplitude": FORCE,
                      "times": [1.0]}, "w_t + u"),
        ("kuramoto-sivashinsky",
         {"linear.diffusion": {"law": "uniform", "low": -1.1, "high": -0.9}, "times": [2.0]},
         "u_t = diffusion u_xx - u_xxxx - u u_x"),
    ],
)  # fmt: skip
def test_stores_of_other_equations_follow_their_laws(name, laws, formula):
    problem = load_recipe(name).with_overrides(laws).problem
    assert problem.formula.startswith(formula)
    values = problem.compute(0, range(3))
    numbers = np.arange(3)
    assert not problem.checks_of_store().check([(numbers, values)])
    key, variable = next(iter(problem.parameter_names.items()))
    sample = load_recipe(name).with_overrides({**laws, key: float(values[variable][2])}).problem
    assert (sample.compute(0, range(2, 3))["u"][0] == values["u"][2]).all()
    shifted = values | {variable: np.roll(values[variable], 1)}
    assert problem.checks_of_store().check([(numbers, shifted)])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("viscosity={law='normal',low=1,high=2}", "viscosity.law: unknown 'normal', known: uni"),
        (
            "viscosity={low=1,high=2}",
            "'problem.viscosity.low' belongs to a law, but viscosity is a number",
        ),
        ("viscosity={law='uniform',low=2,high=1}", "viscosity: low must be below high"),
        ("viscosity={law='log-uniform',low=0,high=1}", "viscosity.low: must be greater than 0"),
        ("viscosity={law='uniform',low=-1,high=1}", "viscosity.low: must be greater than 0"),
        ("viscosity={law='uniform',low=1,high=1e30}", "viscosity.high: must be at most 1e.20"),
        ("viscosity={law='uniform',low=1}", "viscosity.high: is missing"),
        (
            "viscosity={law='uniform',low=1,high=2,mid=3}",
            "'viscosity.mid': problem.viscosity has no key 'mid'",
        ),
        ("viscosity.low=1", "'problem.viscosity.low' belongs to a law, but viscosity is a number"),
        (
            "sigma={law='uniform',low=1,high=2}",
            "sigma.law': problem.initial.sigma cannot have a law",
        ),
        ("times=[{law='uniform',low=1,high=2}]", "times.0: must be a number, it cannot have a law"),
        ("viscosity=[1,2]", r"viscosity: must be a number, got \[1, 2\]"),
    ],
)
def test_wrong_laws_are_refused_in_one_line(override, message):
    with pytest.raises(SchemaError, match=message) as refusal:
        load_recipe("burgers-quick").with_overrides(parse_overrides([override]))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("burgers-quick", {"viscosity": NU, "times": [0.0, 0.1]}),
        ("burgers-nu", {"problem.resolution": 64, "modes": 31, "solver.resolution": 128,
                        "viscosity.low": 0.03, "times": [0.1]}),
        ("ns-quick", {"viscosity": {**NU, "low": 1e-3, "high": 1e-2}, "force.amplitude": FORCE,
                      "times": [0.5], "dt": 0.025}),
        ("kdv", {"linear.dispersion": {"law": "uniform", "low": 0.9, "high": 1.1}, "dt": 0.004,
                 "problem.solver.resolution": 256, "times": [0.1], "tolerance": 1e-3}),
    ],
)  # fmt: skip
def test_samples_that_are_solved_together_equal_samples_that_are_solved_alone(name, changes):
    problem = load_recipe(name).with_overrides(changes).problem
    together, alone = problem.compute(3, range(5)), Problem.solve_family(problem, 3, range(5))
    on_device = problem.compute(3, range(5), "cpu")  # of PyTorch
    for key, values in alone.items():
        assert (together[key] == values).all(), key
        np.testing.assert_allclose(on_device[key], values, rtol=1e-5, atol=1e-5, err_msg=key)


def test_a_sample_that_the_grid_does_not_resolve_is_an_error_with_its_number():
    changes = {"problem.resolution": 64, "modes": 31, "solver.resolution": 128, "times": [0.5]}
    problem = load_recipe("burgers-nu").with_overrides(changes).problem
    with pytest.raises(SampleError, match="ETDRK4 is not resolved: error") as failure:
        problem.compute(0, range(12))
    nu = problem.parameter_values(0, [failure.value.sample])["viscosity"]
    assert nu < 0.01


def test_every_combination_of_ends_is_validated():
    law = {"law": "uniform", "low": -90.0, "high": -1.0}
    with pytest.raises(SchemaError, match=r"at linear.diffusion = -90: waves of u up to the mode"):
        load_recipe("kuramoto-sivashinsky").with_overrides({"linear.diffusion": law})
