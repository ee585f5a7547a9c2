"""Whether frames follow from one another by their equation, which is solved again, roughly."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from jaxtyping import Complex, Float, Int

from pdegen.checks.gaussian import EPSILON
from pdegen.checks.law import Bound, Check, Finding, Values
from pdegen.numerics.etdrk import Step, Symbol
from pdegen.numerics.semilinear import Modes, Nonlinear
from pdegen.numerics.torus import Torus

Frames = Complex[np.ndarray, "batch times components *modes"]
Terms = Callable[[Torus], tuple[Symbol, Nonlinear | None]]

_TRUST = 4.0  # what is not computed is at most this times what two runs differ by
_CLOSE = 1e-3  # a run has enough steps where twice as many change it by this, relative to v,
_LEAST, _MOST = 4, 256  # steps of an interval
_LAST = 0.9  # of the highest mode: beyond are those that show what is beyond the highest
_FEWEST = 6  # modes along an axis that can be compared to less
_AT_ONCE = 32  # pairs that are solved together
_ALL = {1: 63, 2: 10}  # K by the number of axes, where all samples are compared
_FEW = {1: 127, 2: 31}  # where those below are
_SAMPLES = 2  # of which all frames are compared


@dataclass(frozen=True)
class Evolution:
    """v' = L v + N(v), and frames of its solutions."""

    terms: Terms  # L and N on a torus, for NumPy
    degree: int  # most factors of a product
    torus: Torus  # the modes that the frames show
    components: int  # of v
    times: Sequence[float]  # 0, and those of u
    tolerance: float  # largest error of u
    folded: bool  # whether frames may show modes beyond those of the torus as others

    def checks(self) -> Iterator[Check]:
        """That u(t₁) follows from a in all samples, and each frame from the one before in a few;
        none where the frames show too little."""
        axes, seen = len(self.torus.grids), min(self.torus.highest)
        if seen >= _FEWEST:
            yield EvolutionCheck(self, min(seen, _ALL[axes]), None)
            yield EvolutionCheck(self, min(seen, _FEW[axes]), _SAMPLES)


