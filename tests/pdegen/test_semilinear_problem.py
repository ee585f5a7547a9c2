"""Semilinear equations as recipes: what is refused, what is stored, and what the law sees."""

import copy
import re
import tomllib

import numpy as np
import pytest

from pdegen.equations.base import SampleError
from pdegen.equations.semilinear.problem import SemilinearProblem
from pdegen.equations.semilinear.solver import integrator
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from tests.pdegen import small
from tests.pdegen.small import samples
from tests.pdegen.test_semilinear_equations import declared, started


def findings(problem, values):
    return [
        finding.message
        for finding in problem.checks().check([(np.arange(len(values["a"])), values)])
        if finding.variable
    ]


# what is declared

PLAIN = {
    "times": [0.5, 1.0],
    "linear": {"diffusion": 0.01},
    "nonlinear": {"convection": 1.0},
    "solver": {"resolution": 32, "dt": 0.01},
}
MONOMIAL = {"of": "u", "coefficient": 1.0, "powers": [2]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"linear": {"difusion": 0.1}}, "unknown key 'linear.difusion': did you mean linear.diff"),
        ({"nonlinear": {"convektion": 1.0}}, "unknown key 'nonlinear.convektion': did you mean"),
        ({"nonlinear": {"reaction": [{**MONOMIAL, "power": [2]}]}}, "did you mean"),
        ({"nonlinear": {"reaction": [{**MONOMIAL, "of": "w"}]}}, "reaction.0.of: unknown 'w'"),
        ({"nonlinear": {"reaction": [{**MONOMIAL, "powers": [2, 1]}]}}, "reaction.0.powers has 2"),
        ({"nonlinear": {"reaction": [{**MONOMIAL, "powers": [-1]}]}}, "must be at least 0"),
        ({"linear": {"diffusion": [0.1, 0.2]}}, "linear.diffusion has 2 numbers, expected one"),
        ({"linear": {"diffusion": "0.1"}}, r"linear.diffusion: must be a finite .* got '0.1'"),
        ({"linear": {"drag": float("nan")}}, r"linear.drag: must be a finite number .* got nan"),
        ({"linear": {"advection": [1.0, 2.0]}}, "linear.advection has 2 numbers, expected one, or"),
        ({"linear": {"advection": [[1.0], [2.0]]}}, "linear.advection has 2 lists, expected 1"),
        ({"linear": {}, "nonlinear": {}}, "declare a term of the equation, there is none"),
        ({"components": ["u", "u"]}, "components has a name twice"),
        ({"times": [1.0, 0.5]}, "times: must increase"),
        ({"resolution": 31}, "resolution must be even and >= 4, got 31"),
        ({"solver": {"resolution": 33, "dt": 0.01}}, "solver.resolution must be even and >= 4"),
        ({"solver": {"resolution": 48, "dt": 0.01}}, "resolution must divide solver.resolution"),
        ({"solver": {"resolution": 32}}, "solver.dt is missing"),
        ({"nonlinear": {}}, "solver.dt: linear equations are solved without steps"),
        ({"initial": {"modes": 16}}, "initial.modes = 16 need resolution >= 34, got 32"),
        ({"initial": {"modes": 12}}, r"products of 2 factors .* need solver.resolution >= 38"),
        ({"initial": {"alpha": 0.5}}, "alpha > 1/2"),
        ({"initial": {"mean": [1.0, 2.0]}}, "initial.mean has 2 numbers, expected one"),
        ({"initial": {"law": "uniform"}}, "unknown 'uniform', known: gaussian, bounded"),
        ({"dimension": 4}, "dimension: must be 1, 2 or 3, got 4"),
        ({"linear": {"diffusion": -1.0, "hyper_diffusion": 1e-6}},
         "up to the mode 160 grow by diffusion < 0: they need solver.resolution >= 482, got 32"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(changes, message):
    content = copy.deepcopy(PLAIN)
    for key, value in changes.items():
        if key == "initial":
            base = {"law": "gaussian", "sigma": 1.0, "tau": 1.0, "alpha": 2.0, "modes": 2}
            value = {**base, **value}
        content[key] = value
    with pytest.raises(SchemaError, match=message) as caught:
        declared(**content)
    assert "\n" not in str(caught.value)


def test_the_components_of_a_velocity_have_one_convection():
    plane = {"dimension": 2, "components": ["u", "v"], "solver": {"resolution": 32, "dt": 1e-3}}
    with pytest.raises(SchemaError, match="the components of a velocity have one convection"):
        declared(**plane, nonlinear={"convection": [1.0, 2.0]})


@pytest.mark.parametrize("nonlinear", [{"convection": 6.0}, {"gradient_norm": 1.0}])
def test_a_step_that_the_speed_forbids_is_refused_and_the_largest_is_named(nonlinear):
    def of(dt, **linear):
        solver = {"resolution": 256, "dt": dt, "tolerance": 1e6}
        initial = {"law": "gaussian", "sigma": 25.0, "tau": 5.0, "alpha": 2.0, "modes": 20}
        return declared(
            solver=solver, initial=initial, nonlinear=nonlinear, linear=linear, resolution=256
        )

    with pytest.raises(SchemaError, match=r"is unstable for u of size .*: use at most 0\.") as said:
        of(1.0, dispersion=1e-6)
    largest = float(str(said.value).rsplit(" ", 1)[1])
    of(largest * 0.99, dispersion=1e-6)
    of(1.0, diffusion=10.0)  # which damps faster than the speed moves


def test_the_limit_of_the_step_is_where_it_becomes_unstable():
    """A constant speed on modes without damping: stable at the limit, unstable beyond."""
    initial = {"law": "gaussian", "sigma": 1e-8, "tau": 1.0, "alpha": 2.0, "modes": 2, "mean": 1.0}

    def of(dt):
        return declared(
            times=[100.0], initial=initial, linear={"dispersion": 1e-30},
            nonlinear={"convection": 1.0}, solver={"resolution": 32, "dt": dt, "tolerance": 1e9},
        )  # fmt: skip

    with pytest.raises(SchemaError, match="use at most") as said:
        of(1.0)
    limit = float(str(said.value).rsplit(" ", 1)[1])
    for factor, grows in ((0.97, False), (1.03, True)):
        problem = of(0.01)
        v0, _ = started(problem, range(1))
        v0[..., -1] += 1e-9
        solver = integrator([problem.terms], problem.torus, limit * factor, 1e99, None)
        last = solver.discrete.march(v0, [50.0], solver.dt)[0][0, 0, 0, -1]
        assert (not abs(last) < 1e-8) == grows  # it may be infinite


def test_the_degree_of_the_products_sets_the_modes():
    """k < n/(degree + 1): all but the last of a linear equation, 2/3, 1/2, ... of them."""
    highest = {}
    for powers in (0, 2, 3, 4):
        reaction = [{"of": "u", "coefficient": 1.0, "powers": [powers]}]
        solver = {"resolution": 120, "dt": 0.01}
        problem = declared(nonlinear={"reaction": reaction}, solver=solver, resolution=24)
        highest[powers] = problem.torus.highest
    assert highest == {0: (59,), 2: (39,), 3: (29,), 4: (23,)}


def test_formulas_are_written_from_the_terms():
    assert load_recipe("kdv").problem.formula == (
        "u_t = -u_xxx - 6 u u_x, x on the circle of length 32"
    )
    assert load_recipe("gray-scott").problem.formula == (
        "u_t = 2e-05 laplace u + 0.04 - 0.04 u - u v^2; v_t = 1e-05 laplace v + u v^2 - 0.1 v, "
        "x on the square torus of side 1"
    )


def test_the_reflection_is_a_symmetry_where_all_terms_are_odd():
    expected = {"kuramoto-sivashinsky": True, "kdv": False, "fisher-kpp": False, "advection": False}
    for name, odd in expected.items():
        symmetries = load_recipe(name).problem.physics().symmetries
        assert ("odd-reflection" in symmetries) == odd
        assert "shift" in symmetries


# what is computed


def test_a_sample_that_misses_the_tolerance_is_named():
    coarse = {"problem.solver.resolution": 128, "dt": 0.01, "tolerance": 1e-9, "times": [0.4]}
    problem = load_recipe("kdv").with_overrides(coarse).problem
    with pytest.raises(SampleError, match=r"^sample 6: the error exceeds 1e-09"):
        problem.compute(0, range(6, 9))


# what the law sees


CHANGES = {
    "exchanged": ("u", lambda u: u[[0, 1, 2, 4, 3, *range(5, len(u))]]),
    "reversed": ("u", lambda u: u[:, ::-1].copy()),
    "shifted": ("u", lambda u: u + np.float32(0.02 * u.std())),
    "larger": ("u", lambda u: u * np.float32(1.02)),
    "beyond": ("u", lambda u: u - u.min() - np.float32(0.1)),
    "coarser": ("step", lambda step: step / 1000),
    "other input": ("a", lambda a: a * np.float32(1.5)),
}


WRONG = {  # constants beside those of the small forms
    "cahn-hilliard": {"hyper_diffusion": 1.3e-4},
    "diffusion-reaction": {"diffusion": [6.5e-3, 1e-2]},
    "allen-cahn-3d": {"diffusion": 0.022},
    "gray-scott-3d": {"diffusion": [1.2e-4, 2e-5]},
    "decaying-3d": {"diffusion": 0.032},
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("advection", "exchanged", "the distance from the solution of the stored a"),
        ("heat", "reversed", "the distance from the solution of the stored a"),
        ("heat", "larger", "the distance from the solution of the stored a"),
        ("kdv", "exchanged", "the norm since the time before"),
        ("kdv", "shifted", "the change of the mean"),
        ("kdv", "larger", "the growth of the norm"),
        ("kdv", "coarser", "minus the time step"),
        ("kdv", "other input", "the energy of"),
        ("kuramoto-sivashinsky", "shifted", "the change of the mean"),
        ("allen-cahn", "reversed", "the growth of the functional"),
        ("swift-hohenberg", "reversed", "the growth of the functional"),
        ("fisher-kpp", "reversed", "the growth of the functional"),
        ("fisher-kpp", "beyond", "the excess over the range of a"),
        ("burgers-2d", "other input", "the energy of"),
        ("gray-scott", "beyond", "minus the least value"),
        *((name, "exchanged", "the solution that starts") for name in WRONG),
    ],
)
def test_what_the_equation_forbids_is_found(name, change, said):
    variable, changed = CHANGES[change]
    values = {**samples(name), variable: changed(samples(name)[variable])}
    assert any(said in what for what in findings(small.problem(name), values))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_constant_is_found(name):
    values = load_recipe(name).with_overrides({**small.SMALL[name][0], **WRONG[name]}).problem
    stored = values.compute(0, range(2))
    assert any("the solution that starts" in what for what in findings(small.problem(name), stored))


def test_the_equation_of_the_documentation_is_one_file(root):
    """FitzHugh and Nagumo: solved, and sound by what follows from its terms."""
    text = (root / "docs/equations.md").read_text("utf-8")
    section = text.partition("\n## An equation without Python\n")[2]
    table = re.findall(r"^```toml\n(\[problem\]\n.*?)^```", section, re.M | re.S)[0]
    problem = SemilinearProblem.parse(tomllib.loads(table)["problem"], "docs")
    assert problem.formula.startswith(
        "u_t = 0.001 laplace u + u - u^3 - v; v_t = 0.005 laplace v - v + 2 u, "
    )
    values = problem.compute(0, range(1))
    assert values["u"].shape == (1, 3, 2, 64, 64)
    assert findings(problem, values) == []
