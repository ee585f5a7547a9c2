"""Transforms of eight samples at once, against NumPy's of each sample alone."""

import numpy as np
import pytest

from pdegen.numerics.compilation import compiled
from pdegen.numerics.errors import MissingSolverError
from pdegen.numerics.lane_transforms import HALVES, JOINED, TransformPlan
from pdegen.numerics.lanes import LANES, addressed, call, integer, load, packed, store, unpacked
from pdegen.numerics.transforms import has_plan

LENGTHS = [1, 2, 3, 4, 5, 6, 8, 12, 15, 16, 20, 45, 64, 96, 125, 250, 256, 480, 4096]


@compiled()
def transform(x, plan, to_modes):
    call(integer(plan, 0), (x, plan, to_modes))


@compiled()
def convert(function, to, of, h, highest, turns):
    call(function, (to, of, h, highest, turns))


@compiled()
def convert_two(function, address, count):
    call(function, (address, count))


def random(rows, n):
    rng = np.random.default_rng(n)
    return rng.standard_normal((rows, n)) + 1j * rng.standard_normal((rows, n))


def order(n):
    """The numbers of the points in the order of the plan: first those of the first factor."""
    numbers = np.arange(n)
    for radix, blocks, m in [row[:3] for row in TransformPlan(n).passes]:
        numbers = numbers.reshape(blocks, m, radix).transpose(0, 2, 1).ravel()
    return numbers


@pytest.mark.parametrize("n", LENGTHS)
def test_points_and_modes_are_those_of_numpy(n):
    plan, z = TransformPlan(n), random(LANES, n)
    vectors, expected = packed(z), np.fft.ifft(z, norm="forward")
    transform(vectors.ctypes.data, plan.table.ctypes.data, 0)
    points = unpacked(vectors, LANES, complex)
    # an error of some units in the last place of the largest value, in each of log n passes
    np.testing.assert_allclose(points, expected[:, order(n)], atol=1e-14 * np.sqrt(n))
    transform(vectors.ctypes.data, plan.table.ctypes.data, 1)
    np.testing.assert_allclose(unpacked(vectors, LANES, complex) / n, z, atol=1e-14)


@pytest.mark.parametrize("h", LENGTHS)
@pytest.mark.parametrize("share", [0, 0.3, 0.67, 1])
def test_real_functions_take_half_the_numbers(h, share):
    n, plan = 2 * h, TransformPlan(h)
    highest = min(int(share * h), h - 1)
    half = random(LANES, highest + 1)
    half[:, 0] = half[:, 0].real
    points, modes = np.empty((1, 2 * h, LANES)), packed(half)
    turns = plan.turns.ctypes.data
    convert(HALVES, points.ctypes.data, modes.ctypes.data, h, highest, turns)
    transform(points.ctypes.data, plan.table.ctypes.data, 0)
    expected = np.fft.irfft(half, n, norm="forward").reshape(LANES, h, 2)[:, order(h)]
    values = unpacked(points, LANES, complex).view(float)
    np.testing.assert_allclose(values, expected.reshape(LANES, n), atol=1e-14 * np.sqrt(n))
    transform(points.ctypes.data, plan.table.ctypes.data, 1)
    back = np.empty_like(modes)
    convert(JOINED, back.ctypes.data, points.ctypes.data, h, highest, turns)
    np.testing.assert_allclose(unpacked(back, LANES, complex) / (2 * n), half, atol=1e-14)


def test_a_sample_does_not_depend_on_its_neighbours():
    z, plan = random(LANES, 480), TransformPlan(480)  # the plan owns what compiled code reads
    values = []
    for rows in (z, z[3:4], z[3:6]):
        vectors = packed(rows)
        transform(vectors.ctypes.data, plan.table.ctypes.data, 0)
        values.append(unpacked(vectors, len(rows), complex))
    np.testing.assert_array_equal(values[1][0], values[0][3])
    np.testing.assert_array_equal(values[2], values[0][3:6])


@pytest.mark.parametrize("n", [7, 14, 22, 2 * 3 * 5 * 13])
def test_other_factors_have_no_plan(n):
    assert not has_plan(n)
    with pytest.raises(ValueError, match=f"factors 2, 3 and 5 only, got {n}"):
        TransformPlan(n)


def test_a_process_that_may_not_compile_says_what_to_do(monkeypatch):
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
    with pytest.raises(MissingSolverError, match="unset NUMBA_DISABLE_JIT"):
        addressed(lambda x: None)


def test_without_a_folder_a_process_compiles_for_itself(monkeypatch):
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    x = packed(random(LANES, 2))
    x_before = x.copy()

    def doubled(address, count):
        for i in range(count):
            store(address, i, 2.0 * load(address, i))

    convert_two(addressed(doubled), x.ctypes.data, 4)
    np.testing.assert_array_equal(x, 2 * x_before)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("rows", [1, 7, 8, 9])
def test_packing_and_unpacking_give_the_values_back(rows, dtype):
    values = random(rows, 6).astype(dtype) if dtype is complex else random(rows, 6).real
    np.testing.assert_array_equal(unpacked(packed(values), rows, dtype), values)
