"""Every statistic and every bound of a law notices something: a wrong store for each name."""

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache

import numpy as np
import pytest

from pdegen.checks.check import Bound, Check, Finding, Statistic, StoreChecks, UniformCheck
from pdegen.checks.gaussian import GaussianCheck, periodic_modes
from pdegen.checks.two_phase import TwoPhaseCheck
from pdegen.domains import CellGrid, PeriodicGrid
from pdegen.sampling.gaussian import PeriodicGaussianField, SquareGaussianField
from tests.new import UNBOUNDED
from tests.pdegen.small import SMALL, problem, samples

SAMPLES, POINTS = 400, 64
CIRCLE = PeriodicGaussianField(25.0, 5.0, 2.0, modes=31)
# whose highest modes are as small as the rounding of float32
SMOOTH = PeriodicGaussianField(25.0, 5.0, 6.0, modes=31)
SQUARE = SquareGaussianField("neumann", 3.0, 3.0, 2.0, modes=12)
CELLS = 12


def kind(name: str) -> str:
    """Name of a statistic without numbers, which are those of modes, points or cells."""
    return re.sub(r"\d+(\.\d+)?", "*", name)


class Alone(Check):
    """The statistics of one kind of a check."""

    def __init__(self, check: Check, kind: str) -> None:
        self.variable, self.subject = check.variable, check.subject
        self._check, self._kind = check, kind

    def add(self, numbers, values):
        self._check.add(numbers, values)

    def statistics(self) -> Iterator[Statistic]:
        return (s for s in self._check.statistics() if kind(s.name) == self._kind)


def gaussian(field: PeriodicGaussianField) -> Callable[[], Check]:
    grid = PeriodicGrid(POINTS)
    modes, variance = periodic_modes(field, grid), np.full(POINTS, field.pointwise_variance)
    return lambda: GaussianCheck("a", lambda a: a.astype(float), modes, variance, relative=True)


def two_phase() -> Check:
    return TwoPhaseCheck("a", SQUARE, CellGrid(CELLS), lambda v: v["a"] > 0)


def uniform() -> Check:
    return UniformCheck("a", ("first", "second"))


@cache
def on_circle(field: PeriodicGaussianField) -> np.ndarray:
    return field(PeriodicGrid(POINTS), 7, range(SAMPLES)).astype(np.float32)


@cache
def on_square() -> np.ndarray:
    return SQUARE(CellGrid(CELLS), 7, range(SAMPLES)).astype(np.float32)


@cache
def on_interval() -> np.ndarray:
    return np.random.default_rng(7).uniform(size=(SAMPLES, 2))


