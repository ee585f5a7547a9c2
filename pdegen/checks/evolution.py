"""Check that each frame of a store is the solution that starts at the previous frame."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from jaxtyping import Complex, Float, Int

from pdegen.checks.check import EPSILON, Bound, Check, Finding, Values
from pdegen.numerics.semilinear import Modes, Nonlinear
from pdegen.numerics.spectral import Step, Symbol, Torus, even_extension

Frames = Complex[np.ndarray, "batch times components *modes"]
Terms = Callable[[Torus], tuple[Symbol, Nonlinear | None]]

_TRUST = 4.0  # an unresolved part is at most this times the difference of two runs
_CLOSE = 1e-3  # steps suffice if twice as many change the run by this, relative to v
_LEAST, _MOST = 4, 256  # steps of an interval
_LAST = 0.9  # share of the highest mode beyond which modes estimate those beyond the grid
_FEWEST = 6  # highest mode of the frames below which nothing is compared
_BLOCK = 32  # pairs of frames that are solved together
_ALL = {1: 63, 2: 10, 3: 6}  # K by the number of axes, for the check of all samples
_FEW = {1: 127, 2: 31, 3: 10}  # K for the check of the first samples
_SAMPLES = 2  # number of first samples whose frames are all compared


@dataclass(frozen=True)
class Evolution:
    """An evolution equation v' = L v + N(v), and the layout of its frames in a store."""

    terms: Terms  # L and N on a torus, for NumPy
    degree: int  # most factors of a product
    torus: Torus  # the modes that the frames resolve
    components: int  # number of components of v
    times: Sequence[float]  # 0, then the times of u
    tolerance: float  # largest error of u
    folded: bool  # whether frames may alias modes beyond those of the torus
    walls: bool = False  # whether stored values are those of a box, which has no flow through walls
    constant: bool = False  # whether v has the input f, which does not change, as last components

    def checks(self) -> Iterator[Check]:
        """Two checks, or none if the frames resolve too few modes.

        In all samples, the first check compares u(t₁) and one later frame with new solutions. In
        the first samples, the second check compares every frame with a new solution.
        """
        axes, highest = len(self.torus.grids), min(self.torus.highest)
        if highest >= _FEWEST:
            yield EvolutionCheck(self, min(highest, _ALL[axes]), None)
            yield EvolutionCheck(self, min(highest, _FEW[axes]), _SAMPLES)


