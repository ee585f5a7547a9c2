"""Darcy with laws of numbers, several phases, source fields and values on the walls."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from operators.data import read_pairs
from pdegen.domains import CellGrid
from pdegen.equations.base import SampleError
from pdegen.equations.darcy.error_bound import PressureGuarantee
from pdegen.equations.darcy.finite_volume import FiniteVolume
from pdegen.equations.darcy.problem import compared_refinements, estimated_error
from pdegen.generation.generate import generate
from pdegen.generation.verify import repair
from pdegen.numerics.errors import SolveError
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from tests.pdegen.test_checks import findings
from tests.stores import faults, objects_of

SMALL = {"samples": 14, "shard": 6, "resolution": 15, "problem.field.modes": 20}
WALLS = {"law": "uniform", "low": 0.5, "high": 2.0}
FIELD = {
    "law": "neumann-gaussian",
    "sigma": 10.0,
    "tau": 3.0,
    "alpha": 2.0,
    "modes": 20,
    "mean": 1.0,
}
MANY = {
    "coefficient.kind": "phases",
    "coefficient.values": [1.0, {"law": "log-uniform", "low": 2.0, "high": 9.0}, 20.0],
    "coefficient.thresholds": [-0.3, 0.3],
}


def small(name="darcy-contrast", **changes):
    return load_recipe(name).with_overrides({**SMALL, **changes})


def darcy(**changes):
    """darcy-quick with other inputs; keys of tables have __ for the dot."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return load_recipe("darcy-quick").with_overrides({**SMALL, **dotted})


