"""Each key of each equation changes what is stored by the amount that a second computation has."""

import numpy as np
import pytest

from pdegen.equations.base import equation_name_of, problem_from_table, registered_problems
from tests.pdegen.recomputed import (
    burgers,
    darcy,
    inviscid_burgers,
    pulses,
    semilinear,
    shock_tube,
    vorticity,
)
from tests.pdegen.recomputed.case import SAMPLES, SEED, stored, whole

CASES = {
    "burgers": burgers.CASE,
    "darcy": darcy.CASE,
    "inviscid-burgers": inviscid_burgers.CASE,
    "pulses": pulses.CASE,
    "semilinear": semilinear.CASE,
    "shock-tube": shock_tube.CASE,
    "vorticity": vorticity.CASE,
}
NUMERICAL = 20  # tolerances by which a change of a key must exceed them

ROWS = [(word, key) for word, case in CASES.items() for key in case.rows]
BASES = [(word, base) for word, case in CASES.items() for base in case.bases]


def check(case, content):
    expected = case.recompute(whole(content), SEED, SAMPLES)
    found = stored(content)
    assert set(expected) == set(found) == {v.name for v in problem_from_table(content).variables()}
    off = {name: one.off(found[name]) for name, one in expected.items()}
    assert {name: x for name, x in off.items() if not x <= 1} == {}
    return expected


@pytest.mark.parametrize(("word", "base"), BASES)
def test_a_sample_without_symmetry_is_what_a_second_computation_makes_of_its_numbers(word, base):
    check(CASES[word], CASES[word].bases[base])


@pytest.mark.parametrize(("word", "key"), ROWS)
def test_a_key_changes_a_sample_by_the_amount_that_is_computed_anew(word, key):
    case = CASES[word]
    base, _ = case.rows[key]
    expected = check(case, case.changed(key))
    before = stored(case.bases[base])
    seen = [
        one.off(before[name]) if one.shape in (before[name].shape, ()) else np.inf
        for name, one in expected.items()
    ]
    assert max(seen) > NUMERICAL


@pytest.mark.parametrize("word", ["burgers", "darcy", "semilinear", "shock-tube", "vorticity"])
def test_samples_of_later_blocks_are_those_that_are_computed_alone(word, monkeypatch):
    """All that is stored of them: also errors, steps and numbers of iterations."""
    for content in CASES[word].bases.values():
        problem = problem_from_table(content)
        with monkeypatch.context() as patch:
            patch.setattr(type(problem), "largest_batch", 2)
            found = problem.compute(SEED, range(5, 10))
        for row, sample in enumerate(range(5, 10)):
            alone = problem.compute(SEED, range(sample, sample + 1))
            for variable, values in found.items():
                np.testing.assert_array_equal(values[row], alone[variable][0], variable)


def test_each_key_of_an_equation_has_a_row():
    keys = {equation_name_of(problem): set(problem.keys()) for problem in registered_problems()}
    for word, case in CASES.items():
        assert keys[word] == {*case.rows, *case.others}
