"""Numbers that are declared uniform: what the law sees, and what it does not."""

import numpy as np
import pytest

from pdegen.checks.check import StoreChecks, UniformCheck, massart
from pdegen.sampling.coefficients import placed, uniforms

NAMES = ("first", "second", "third")


def findings(z, size=300):
    law = StoreChecks((UniformCheck("z", NAMES),))
    numbers = np.arange(len(z))
    return [
        finding.message
        for finding in law.check(
            (numbers[start : start + size], {"z": z[start : start + size]})
            for start in range(0, len(z), size)
        )
    ]


def test_uniform_numbers_follow_the_law():
    assert findings(uniforms(0, range(2000), 3)) == []
    assert findings(uniforms(1, range(3), 3)) == []


def test_few_numbers_fail_by_chance_as_seldom_as_the_law_says():
    """p < 0.01 in one of a hundred repetitions at most, by each statistic."""
    repetitions, few = 400, 0
    for seed in range(repetitions):
        law = UniformCheck("z", NAMES[:1])
        law.add(np.arange(20), {"z": uniforms(seed, range(20), 1)})
        few += next(iter(law.statistics())).p < 0.01
    assert few <= 12  # binomial(400, 0.01) exceeds 12 with probability 1e-4


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda z: z**1.3, "the share of samples with"),
        (lambda z: 0.1 + 0.9 * z, "the share of samples with"),
        (lambda z: z[:, [0, 0, 2]], "with first and second on one side"),
        (lambda z: np.where(z > 0.5, z, 1.001 * z - 0.001 * (z < 0.1)), "outside (0, 1)"),
        (lambda z: np.where(z < 0.001, np.nan, z), "outside (0, 1)"),
    ],
    ids=["power", "range", "copy", "below", "nan"],
)
def test_other_numbers_are_found_out(changed, said):
    assert any(said in what for what in findings(changed(uniforms(0, range(4000), 3))))


def test_massarts_bound_holds():
    n, d = 50, 0.2
    z = np.sort(uniforms(0, range(4000), n), axis=1)
    place = np.arange(n) / n
    far = np.maximum(z - place, place + 1 / n - z).max(axis=1)
    share = (far > d).mean()
    assert 0.3 * massart(d, n) < share <= massart(d, n) + 0.01


def test_a_number_is_where_its_place_says():
    assert placed(np.array([[0.0, 1.0], [0.25, 0.5]]), [(1.0, 5.0), (-1.0, 1.0)]).tolist() == [
        [1.0, 2.0],
        [1.0, 0.0],
    ]