CASES = {
    "contrast": small(),
    "source": small("darcy-source", **{"source.modes": 20}),
    "phases": load_recipe("darcy-quick").with_overrides({**SMALL, **MANY}),
    "walls": darcy(problem__walls=WALLS, problem__source={**WALLS, "low": -2.0}),
    "scale": darcy(coefficient__kind="log-normal", problem__coefficient__scale=WALLS),
    "blocks": load_recipe("membrane-64").with_overrides(
        {"samples": 14, "shard": 6, "resolution": 15, "blocks": 5, "refinement": 3}
    ),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return request.param


@pytest.fixture(scope="module")
def values(case):
    return CASES[case].problem.compute(0, range(14))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return generate(CASES["contrast"], str(tmp_path_factory.mktemp("darcy") / "d.zarr"), workers=1)


def relative(u, v):
    return np.linalg.norm(u - v) / np.linalg.norm(v)


def on_finer(cells, factor):
    return np.kron(cells.astype(float), np.ones((1, factor, factor)))


# samples


def test_a_sample_is_that_of_the_recipe_with_its_numbers(case, values):
    recipe = CASES[case]
    problem = recipe.problem.of_sample(0, 5)
    assert problem.laws == {}
    alone = problem.solve(0, range(5, 6))
    for name, value in alone.items():
        np.testing.assert_array_equal(value[0], values[name][5], name)


def test_a_solution_is_that_of_the_stored_inputs_numbers_and_walls(case, values):
    problem = CASES[case].problem.of_sample(0, 5)
    factor = problem.solver.refinement
    f = values["f"][5:6] if "f" in values else np.full((1, 15, 15), problem.source)
    fine = FiniteVolume(CellGrid(factor * 15), rtol=1e-11)
    u = fine(on_finer(values["a"][5:6], factor), on_finer(f, factor), float(problem.walls))
    assert relative(values["u"][5], u[0, factor // 2 :: factor, factor // 2 :: factor]) < 1e-6


def test_stated_errors_are_near_the_true_ones(case, values):
    for i in range(3):
        one = {name: value[i : i + 1] for name, value in values.items()}
        exact = CASES[case].problem.of_sample(0, i).finer_solution(one, 5)
        assert 0.5 < values["error"][i] / relative(one["u"], exact) < 2


def test_numbers_differ_and_a_has_those_of_its_sample():
    values = CASES["contrast"].problem.compute(0, range(14))
    assert len(set(values["above"])) == 14
    for a, above in zip(values["a"], values["above"], strict=True):
        assert set(np.unique(a)) == {np.float32(1.0), np.float32(above)}


def test_the_source_is_independent_of_the_coefficient():
    recipe = load_recipe("darcy-source").with_overrides({"resolution": 5, "samples": 2000})
    problem, samples = recipe.problem, range(2000)
    g = problem.field.build()(problem.grid, 0, samples)
    f = problem.source.values(problem.grid, 0, samples, None)
    assert f.mean() == pytest.approx(1.0, abs=0.01)
    assert f.std() == pytest.approx(0.97, abs=0.03)
    correlation = np.corrcoef(g[:, 0, 0], f[:, 0, 0])[0, 1]
    assert abs(correlation) < 4 / np.sqrt(2000)


def test_no_coefficient_of_any_training_has_the_random_numbers_of_a_source():
    problem = small("darcy-source", resolution=5).problem
    same = problem.model_copy(update={"field": problem.source})
    f = problem.source.values(problem.grid, 0, range(2), None) - problem.source.mean
    for first in (0, *((1 + seed) * 2**32 for seed in (0, 1, 254, 255, 256))):
        g = same.field.build()(problem.grid, 0, range(first, first + 2))
        assert not np.isclose(g, f).any()
    again = problem.source.values(problem.grid, 0, range(2**40, 2**40 + 2), None)
    assert not np.isclose(again - problem.source.mean, f).any()


# the error estimate


def test_estimates_are_exact_where_errors_fall_by_a_factor():
    rng = np.random.default_rng(0)
    u, e = rng.normal(size=(2, 3, 8, 8))
    solutions = [u + e * 0.2**k for k in range(3)]
    size = np.sqrt((e**2).sum(axis=(1, 2)))
    for label in (1, 2):
        found = estimated_error(solutions, label)
        np.testing.assert_allclose(found, size * 0.2**label, rtol=1e-12)
    assert estimated_error([u, u], 0).max() == 0


@pytest.mark.parametrize(("refinement", "levels"), [(1, (1, 3)), (3, (1, 3, 9)), (9, (1, 3, 9))])
def test_errors_are_estimated_from_cells_of_other_sizes(refinement, levels):
    assert compared_refinements(refinement) == levels


# laws


@pytest.fixture(scope="module")
def many(case):
    return CASES[case].problem.compute(0, range(80))


def test_samples_follow_the_law(case, many):
    assert findings(CASES[case].problem.checks_of_store(), many) == []


@cache
def sixty(name):
    return CASES[name].problem.compute(0, range(60))


def scaled(name, factor):
    return lambda values: {**values, name: values[name] * np.float32(factor)}


def rolled(name):
    return lambda values: {**values, name: np.roll(values[name], 1, axis=0)}


@pytest.mark.parametrize(
    ("name", "change", "variable"),
    [
        ("contrast", rolled("above"), "a"),
        ("contrast", rolled("u"), "u"),
        ("contrast", scaled("a", 1.01), "a"),
        ("contrast", lambda v: {**v, "above": 3 * v["above"]}, "above"),
        ("source", rolled("f"), "u"),
        ("source", scaled("f", 2.0), "f"),
        ("source", lambda v: {**v, "f": v["f"] ** 2}, "f"),
        ("source", lambda v: {**v, "error": v["error"] * np.nan}, "error"),
        ("phases", rolled("values_1"), "a"),
        ("phases", lambda v: {**v, "a": np.where(v["a"] == 20, 1, v["a"])}, "a"),
        ("walls", rolled("walls"), "u"),
        ("walls", rolled("source"), "u"),
        ("scale", scaled("a", 1.5), "a"),
        ("blocks", scaled("a", 2.0), "a"),
        ("blocks", lambda v: {**v, "a": v["a"] ** np.float32(1.3)}, "a"),
        ("blocks", lambda v: {**v, "a": v["a"] * (1 + 1e-6 * (np.arange(15) == 5))}, "a"),
    ],
)
def test_wrong_values_are_found(name, change, variable):
    problem = CASES[name].problem
    values = change(sixty(name))
    assert variable in {finding.variable for finding in findings(problem.checks_of_store(), values)}


# stores


def test_a_store_has_its_numbers_as_parameters(store):
    assert faults(store) == []
    assert store.raw_attributes_of("above")["role"] == "parameter"
    assert store.raw_attributes_of("error")["role"] == "quality"
    assert "phases" not in store.raw_attributes["physics"]
    batch = read_pairs(store.url, "train").first()
    assert batch.parameters is not None
    assert batch.parameters.shape[-1] == 1


@pytest.mark.parametrize("name", ["contrast", "source"])
@pytest.mark.parametrize(("workers", "scheduler", "shard"), [(2, "threads", 6), (None, "", 7)])
def test_bits_do_not_depend_on_engines_or_shards(
    name, store, tmp_path, cluster, workers, scheduler, shard
):
    recipe, scheduler = CASES[name].with_overrides({"shard": shard}), scheduler or cluster
    other = generate(recipe, str(tmp_path / "o.zarr"), workers=workers, scheduler=scheduler)
    values = CASES[name].problem.compute(0, range(14))
    for variable in other.variables:
        stored = other.values(variable, range(14))
        assert (stored == values[variable].astype(stored.dtype)).all()


def test_a_store_is_repaired_to_the_same_bytes(tmp_path):
    store = generate(CASES["source"], str(tmp_path / "s.zarr"), workers=1)
    before = objects_of(store)
    damaged = next(key for key in before if key.startswith("f/c"))
    path = Path(store.url) / damaged
    path.write_bytes(b"\x00" + path.read_bytes()[1:])
    assert faults(store) != []
    assert repair(store.url).faults == []
    assert objects_of(store) == before


def test_walls_are_told_to_readers():
    assert darcy(problem__walls=2.0).problem.physics().boundary == {"u": 2.0}
    assert CASES["walls"].problem.physics().boundary == {}
    assert load_recipe("darcy-quick").problem.physics().boundary == {"u": 0.0}


def test_a_key_at_its_default_is_no_part_of_a_recipe():
    assert "walls" not in json.dumps(load_recipe("darcy-quick").model_dump(mode="json"))
    assert darcy(problem__walls=0.0).fingerprint == darcy().fingerprint
    assert darcy(problem__walls=1.0).fingerprint != darcy().fingerprint


# bounds and inversions


def test_bounds_hold_for_sources_and_walls():
    recipe = CASES["source"].with_overrides({"problem.walls": 0.3})
    values = recipe.problem.compute(0, range(4))
    guarantee = recipe.problem.guarantee(["a", "f"], "u")
    assert isinstance(guarantee, PressureGuarantee)
    p = values["u"] * 1.1
    bounds = guarantee.bounds({"a": values["a"], "f": values["f"]}, p)
    exact = recipe.problem.finer_solution(values, 1)
    error = np.sqrt(((p - exact) ** 2).mean(axis=(1, 2)))
    size = np.sqrt((exact**2).mean(axis=(1, 2)))
    assert (bounds["l2"] > 0.9 * error).all()  # midpoint sums of the integrals
    assert (bounds["relative_l2"] > 0.9 * error / size).all()
    assert (bounds["relative_l2"] < 20 * error / size).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("contrast", r"bounds of errors need one coefficient.above for all samples"),
        ("walls", r"bounds of errors need one (source|walls) for all samples"),
        ("source", r"darcy bounds the error of u predicted from a, f, got u from a"),
    ],
)
def test_bounds_are_refused_where_they_do_not_apply(name, message):
    with pytest.raises(SchemaError, match=message):
        CASES[name].problem.guarantee(["a"], "u")


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (CASES["contrast"], "the inversions need one coefficient.above for all samples"),
        (CASES["source"], "walls = 0 only, got a source field"),
        (darcy(problem__walls=2.0), "walls = 0 only, got walls = 2"),
        (load_recipe("darcy-quick").with_overrides(
            {**SMALL, **MANY, "coefficient.values": [1.0, 5.0, 20.0]}), "got 3 phases"),
    ],
)  # fmt: skip
def test_inversions_are_refused_where_they_do_not_apply(recipe, message):
    with pytest.raises(SchemaError, match=message):
        recipe.problem.inversions(None)


