"""Semilinear equations in Fourier space, with an error estimate for each sample and frame.

Each sample is integrated with the steps h, 2h and 4h. The step h is halved until Richardson's
estimate of the error in time, with the observed order, meets the tolerance. The difference from a
run on a finer torus, with the step 2h, then estimates the error in space. The solution of a sample
does not depend on the other samples of its batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from array_api_compat import array_namespace, is_numpy_namespace
from jaxtyping import Bool, Complex, Float, Int

from pdegen.numerics.device import (
    Array,
    blocks,
    constant,
    detached,
    first_true,
    reuse_memory,
    to_numpy,
)
from pdegen.numerics.errors import SolveError
from pdegen.numerics.spectral import (
    Pseudospectral,
    Rates,
    Step,
    Symbol,
    Torus,
    contraction,
    grown_rounding,
    norms,
    relative,
    rounding,
)
from pdegen.numerics.transforms import EIGHT, has_vectors

Modes = Complex[Array, "batch components *modes"]
Nonlinear = Callable[[Modes], Modes]
Watched = Callable[[Modes], Float[Array, "batch watched"]]
Seen = Callable[[Torus], Symbol]
Rows = Int[np.ndarray, " rows"]
_HALVINGS = 6  # largest number of halvings of the step
_LARGE = 0.1  # a larger error in space may come from a step that is unstable on the finer torus
_CHECK_INTERVAL = 64  # steps between tests for a blow-up
_CACHED_STEPS = 64  # largest number of step lengths whose coefficients are cached

AtTimes = Float[Array, "batch times"]


@dataclass(frozen=True)
class Trajectory:
    """A solution at the requested times."""

    v: Complex[Array, "batch times components *modes"]  # modes
    error: AtTimes  # estimate of the relative L² error of all components together
    step: Float[Array, " batch"]  # time step of each sample; infinite without steps
    integrals: Float[Array, "batch times watched"]  # ∫₀ᵗ of the watched quantities


@dataclass(frozen=True)
class Semilinear:
    """The equation v' = L v + N(v) for the modes v of one or several functions on a torus.

    PyTorch can differentiate the solution and the integrals with respect to v₀. The derivative is
    the exact one of the discrete solution with its final time step. Error estimates have no
    derivative. Each time step stores a few states for `backward`.
    """

    torus: Torus  # the domain
    # L and N on a torus: L is a real or complex array (components, *modes), N maps modes to modes.
    # If N is None, v = e^(Lt) v₀
    terms: Callable[[Torus], tuple[Symbol, Nonlinear | None]]
    dt: float  # largest step, and the first that is tried
    tolerance: float  # largest accepted relative error at any time
    # real quantities of a state, (batch, watched), that are integrated over time
    watched: Watched | None = None
    # the solver of some of the samples, if L, N or `watched` differ from sample to sample. L then
    # has an axis of samples in front
    of_rows: Callable[[Rows], Semilinear] | None = None
    mean_free: bool = False  # whether the mean of every state is exactly 0, without rounding
    # the factor of each mode in norms, for errors of another function than v; None for 1
    seen: Seen | None = None

    def _of(self, rows: Array | slice, count: int) -> Semilinear:
        """The solver of the rows of a mask or slice; self if it is the solver of all `count`."""
        if self.of_rows is None:
            return self
        chosen = np.arange(count)[rows if isinstance(rows, slice) else to_numpy(rows)]
        return self if len(chosen) == count else self.of_rows(chosen)

    @cached_property
    def discrete(self) -> Discrete:
        """The equation on the torus."""
        return Discrete(self.torus, *self.terms(self.torus))

    @cached_property
    def _finer(self) -> Discrete:
        return Discrete(self.torus.finer, *self.terms(self.torus.finer))

    def solve(
        self,
        v0: Modes,
        times: Sequence[float],
        needed: Sequence[bool] = (),
        finer: Modes | None = None,
    ) -> Trajectory:
        """The solution at some times.

        Args:
            v0: Modes at time 0.
            times: Times >= 0 that do not decrease.
            needed: For each time, whether the tolerance must be met; by default at all times.
            finer: Modes at time 0 on `torus.finer`; None if v0 has all modes of the initial value.

        Raises:
            SolveError: If a sample misses the tolerance even with the smallest step, or if the
                torus is too coarse.
        """
        xp = array_namespace(v0)
        moments = [float(t) for t in times]
        ordered = moments and moments == sorted(moments)
        if not ordered or not 0 <= moments[0] <= moments[-1] < math.inf:
            raise ValueError(f"times must be >= 0 and must not decrease, got {list(times)}")
        reuse_memory()
        must = constant(np.array(needed or (True,) * len(moments)), v0)
        frames = _Frames(moments, must)
        rows = np.arange(len(v0))
        parts = [
            self._of(block, len(v0))._solved(
                v0[block], None if finer is None else finer[block], frames, rows[block]
            )
            for block in blocks(
                len(v0), math.prod(v0.shape[1:]) * 4, not is_numpy_namespace(xp), EIGHT
            )
        ]
        return Trajectory(*(xp.concat(part, axis=0) for part in zip(*parts, strict=True)))

    def evolved(self, v0: Modes, t: float) -> Modes:
        """The state at a time t > 0, after steps of at most `dt`, without an estimate of its error.

        Raises SolveError if a state is not finite.
        """
        xp, numpy = array_namespace(v0), is_numpy_namespace(array_namespace(v0))
        size = math.prod(v0.shape[1:]) * 4
        v = xp.concat([
            self._of(block, len(v0)).discrete.march(v0[block], [t], self.dt)[0][:, 0]
            for block in blocks(len(v0), size, not numpy, EIGHT)
        ])  # fmt: skip
        row = first_true(~xp.all(xp.isfinite(xp.abs(v)), axis=tuple(range(1, v.ndim))))
        if row is not None:
            raise SolveError(row, f"the state at t = {t:g} is not finite: use a smaller solver.dt")
        return v

    def _norms(self, torus: Torus, v: Array) -> AtTimes:
        return norms(torus, v if self.seen is None else constant(self.seen(torus), v) * v)

    def _solved(
        self, v0: Modes, finer: Modes | None, frames: _Frames, rows: np.ndarray
    ) -> tuple[Array, Array, Array, Array]:
        if self.discrete.nonlinear is None:
            return self._exact(v0, finer, frames, rows)
        start, march = detached(v0), self.discrete.march  # errors have no derivative
        w0 = self.torus.finer.padded(start) if finer is None else detached(finer)
        coarsest, coarse = (march(start, frames.times, self.dt, k)[0] for k in (-2, -1))
        return self._stepped(v0, w0, frames, rows, coarsest, coarse)

    def _stepped(
        self,
        v0: Modes,
        w0: Modes,
        frames: _Frames,
        rows: np.ndarray,
        coarsest: Array,
        coarse: Array,
        halvings: int = 0,
    ) -> tuple[Array, Array, Array, Array]:
        """The solution with dt halved `halvings` times, or more if a sample misses the tolerance.

        `coarse` is a run with twice the step, `coarsest` one with four times the step. Let d be the
        distance between this solution and `coarse`, and r the ratio of the distance between the two
        coarse runs to d. The estimate of the error in time is d/(r - 1). At order 4, r = 2⁴; r is
        smaller if the phase of a wave turns far within a step.

        The error in space is the distance between `coarse` and a run on the finer torus with the
        same step. Where that step is not stable on the finer torus, this solution takes the place
        of `coarse`.
        """
        xp, times = array_namespace(v0), frames.times
        v, integrals = self.discrete.march(v0, times, self.dt, halvings, self.watched)
        solved = detached(v)
        size, difference = self._norms(self.torus, solved), self._norms(self.torus, solved - coarse)
        change = self._norms(self.torus, coarse - coarsest)
        in_time = difference / (contraction(change, difference) - 1)
        in_time = relative(in_time, size)
        lost = self._rounding(detached(v0), size, times)
        in_space = xp.full_like(in_time, math.inf)
        pending = ~self._misses(in_time, frames)
        for refined, states in enumerate((coarse, solved)):
            if bool(xp.any(pending)):
                finer, same_step = self.torus.finer, halvings - 1 + refined
                solver = self._of(pending, len(v0))
                fine, _ = solver._finer.march(w0[pending], times, self.dt, same_step)
                distance = self._norms(finer, fine - finer.padded(states[pending]))
                in_space[pending] = relative(distance, size[pending])
                large = xp.any(in_space > _LARGE, axis=1)
                pending = pending & (large | self._misses(in_space, frames))
        error = in_time + in_space + lost
        step = xp.full_like(size[:, 0], self.dt / 2**halvings)
        missed = self._misses(error, frames)
        if bool(xp.any(missed)):
            self._check_decayed(lost, frames, rows)
            failed = missed
            if halvings < _HALVINGS:  # a smaller step does not help if the grid is too coarse
                computed = frames.must & xp.isfinite(in_space)
                failed = xp.any(computed & (in_space > self.tolerance), axis=1)
            row = first_true(failed)
            if row is not None:
                parts = (to_numpy(part) for part in (in_time[row], in_space[row], frames.must))
                raise self._failure(int(rows[row]), float(step[row]), *parts)
            remaining = v0[missed], w0[missed], frames, rows[to_numpy(missed)]
            solver = self._of(missed, len(v0))
            parts = solver._stepped(*remaining, coarse[missed], solved[missed], halvings + 1)
            v[missed], error[missed], step[missed], integrals[missed] = parts
        return v, error, step, integrals

    def _misses(self, error: AtTimes, frames: _Frames) -> Bool[Array, " batch"]:
        """Whether a sample misses the tolerance at a needed time, or its error is not finite."""
        xp = array_namespace(error)
        return xp.any(~xp.isfinite(error) | (frames.must & (error > self.tolerance)), axis=1)

    def _check_decayed(self, lost: AtTimes, frames: _Frames, rows: np.ndarray) -> None:
        """Raise SolveError if the error `lost` by rounding alone exceeds the tolerance."""
        xp = array_namespace(lost)
        misses = xp.isfinite(lost) & frames.must & (lost > self.tolerance)
        row = first_true(xp.any(misses, axis=1))
        if row is not None:
            raise SolveError(
                int(rows[row]),
                "the solution has decayed so far that rounding is an error of "
                f"{float(xp.max(lost[row])):.2g}, more than {self.tolerance:g}: use a shorter "
                "time",
            )

    def _failure(
        self, row: int, step: float, in_time: np.ndarray, in_space: np.ndarray, must: np.ndarray
    ) -> SolveError:
        if not np.isfinite(in_time).all():
            return SolveError(
                row,
                f"the solution is not finite with time steps of {step:.2g}: use a smaller dt, or a "
                "shorter time if the solution itself blows up",
            )
        time, space = in_time[must].max(), in_space[must].max()
        parts = f"time {time:.2g}" + (f", space {space:.2g}" if space < math.inf else "")
        finer = "a finer grid" if self.tolerance < space < math.inf else "a smaller dt"
        return SolveError(
            row,
            f"the error exceeds {self.tolerance:g} with time steps of {step:.2g} ({parts}): use "
            f"{finer}, or a shorter time",
        )

    def _exact(
        self, v0: Modes, finer: Modes | None, frames: _Frames, rows: np.ndarray
    ) -> tuple[Array, Array, Array, Array]:
        xp, times = array_namespace(v0), frames.times
        v, integrals = self.discrete.evolve(v0, times)
        start, solved = detached(v0), detached(v)
        size = self._norms(self.torus, solved)
        lost = self._rounding(start, size, times)
        self._check_decayed(lost, frames, rows)
        before = self._norms(self.torus, start[:, None])
        growing = grown_rounding(self.torus, self.discrete.linear, before, size, times)
        error = xp.maximum(lost, growing)
        if finer is not None:
            fine = self._finer.evolve(detached(finer), times)[0]
            difference = fine - self.torus.finer.padded(solved)
            error += relative(self._norms(self.torus.finer, difference), size)
        row = first_true(xp.any(frames.must & ~(error <= self.tolerance), axis=1))
        if row is not None:
            raise SolveError(
                int(rows[row]),
                f"the error exceeds {self.tolerance:g} ({float(xp.max(error[row])):.2g}), by "
                "rounding that grows with the solution, or by modes beyond the grid: use a "
                f"shorter time{', or a finer grid' if finer is not None else ''}",
            )
        return v, error, xp.full_like(error[:, 0], math.inf), integrals

    def _rounding(self, v0: Array, size: AtTimes, times: list[float]) -> AtTimes:
        """Relative error of states of norm `size` by rounding that decays."""
        rates = np.real(self.discrete.linear)
        if self.mean_free:
            rates = np.where(self.torus.laplacian == 0, -np.inf, rates)
        batch = rates.shape[:1] if self.discrete.by_sample else ()
        slowest = np.minimum(rates.reshape(*batch, -1).max(axis=-1), 0)
        return rounding(self._norms(self.torus, v0[:, None])[:, 0], size, times, slowest)


@dataclass(frozen=True)
class _Frames:
    """The requested times of a solution, with the times at which the tolerance must be met."""

    times: list[float]
    must: Bool[Array, " times"]  # whether the tolerance must be met


@dataclass(frozen=True)
class Discrete:
    """L and N on one torus, with the cached coefficients of time steps."""

    torus: Torus
    linear: Symbol
    nonlinear: Nonlinear | None
    _steps: dict[float, Step] = field(default_factory=dict[float, Step], init=False, repr=False)

    @property
    def by_sample(self) -> bool:
        """Whether L differs from sample to sample."""
        return self.linear.ndim > len(self.torus.shape) + 1

    def evolve(self, v0: Modes, times: list[float]) -> tuple[Array, Array]:
        """e^(Lt) v₀ at the times, and an empty array of integrals."""
        xp = array_namespace(v0)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow shows in the error
            v = xp.stack([constant(np.exp(self.linear * t), v0) * v0 for t in times], axis=1)
        return v, xp.zeros((len(v0), len(times), 0), dtype=xp.float64, device=v0.device)

    def march(
        self,
        v0: Modes,
        times: list[float],
        dt: float,
        halvings: int = 0,
        watched: Watched | None = None,
    ) -> tuple[Array, Float[Array, "batch times watched"]]:
        """The states and the integrals at the times.

        Each interval between times is cut into equal steps of at most 4 dt. These steps are then
        halved `halvings` + 2 times, where `halvings` >= -2. The integrals are sums of Simpson's
        rule over pairs of steps. The march ends early if every sample has blown up.
        """
        xp = array_namespace(v0)
        v, now = v0, 0.0
        total = xp.zeros((len(v0), 0), dtype=xp.float64, device=v0.device)
        total = total if watched is None else watched(v0) * 0
        states, sums = [], []
        with np.errstate(over="ignore", invalid="ignore"):  # too large steps show in the error
            for t in times:
                if t > now:
                    longest = max(1, math.ceil((t - now) / (4 * dt) * (1 - 1e-12)))
                    count = longest * 2 ** (halvings + 2)
                    v, grown = self.advanced(v, (t - now) / count, count, watched)
                    total = total + grown
                now = t
                states.append(v)
                sums.append(total)
        return xp.stack(states, axis=1), xp.stack(sums, axis=1)

    def advanced(
        self, v: Modes, h: float, count: int, watched: Watched | None = None
    ) -> tuple[Modes, Array | float]:
        """The state after `count` steps of size h, and the integrals over these steps."""
        nonlinear = self.nonlinear
        assert nonlinear is not None
        if (
            isinstance(v, np.ndarray)
            and isinstance(nonlinear, Pseudospectral)
            and isinstance(watched, Rates | None)
            and has_vectors(self.torus.points)
            and v.shape[1:] == self.linear.shape[-v.ndim + 1 :]  # L is not repeated
        ):
            from pdegen.numerics.lane_steps import LaneMarch  # compiled when it is imported

            return LaneMarch(nonlinear, self._step(h), h, watched)(v, count)
        step, total = self._step(h).where(v), 0.0
        left = middle = 0.0 if watched is None else watched(v)
        for number in range(count):
            if number % _CHECK_INTERVAL == 0:
                xp = array_namespace(v)
                with np.errstate(over="ignore", invalid="ignore"):
                    sums = xp.sum(xp.abs(v), axis=tuple(range(1, v.ndim)))
                if not bool(xp.any(xp.isfinite(sums))):  # every sample has blown up
                    break
            v = step(v, nonlinear)
            if watched is not None and number % 2 == 0:
                middle = watched(v)
            elif watched is not None:
                right = watched(v)
                total = total + (left + 4 * middle + right) * (h / 3)
                left = right
        return v, total

    def _step(self, h: float) -> Step:
        step = self._steps.get(h)  # another thread may clear the cache after this line
        if step is None:
            if len(self._steps) >= _CACHED_STEPS:
                self._steps.clear()
            step = (Step.of_each if self.by_sample else Step.of)(self.linear, h)
            self._steps[h] = step
        return step