class EvolutionCheck(Check):
    """Check that the solution that starts at a frame v(t₀) reaches the next frame v(t₁).

    A frame is the stored solution at one time. The equation is solved again from t₀ to t₁, with the
    modes |k_j| <= K of v(t₀). The number of steps is doubled until the result converges. Pairs of
    frames without convergence are skipped.

    A second solution starts from fewer modes, |k_j| <= 2K/3, and from a frame with added rounding
    errors. It differs from the first one by the effect of modes that the frame does not resolve,
    and by the instability of the flow.

    The modes |k_j| <= K/3 of the first solution are compared with those of the stored v(t₁). The
    limit of their distance, apart from rounding, is the sum of three terms:

    - four times the difference between the two solutions,
    - four times the error that the store states,
    - an estimate of the aliases: modes beyond the grid that the frame shows as lower modes. The
      highest modes of the frame give the estimate.

    Args:
        evolution: The equation and its frames.
        highest: The largest wave number K.
        first: Number of first samples whose frames are all compared. If it is None, two frames of
            every sample are compared: the first one after t = 0, and a later one that differs from
            sample to sample.
    """

    variable = "u"
    by_sample = True

    def __init__(self, evolution: Evolution, highest: int, first: int | None) -> None:
        self._evolution, self._highest, self._first = evolution, highest, first
        # rounded, so that intervals of equal length have the same steps
        self._intervals = [float(f"{t:.12g}") for t in np.diff(evolution.times)]
        self._longest = math.inf
        which = "each frame" if first else "a frame"
        self.subject = f"the distance of {which} from the solution that starts at the one before"
        self._bound = Bound("u", self.subject, lambda errors: (errors["error"], errors["limit"]))
        self._waiting = defaultdict[int, list[tuple[int, Frames, float, float]]](list)

    def add(self, numbers: Int[np.ndarray, " batch"], values: Values) -> None:
        evolution, count = self._evolution, len(numbers)
        axes, halves = len(evolution.torus.points), 2 if evolution.walls else 1
        points = tuple(n // halves for n in evolution.torus.points)
        names = ("a", "u", "f") if evolution.constant else ("a", "u")
        shape = (count, -1, evolution.components // (len(names) - 1), *points)
        a, u, *f = (values[name].reshape(shape) for name in names)
        if evolution.constant:
            a, u = (np.concatenate([v, np.broadcast_to(f[0], v.shape)], axis=2) for v in (a, u))
        if evolution.walls:
            a, u = (even_extension(v, axes) for v in (a, u))
        errors = values["error"].reshape(len(numbers), -1)
        for row in np.flatnonzero(numbers < (self._first or math.inf)):
            number = int(numbers[row])
            for interval in self._compared_intervals(number):
                pair = (u[row, interval - 1] if interval else a[row, 0]), u[row, interval]
                error = errors[row, min(interval, errors.shape[1] - 1)]
                self._wait(interval, number, np.stack(pair), error)

    def _compared_intervals(self, number: int) -> Sequence[int]:
        """Indices of the time intervals to compare in the given sample."""
        count = len(self._intervals)
        if self._first:
            return range(count)
        return sorted({0, 1 + number % (count - 1)}) if count > 1 else [0]

    def _wait(self, interval: int, number: int, pair: np.ndarray, error: float) -> None:
        torus = self._evolution.torus
        v = torus.to_modes(pair.astype(np.float64))
        before, after = self._aliases(torus, v)
        slack = _TRUST * np.clip(error, 0, self._evolution.tolerance) + 4 * EPSILON
        slack = slack * _norm(v)[1] + before
        waiting = self._waiting[interval]
        waiting.append((number, self._cut(v, self._highest), slack, after))
        if len(waiting) == _BLOCK:
            self._compare(interval)

    def findings(self) -> Iterator[Finding]:
        for interval in sorted(self._waiting):
            self._compare(interval)
        yield from self._bound.findings()

    def _compare(self, interval: int) -> None:
        t, waiting = self._intervals[interval], self._waiting.pop(interval)
        if t >= self._longest:
            return
        numbers, frames, slack, alias = (np.array(part) for part in zip(*waiting, strict=True))
        computed, difference, tail = self._advanced(frames[:, 0], t)
        solved = np.isfinite(difference)
        if not solved.any():
            self._longest = t
        limit = _TRUST * difference + slack + np.minimum(alias, tail)
        error = _norm(self._cut(frames[:, 1], self._highest // 3) - computed)
        self._bound.add(numbers[solved], {"error": error[solved], "limit": limit[solved]})

    def _advanced(
        self, v: Modes, t: float
    ) -> tuple[Modes, Float[np.ndarray, " batch"], Float[np.ndarray, " batch"]]:
        """Advance v by the time t."""
        size, low = _norm(v), self._highest // 3
        rounding = EPSILON * size.reshape(-1, *[1] * (v.ndim - 1)) * self._noise
        perturbed = self._cut(v, self._highest * 2 // 3) + rounding
        computed, difference = np.zeros_like(self._cut(v, low)), np.full(len(v), math.inf)
        tail = np.zeros(len(v))
        left, count = np.arange(len(v)), _LEAST
        with np.errstate(over="ignore", invalid="ignore"):  # too few steps are detected below
            before = self._cut(self._fine(v, t, count), low)
            while len(left) and count < _MOST:
                count *= 2
                whole = self._fine(v[left], t, count)
                after = self._cut(whole, low)
                change = _norm(after - before)
                met = change <= _CLOSE * size[left]
                rows = left[met]
                if len(rows):
                    computed[rows] = after[met]
                    coarse = self._cut(self._coarse(perturbed[rows], t, count), low)
                    difference[rows] = change[met] + _norm(after[met] - coarse)
                    tail[rows] = self._aliases(self._fine.torus, whole[met])
                left, before = left[~met], after[~met]
        return computed, difference, tail

    def _aliases(self, torus: Torus, v: Modes) -> Float[np.ndarray, " batch"]:
        """Estimate of the norm of the modes that `torus` does not resolve and that alias to
        |k_j| <= K/3.

        It assumes that unresolved modes have twice the amplitude of the highest modes of v. The
        estimate is 0 if the frames cannot contain aliases.
        """
        if not self._evolution.folded:
            return np.zeros(len(v))
        shares = [np.abs(k) / top for k, top in zip(torus.numbers, torus.highest, strict=True)]
        last = np.max(np.broadcast_arrays(*shares), axis=0) > _LAST
        low = (2 * (self._highest // 3) + 1) ** len(torus.grids)
        return 2 * np.sqrt(low / torus.weights[last].sum()) * _norm(v * last)

    def _cut(self, v: Modes, highest: int) -> Modes:
        """Restrict v to the modes |k_j| <= `highest`."""
        for axis in range(-len(self._evolution.torus.grids), -1):
            v = np.take(v, np.r_[0 : highest + 1, -highest:0], axis=axis)
        return v[..., : highest + 1]

    @cached_property
    def _fine(self) -> _March:
        return _March.of(self._evolution, self._highest)

    @cached_property
    def _coarse(self) -> _March:
        return _March.of(self._evolution, self._highest * 2 // 3)

    @cached_property
    def _noise(self) -> Complex[np.ndarray, " *modes"]:
        torus = self._coarse.torus
        return torus.to_modes(np.random.default_rng(0).standard_normal(torus.points))


@dataclass(frozen=True)
class _March:
    """Time integration of the equation on a torus, in steps of equal length."""

    torus: Torus
    linear: Symbol
    nonlinear: Nonlinear
    steps: dict[float, Step] = field(default_factory=dict[float, Step])

    @classmethod
    def of(cls, evolution: Evolution, highest: int) -> _March:
        """The integration on a torus that resolves the modes |k_j| <= `highest`."""
        n = (evolution.degree + 1) * highest + 2
        grids = tuple(replace(grid, n=n + n % 2) for grid in evolution.torus.grids)
        torus = Torus(grids, evolution.degree)
        linear, nonlinear = evolution.terms(torus)
        assert nonlinear is not None
        return cls(torus, linear, nonlinear)

    def __call__(self, v: Modes, t: float, count: int) -> Modes:
        h = t / count
        if h not in self.steps:
            self.steps[h] = Step.of(self.linear, h)
        step = self.steps[h]
        for _ in range(count):
            v = step(v, self.nonlinear)
        return v


def _norm(v: Modes) -> Float[np.ndarray, " batch"]:
    """Root mean square of v in space, with the squares summed over the components."""
    squares = np.real(v) ** 2 + np.imag(v) ** 2
    squares[..., 1:] *= 2  # the modes -k are not stored
    return np.sqrt(squares.sum(axis=tuple(range(1, v.ndim))))