def test_the_forward_map_has_the_value_on_the_walls():
    x, a = CellGrid(15).x, np.full((15, 15), 5.0)
    shifted = darcy(problem__walls=2.0).problem.forward(x)(a)
    np.testing.assert_allclose(shifted, 2 + darcy().problem.forward(x)(a), rtol=1e-14)
    assert CASES["source"].problem.forward(x) is None
    assert CASES["contrast"].problem.forward(x) is None


# refusals

REFUSED = [
    ("darcy-quick", {**MANY, "coefficient.thresholds": [0.3]},
     "3 values need 2 thresholds between them, got 3 values and 1 thresholds"),
    ("darcy-quick", {**MANY, "coefficient.thresholds": [0.3, -0.3]}, "thresholds must increase"),
    ("darcy-quick", {**MANY, "coefficient.values": [1.0, 0.0, 2.0]}, "greater than 0, got 0.0"),
    ("darcy-quick", {**MANY, "coefficient.values": [1.0, 2.0, 1.0]}, "phases must differ"),
    ("darcy-contrast", {"above.low": 0.0}, "greater than 0, got 0.0"),
    ("darcy-contrast", {"above.low": 200.0}, "low must be below high"),
    ("darcy-contrast", {"problem.coefficient.above": {"law": "normal", "low": 1.0, "high": 2.0}},
     "known: uniform, log-uniform"),
    ("darcy-quick", {"problem.source": {"law": "gauss"}},
     "law must be one of uniform, log-uniform, neumann-gaussian, dirichlet-gaussian"),
    ("darcy-quick", {"problem.source": {**FIELD, "sigma": -1.0}}, "greater than 0, got -1.0"),
    ("darcy-quick", {"problem.source": {"law": "neumann-gaussian"}}, "sigma: is missing"),
    ("darcy-quick", {"problem.walls": float("inf")}, "must be a finite number"),
    ("darcy-quick", {"problem.field.sigma": WALLS}, "sigma cannot have a law"),
    ("membrane-64", {"blocks": 5}, "field.blocks must divide resolution = 32, got 5"),
    ("membrane-64", {"problem.coefficient": {"kind": "two-phase", "above": 2.0, "below": 1.0}},
     "block-gaussian needs coefficient.kind log-normal"),
    ("membrane-64", {"problem.solver": {"method": "published-splines"}}, "published problem only"),
    ("darcy-421-published", {"problem.coefficient.above": WALLS}, "published problem only"),
    ("darcy-421-published", {"problem.source": FIELD}, "published problem only"),
    ("darcy-421-published", {"problem.walls": 1.0}, "published problem only"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED)
def test_impossible_inputs_are_refused_in_one_line(name, changes, message):
    with pytest.raises(SchemaError, match=message) as refusal:
        load_recipe(name).with_overrides(changes)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("walls", [1e8, -1e8])
def test_walls_beside_which_float32_keeps_no_solution_are_refused(walls, tmp_path):
    recipe = darcy(problem__walls=walls)
    with pytest.raises(SampleError, match=r"sample 0: u in float32 keeps .*: \|walls\| must be at"):
        generate(recipe, str(tmp_path / "s.zarr"), workers=1)
    most = 100.0  # 1e-2 of u - walls, which is 1e-3 or more, is above the spacing of float32 there
    store = generate(darcy(problem__walls=most), str(tmp_path / "most.zarr"), workers=1)
    assert faults(store) == []
    without_source = recipe.with_overrides({"problem.source": 0.0})
    assert faults(generate(without_source, str(tmp_path / "flat.zarr"), workers=1)) == []


def test_solutions_that_float32_cannot_hold_are_refused(tmp_path):
    with pytest.raises(SampleError, match="sample 0: u is too small for float32"):
        generate(darcy(problem__source=1e-42), str(tmp_path / "s.zarr"), workers=1)
    assert darcy(problem__source=0.0).problem.label_error(0, 1) == 0


def test_a_contrast_that_rounding_forbids_is_said(tmp_path):
    recipe = darcy(problem__coefficient__above=3e8, problem__coefficient__below=3.0)
    message = "after [0-9] iterations.*: rounding stops it, because a varies by a factor of 1.0e+08"
    with pytest.raises(SampleError, match=message.replace("+", r"\+")):
        generate(recipe, str(tmp_path / "s.zarr"), workers=1)


def test_a_label_error_that_has_no_reference_solution_is_left_out(tmp_path, monkeypatch):
    def fail(self, seed, sample):
        raise SolveError(0, "the residual is 1e-3")

    recipe = darcy(problem__coefficient__above=11.0)
    with monkeypatch.context() as patch:
        patch.setattr(type(recipe.problem), "label_error", fail)
        store = generate(recipe, str(tmp_path / "s.zarr"), workers=1, scheduler="threads")
    assert "label_error" not in store.raw_attributes
    assert faults(store) == []


@pytest.mark.usefixtures("dolfinx")
def test_finite_elements_agree_on_sources_walls_and_phases():
    changes = {"solver.method": "finite-element", "solver.linear": "cholesky", "refinement": 3}
    for name in ("source", "phases"):
        recipe = CASES[name].with_overrides({"refinement": 3, "problem.walls": 0.4})
        values = recipe.problem.compute(0, range(2))
        other = recipe.with_overrides(changes).problem.compute(0, range(2))
        assert (values["a"] == other["a"]).all()
        assert relative(other["u"], values["u"]) < 2e-2