class EvolutionCheck(Check):
    """v(t₁) is what the equation makes of v(t₀), for frames t₀ < t₁ beside each other.

    The modes |k_j| <= K of the frame t₀ are advanced to t₁, in as many steps as that takes, and
    once more without those beyond 2K/3 and with another rounding. What these runs differ by shows
    how much modes matter that the frame does not show, or shows as aliases, and how unstable the
    flow is. Stored and computed modes |k_j| <= K/3 differ by at most four times that, the error of
    the store, and what points show of modes beyond them, judged by the last ones. As t₀ is a frame,
    and not the start, chaos makes nothing uncertain but frames that are far apart. Where so many
    steps are not enough, nothing is compared. Of so many of the first samples all frames are taken,
    or (None) of all samples u(t₁), which follows from a, and one later frame, which differs by
    sample.
    """

    variable = "u"

    def __init__(self, evolved: Evolution, highest: int, first: int | None) -> None:
        self._evolved, self._highest, self._first = evolved, highest, first
        # equal but for rounding: the same steps
        self._intervals = [float(f"{t:.12g}") for t in np.diff(evolved.times)]
        self._longest = math.inf
        which = "each frame" if first else "a frame"
        self.subject = f"the distance of {which} from what the equation makes of the one before"
        self._bound = Bound("u", self.subject, lambda found: (found["off"], found["limit"]))
        self._waiting = defaultdict[int, list[tuple[int, Frames, float, float]]](list)

    def add(self, numbers: Int[np.ndarray, " batch"], values: Values) -> None:
        points = (self._evolved.components, *self._evolved.torus.points)
        a, u = (values[name].reshape(len(numbers), -1, *points) for name in ("a", "u"))
        errors = values["error"].reshape(len(numbers), -1)
        for row in np.flatnonzero(numbers < (self._first or math.inf)):
            number = int(numbers[row])
            for place in self._places(number):
                pair = (u[row, place - 1] if place else a[row, 0]), u[row, place]
                error = errors[row, min(place, errors.shape[1] - 1)]
                self._wait(place, number, np.stack(pair), error)

    def _places(self, number: int) -> Sequence[int]:
        """Of the frames before those that are compared."""
        count = len(self._intervals)
        if self._first:
            return range(count)
        return sorted({0, 1 + number % (count - 1)}) if count > 1 else [0]

    def _wait(self, place: int, number: int, pair: np.ndarray, error: float) -> None:
        torus = self._evolved.torus
        v = torus.to_modes(pair.astype(np.float64))
        before, after = self._aliases(torus, v)
        slack = _TRUST * np.clip(error, 0, self._evolved.tolerance) + 4 * EPSILON
        slack = slack * _norm(v)[1] + before
        waiting = self._waiting[place]
        waiting.append((number, self._cut(v, self._highest), slack, after))
        if len(waiting) == _AT_ONCE:
            self._compare(place)

    def findings(self) -> Iterator[Finding]:
        for place in sorted(self._waiting):
            self._compare(place)
        yield from self._bound.findings()

    def _compare(self, place: int) -> None:
        t, waiting = self._intervals[place], self._waiting.pop(place)
        if t >= self._longest:
            return
        numbers, frames, slack, alias = (np.array(part) for part in zip(*waiting, strict=True))
        found, off, tail = self._advanced(frames[:, 0], t)
        known = np.isfinite(off)
        if not known.any():
            self._longest = t
        limit = _TRUST * off + slack + np.minimum(alias, tail)
        distance = _norm(self._cut(frames[:, 1], self._highest // 3) - found)
        self._bound.add(numbers[known], {"off": distance[known], "limit": limit[known]})

    def _advanced(
        self, v: Modes, t: float
    ) -> tuple[Modes, Float[np.ndarray, " batch"], Float[np.ndarray, " batch"]]:
        """The low modes after a time; what runs differ by in them, infinite where the most steps
        are not enough; and what the highest let expect of aliases."""
        size, low = _norm(v), self._highest // 3
        rounding = EPSILON * size.reshape(-1, *[1] * (v.ndim - 1)) * self._noise
        other = self._cut(v, self._highest * 2 // 3) + rounding
        found, off = np.zeros_like(self._cut(v, low)), np.full(len(v), math.inf)
        tail = np.zeros(len(v))
        left, count = np.arange(len(v)), _LEAST
        with np.errstate(over="ignore", invalid="ignore"):  # of too few steps: seen below
            before = self._cut(self._fine(v, t, count), low)
            while len(left) and count < _MOST:
                count *= 2
                whole = self._fine(v[left], t, count)
                after = self._cut(whole, low)
                change = _norm(after - before)
                met = change <= _CLOSE * size[left]
                rows = left[met]
                if len(rows):
                    found[rows] = after[met]
                    coarse = self._cut(self._coarse(other[rows], t, count), low)
                    off[rows] = change[met] + _norm(after[met] - coarse)
                    tail[rows] = self._aliases(self._fine.torus, whole[met])
                left, before = left[~met], after[~met]
        return found, off, tail

    def _aliases(self, torus: Torus, v: Modes) -> Float[np.ndarray, " batch"]:
        """What points may show of modes beyond those of a torus as low ones: twice as much as of as
        many of the last modes before."""
        if not self._evolved.folded:
            return np.zeros(len(v))
        shares = [np.abs(k) / top for k, top in zip(torus.numbers, torus.highest, strict=True)]
        last = np.max(np.broadcast_arrays(*shares), axis=0) > _LAST
        low = (2 * (self._highest // 3) + 1) ** len(torus.grids)
        return 2 * np.sqrt(low / torus.weights[last].sum()) * _norm(v * last)

    def _cut(self, v: Modes, highest: int) -> Modes:
        """The modes |k_j| <= K."""
        for axis in range(-len(self._evolved.torus.grids), -1):
            v = np.take(v, np.r_[0 : highest + 1, -highest:0], axis=axis)
        return v[..., : highest + 1]

    @cached_property
    def _fine(self) -> _March:
        return _March.of(self._evolved, self._highest)

    @cached_property
    def _coarse(self) -> _March:
        return _March.of(self._evolved, self._highest * 2 // 3)

    @cached_property
    def _noise(self) -> Complex[np.ndarray, " *modes"]:
        torus = self._coarse.torus
        return torus.to_modes(np.random.default_rng(0).standard_normal(torus.points))


@dataclass(frozen=True)
class _March:
    """The equation on a torus, in steps of equal length."""

    torus: Torus
    linear: Symbol
    nonlinear: Nonlinear
    steps: dict[float, Step] = field(default_factory=dict[float, Step])

    @classmethod
    def of(cls, evolved: Evolution, highest: int) -> _March:
        """With the modes |k_j| <= K."""
        n = (evolved.degree + 1) * highest + 2
        grids = tuple(replace(grid, n=n + n % 2) for grid in evolved.torus.grids)
        torus = Torus(grids, evolved.degree)
        linear, nonlinear = evolved.terms(torus)
        assert nonlinear is not None
        return cls(torus, linear, nonlinear)

    def __call__(self, v: Modes, t: float, count: int) -> Modes:
        h = t / count
        if h not in self.steps:
            self.steps[h] = Step.of(self.linear, h)
        step = self.steps[h]
        for _ in range(count):
            v = step.plain(v, self.nonlinear)
        return v


def _norm(v: Modes) -> Float[np.ndarray, " batch"]:
    """The root of the mean square of the components, summed."""
    squares = np.real(v) ** 2 + np.imag(v) ** 2
    squares[..., 1:] *= 2  # the modes -k are not stored
    return np.sqrt(squares.sum(axis=tuple(range(1, v.ndim))))