def in_modes(change: Callable[[np.ndarray], object]) -> Callable[[np.ndarray], np.ndarray]:
    """The change of the coefficients of a field on the circle, relative to their deviations."""
    grid = PeriodicGrid(POINTS)

    def changed(a: np.ndarray) -> np.ndarray:
        hat = np.fft.rfft(a.astype(float), axis=1)
        stds = np.ones(POINTS // 2 + 1)
        stds[1 : CIRCLE.modes + 1] = CIRCLE.mode_stds * POINTS / 2
        hat = hat / stds
        change(hat)
        return np.fft.irfft(hat * stds, grid.n, axis=1).astype(np.float32)

    return changed


def at_point(change: Callable[[np.ndarray], object]) -> Callable[[np.ndarray], np.ndarray]:
    def changed(a: np.ndarray) -> np.ndarray:
        a = a.copy()
        change(a)
        return a

    return changed


def louder(hat: np.ndarray) -> None:
    hat[:, 1] *= 1.4


def in_two_values(hat: np.ndarray) -> None:
    hat[:, 1] = np.sign(hat[:, 1].real) + 1j * np.sign(hat[:, 1].imag)


def of_one_energy(hat: np.ndarray) -> None:
    energy = (np.abs(hat[:, 1:32]) ** 2).sum(axis=1, keepdims=True)
    hat[:, 1:32] *= np.sqrt(62 / energy)


def spread_out(a: np.ndarray) -> None:
    a[:, 0] *= 1.5


def shifted(a: np.ndarray) -> None:
    a[:, 0] += 0.5 * CIRCLE.pointwise_variance**0.5


def noise(size: float, shape: tuple[int, ...]) -> np.ndarray:
    return size * np.random.default_rng(1).standard_normal(shape)


def mostly_above(a: np.ndarray) -> None:
    a[: SAMPLES // 3] = np.abs(a[: SAMPLES // 3])


# the statistics of each check: what is changed in a sound store for their kinds
Change = Callable[[np.ndarray], np.ndarray]
GAUSSIAN: dict[str, Change] = {
    "the energy of the cosine * over its mean": in_modes(louder),
    "the energy of the sine * over its mean": in_modes(louder),
    "the energy of the modes from * to * over its mean": in_modes(louder),
    "the energy of all modes up to * over its mean": lambda a: 1.1 * a,
    "the mean square at point * over its mean": at_point(spread_out),
    "the mean at point * over the deviation": at_point(shifted),
    "the share of samples with the coefficient * in eighth * of its law": in_modes(in_two_values),
    "the share of samples with the energy in eighth * of its law": in_modes(of_one_energy),
}
ROUNDED = {
    "the energy of modes as small as rounding, beyond rounding,":
        lambda a: (a + noise(1e-5, a.shape)).astype(np.float32),
}  # fmt: skip
TWO_PHASE: dict[str, Change] = {
    "the share of samples above at point *": at_point(mostly_above),
    "the share of samples in which points * and * differ": lambda a: a + noise(0.5, a.shape),
    "the share of cells * apart that differ": lambda a: a + noise(0.1, a.shape),
    "the excess along x of the share of cells * apart that differ": lambda a: (
        a + noise(0.1, (SAMPLES, CELLS, 1))),
    "the number of jumps on some lines that follow another one":
        lambda a: a + noise(0.1, a.shape),
    "the share of jumps that follow another one": lambda a: a + noise(0.1, a.shape),
}  # fmt: skip
UNIFORM: dict[str, Change] = {
    "the share of samples with first below *": lambda z: z**1.8,
    "the share of samples with second below *": lambda z: z**1.8,
    "the share of samples with first in eighth *": lambda z: np.where(z < 0.875, z, z - 0.125),
    "the share of samples with second in eighth *": lambda z: np.where(z < 0.875, z, z - 0.125),
    "the share of samples with first and second on one side": lambda z: z[:, [0, 0]],
}
CHECKS: dict[str, tuple[Callable[[], Check], Callable[[], np.ndarray], dict[str, Change]]] = {
    "gaussian": (gaussian(CIRCLE), lambda: on_circle(CIRCLE), GAUSSIAN),
    "rounded": (gaussian(SMOOTH), lambda: on_circle(SMOOTH), ROUNDED),
    "two phases": (two_phase, on_square, TWO_PHASE),
    "uniform": (uniform, on_interval, UNIFORM),
}


def found(check: Check, a: np.ndarray) -> list[Finding]:
    return StoreChecks((check,)).check([(np.arange(len(a)), {"a": a})])


@pytest.mark.parametrize("label", CHECKS)
def test_each_statistic_has_a_wrong_store(label):
    make, sound, changes = CHECKS[label]
    check = make()
    assert found(check, sound()) == []
    kinds = {kind(statistic.name) for statistic in check.statistics()}
    assert changes.keys() <= kinds
    assert kinds <= changes.keys() | GAUSSIAN.keys() | ROUNDED.keys()


@pytest.mark.parametrize(
    ("label", "name"), [(label, name) for label, row in CHECKS.items() for name in row[2]]
)
def test_a_wrong_store_is_found_by_each_statistic_alone(label, name):
    make, sound, changes = CHECKS[label]
    (finding,) = found(Alone(make(), name), changes[name](sound()))
    assert kind(finding.message).startswith(f"{name} is ")


@pytest.mark.parametrize("label", CHECKS)
def test_p_values_of_sound_stores_are_not_too_large(label):
    """About three in ten are below 0.3; fewer where the statistic is a count of 20 samples."""
    make, sound, _ = CHECKS[label]
    below: dict[str, list[bool]] = {}
    fresh = make()
    for start in range(0, SAMPLES, 20):
        check = deepcopy(fresh)
        check.add(np.arange(20), {"a": sound()[start : start + 20]})
        for statistic in check.statistics():
            below.setdefault(kind(statistic.name), []).append(statistic.p <= 0.3)
    for name in below.keys() - ROUNDED.keys():  # whose p-value is a bound
        assert 0.12 <= np.mean(below[name]) <= 0.5, name


# bounds of each sample

# of one sample
WRONG: tuple[Change, ...] = (
    lambda v: v + 1e-9, lambda v: v - 1e-9, lambda v: 1.01 * v, lambda v: 0.99 * v,
    np.negative, lambda v: v + 1, lambda v: v - 1, lambda v: 3 * v, lambda v: 1e6 * v - 1e3,
    np.flip, lambda v: np.roll(v, 1, axis=-1),
    lambda v: np.where(at(v, 1 / 2), 9 * abs(v).max() + 1, v),
    lambda v: np.where(at(v, 1 / 3), -abs(v).max() - 1, v),
    lambda v: np.where(v == v[..., -1:], v, 1.01 * v),
    lambda v: v + np.random.default_rng(0).uniform(-1, 1, v.shape) * abs(v).max(),
    np.zeros_like,
)  # fmt: skip
# of each equation, and of each law of Darcy's coefficients
BOUNDED = (
    "advection", "allen-cahn", "burgers-2d", "burgers-trajectory", "dam-break-quick",
    "darcy-421-published", "darcy-inclusion-quick", "darcy-lognormal", "darcy-source",
    "elasticity-quick", "helmholtz-128-published", "inviscid-burgers-quick", "kdv",
    "kuramoto-sivashinsky", "membrane-64", "ns-quick", "pdebench-reaction-quick",
    "pipe-quick", "plasticity-quick", "poisson-quick", "pulses-quick", "shock-tube-quick",
    "wave-quick",
)  # fmt: skip
# the fastest mode may decay to nothing between two frames
VOID = {("kuramoto-sivashinsky", "the decay of the norm since the time before")}


def at(values: np.ndarray, place: float) -> np.ndarray:
    """Where the number at this place among all is."""
    return np.arange(values.size).reshape(values.shape) == int(place * values.size)


def test_bounds_of_every_equation_are_tried():
    tried = {problem(name).equation_name for name in BOUNDED}
    assert tried == {problem(name).equation_name for name in SMALL} - UNBOUNDED


@pytest.mark.parametrize("name", BOUNDED)
def test_each_bound_has_a_wrong_store(name, request):
    """In which one variable changes. The finding names the quantity."""
    if name == "darcy-inclusion-quick":
        request.getfixturevalue("dolfinx")
    few = {variable: values[:3] for variable, values in samples(name).items()}
    for check in problem(name).checks_of_store().each:
        if isinstance(check, Bound):
            assert not exceeded(check, few), check.subject
            wrong = (exceeded(check, values) for values in changed(few, check.variable))
            assert any(wrong) != ((name, check.subject) in VOID), check.subject


def changed(values: dict[str, np.ndarray], first: str) -> Iterator[dict[str, np.ndarray]]:
    """The values with another variable; that of the bound comes first."""
    for variable in sorted(values, key=lambda name: name != first):
        for change in WRONG:
            rows = [change(np.atleast_1d(row)).reshape(row.shape) for row in values[variable]]
            yield {**values, variable: np.stack(rows)}


def exceeded(check: Bound, values: dict[str, np.ndarray]) -> bool:
    """Whether a bound finds a sample with a number that is too large, which it names."""
    fresh = Bound(check.variable, check.subject, check._quantity)
    with np.errstate(all="ignore"):
        findings = StoreChecks((fresh,)).check([(np.arange(3), values)])
    return any(f"{check.subject} is " in f.message and "is nan" not in f.message for f in findings)
