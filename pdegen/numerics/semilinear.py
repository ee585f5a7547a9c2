"""Semilinear equations in Fourier space, with an error estimate for each sample and frame.

The step is chosen sample by sample: each is integrated with some step h and with 2h, and h is
halved until Richardson's estimate of the error meets the tolerance. So a sample does not depend on
those that are solved beside it.

The error in space is judged by the spectra at the times that are asked for. What the grid loses
between two of them, such as a shock that diffusion has smoothed again since, is not seen: ask for
times that are close enough. Soon after a start with many modes it is overestimated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from array_api_compat import array_namespace, is_numpy_namespace
from jaxtyping import Complex, Float

from pdegen.numerics.device import Array, blocks, constant, first, reuse_memory, to_numpy
from pdegen.numerics.etdrk import Step, Symbol
from pdegen.numerics.failure import SolveError
from pdegen.numerics.torus import Torus

Modes = Complex[Array, "batch components *modes"]
_ORDER = 4
_HALVINGS = 6  # of the step, at most
_LEAST_SHELLS = 3  # of modes, that show how a spectrum falls
_FLATTEST, _STEEPEST = 0.02, 20.0  # falls of a spectrum from shell to shell, as logarithms


@dataclass(frozen=True)
class Trajectory:
    """A solution at the times that were asked for.

    Args:
        v: Its modes, (batch, times, components, *modes).
        error: Estimate of the relative L² error of all components together, (batch, times).
        step: The time step of each sample, (batch,); infinite where none was needed.
        integrals: ∫₀ᵗ of what was watched, (batch, times, watched).
    """

    v: Complex[Array, "batch times components *modes"]
    error: Float[Array, "batch times"]
    step: Float[Array, " batch"]
    integrals: Float[Array, "batch times watched"]


@dataclass(frozen=True)
class Semilinear:
    """v' = L v + N(v) for the modes v of one or several functions on a torus.

    Args:
        torus: Where they live.
        linear: L, (components, *modes), real or complex.
        nonlinear: N, from modes to modes; None where there is none, and v = e^(Lt) v₀.
        dt: Largest step, and the first that is tried.
        tolerance: Largest relative error that is accepted at any time.
        watched: Real numbers of a state, (batch, watched), whose integrals over time are wanted.
        cut: Without N, whether modes of v₀ beyond the highest are missing; with N, they may be.
    """

    torus: Torus
    linear: Symbol
    nonlinear: Callable[[Modes], Modes] | None
    dt: float
    tolerance: float
    watched: Callable[[Modes], Float[Array, "batch watched"]] | None = None
    cut: bool = False
    _steps: dict[float, Step] = field(default_factory=dict[float, Step], init=False, repr=False)

    def solve(self, v0: Modes, times: Sequence[float], needed: Sequence[bool] = ()) -> Trajectory:
        """The solution at increasing times.

        Args:
            v0: Modes at time 0.
            times: Increasing, >= 0.
            needed: At which times the tolerance must be met; by default at all.

        Raises:
            SolveError: For a sample that misses the tolerance with the smallest step.
        """
        xp = array_namespace(v0)
        moments = _checked(times)
        reuse_memory()
        needed = needed or (True,) * len(moments)
        found = [
            self._solved(v0[block], moments, needed, block.start)
            for block in blocks(len(v0), math.prod(v0.shape[1:]) * 4, not is_numpy_namespace(xp))
        ]
        return Trajectory(*(xp.concat(parts, axis=0) for parts in zip(*found, strict=True)))

    def _solved(
        self, v0: Modes, times: list[float], needed: Sequence[bool], begin: int
    ) -> tuple[Array, Array, Array, Array]:
        xp, dt = array_namespace(v0), self.dt
        if self.nonlinear is None:
            v, integrals = self._exact(v0, times)
            error = self._rounding(v0, v, times)
            row = first(xp.any(constant(np.array(needed), v0) & ~(error <= self.tolerance), axis=1))
            if row is not None:
                raise SolveError(
                    begin + row,
                    f"its error exceeds {self.tolerance:g} ({float(xp.max(error[row])):.2g}), of "
                    "rounding that grows, or of modes beyond the grid: use a shorter time"
                    f"{', or a finer grid' if self.cut else ''}",
                )
            return v, error, xp.full_like(error[:, 0], math.inf), integrals
        v, integrals = self._march(v0, times, dt, 2)
        in_time, in_space = self._errors(v, self._march(v0, times, dt, 1)[0], times)
        step = xp.full_like(in_time[:, 0], dt)
        must = constant(np.array(needed), v0)
        for halving in range(1, _HALVINGS + 2):
            missed = xp.any(must & ~(in_time + in_space <= self.tolerance), axis=1)
            if not bool(xp.any(missed)):
                break
            row = first(xp.any(must & (in_space > self.tolerance), axis=1))
            if row is None and halving > _HALVINGS:
                row = first(missed)
            if row is not None:
                raise self._lost(begin + row, float(step[row]), in_time[row], in_space[row], must)
            coarse, again = v[missed], v0[missed]
            v[missed], integrals[missed] = self._march(again, times, dt, 2 ** (halving + 1))
            in_time[missed], in_space[missed] = self._errors(v[missed], coarse, times)
            step[missed] = dt / 2**halving
        return v, in_time + in_space, step, integrals

    def _lost(
        self, row: int, step: float, in_time: Array, in_space: Array, must: Array
    ) -> SolveError:
        in_time, in_space = (float(to_numpy(part[must]).max()) for part in (in_time, in_space))
        finer = "a finer grid" if in_space > self.tolerance else "a smaller dt"
        return SolveError(
            row,
            f"its error exceeds {self.tolerance:g} with time steps of {step:.2g} (time "
            f"{in_time:.2g}, space {in_space:.2g}): use {finer}, or a shorter time",
        )

    def _exact(self, v0: Modes, times: list[float]) -> tuple[Array, Array]:
        xp = array_namespace(v0)
        with np.errstate(over="ignore", invalid="ignore"):  # modes that grow: seen below
            v = xp.stack([constant(np.exp(self.linear * t), v0) * v0 for t in times], axis=1)
        return v, xp.zeros((len(v0), len(times), 0), dtype=xp.float64, device=v0.device)

    def _rounding(self, v0: Array, v: Array, times: list[float]) -> Float[Array, "batch times"]:
        """What e^(Lt) makes of the rounding of v₀, which is in all modes, over the norm of v; and
        where v₀ is cut off what is beyond."""
        xp, eps = array_namespace(v0), np.finfo(float).eps
        weights, modes = self.torus.weights, self.torus.weights.sum()

        def norms(values: Array) -> Array:
            squares = constant(weights, v0) * (xp.real(values) ** 2 + xp.imag(values) ** 2)
            return xp.sqrt(xp.sum(squares, axis=tuple(range(2, values.ndim))))

        with np.errstate(over="ignore", invalid="ignore"):
            rates = np.reshape(np.max(np.real(self.linear), axis=0), (1, *weights.shape))
            t = np.reshape(times, (-1, *[1] * weights.ndim))
            squares = np.sum(weights * np.exp(2 * rates * t), axis=tuple(range(1, rates.ndim)))
            grown = constant(np.sqrt(squares / modes), v0) * norms(v0[:, None])
            size = norms(v) + np.finfo(float).tiny
            error = xp.where(grown > 2 * size, eps * grown / size, xp.full_like(size, eps))
            if self.cut:
                energy = constant(weights, v0) * (xp.real(v) ** 2 + xp.imag(v) ** 2)
                error = error + self._beyond(xp.sum(energy, axis=2)) / size
        lost = ~xp.isfinite(error + size)
        return xp.where(lost, xp.full_like(error, math.inf), error)

    def _march(
        self, v0: Modes, times: list[float], dt: float, pieces: int
    ) -> tuple[Array, Float[Array, "batch times watched"]]:
        """The states at the times, each interval in `pieces` times as many steps as 2 dt needs.

        Integrals are sums of Simpson's rule over pairs of steps.
        """
        xp, watched, nonlinear = array_namespace(v0), self.watched, self.nonlinear
        assert nonlinear is not None
        v, now, states = v0, 0.0, []
        total = watched(v0) * 0 if watched is not None and pieces > 1 else None
        sums = []
        with np.errstate(over="ignore", invalid="ignore"):  # a step that is too large: seen below
            for t in times:
                if t > now:
                    count = pieces * max(1, math.ceil((t - now) / (2 * dt) * (1 - 1e-12)))
                    h = (t - now) / count
                    step = self._step(h).where(v0)
                    if total is None or watched is None:
                        for _ in range(count):
                            v = step(v, nonlinear)
                    else:
                        left = watched(v)
                        for _ in range(count // 2):
                            v = step(v, nonlinear)
                            middle = watched(v)
                            v = step(v, nonlinear)
                            right = watched(v)
                            total = total + (left + 4 * middle + right) * (h / 3)
                            left = right
                now = t
                states.append(v)
                if total is not None:
                    sums.append(total)
        none = xp.zeros((len(v0), len(times), 0), dtype=xp.float64, device=v0.device)
        return xp.stack(states, axis=1), xp.stack(sums, axis=1) if sums else none

    def _step(self, h: float) -> Step:
        if h not in self._steps:
            self._steps[h] = Step.of(self.linear, h)
        return self._steps[h]

    def _errors(
        self, v: Array, coarse: Array, times: list[float]
    ) -> tuple[Float[Array, "batch times"], Float[Array, "batch times"]]:
        """Richardson's estimate of the error in time, and the modes that the grid does not hold,
        as the spectrum extrapolated; infinite in time where the state is not finite."""
        xp = array_namespace(v)
        weights = constant(self.torus.weights, v)
        axes = tuple(range(2, v.ndim))

        def square(values: Array) -> Array:
            return weights * (xp.real(values) ** 2 + xp.imag(values) ** 2)

        with np.errstate(over="ignore", invalid="ignore"):
            energy = square(v)
            size = xp.sqrt(xp.sum(energy, axis=axes)) + np.finfo(float).tiny
            in_time = xp.sqrt(xp.sum(square(v - coarse), axis=axes)) / (2**_ORDER - 1)
            in_time = in_time / size + np.finfo(float).eps
            in_space = self._beyond(xp.sum(energy, axis=2)) / size
            lost = ~xp.isfinite(in_time + in_space)
        begun = constant(np.array(times) > 0, v)
        in_time, in_space = (xp.where(begun, e, xp.zeros_like(e)) for e in (in_time, in_space))
        in_time = xp.where(lost, xp.full_like(in_time, math.inf), in_time)
        return in_time, xp.where(lost, xp.zeros_like(in_space), in_space)

    def _beyond(self, energy: Float[Array, "batch times *modes"]) -> Float[Array, "batch times"]:
        """The norm of the modes beyond the highest, were the spectrum to fall on as it does.

        A line through the logarithms of the last fifth of the shells max |k_j|/K_j gives the norm
        s r^m of the m-th shell beyond, s that of the last: together s r/(1 - r²)^½.
        """
        xp = array_namespace(energy)
        shells = constant(self._shells, energy)
        of_shells = xp.sqrt(xp.reshape(energy, (*energy.shape[:2], -1)) @ shells)
        # a shell that a symmetry leaves empty is like the next
        filled = xp.maximum(of_shells[..., 1:], of_shells[..., :-1])
        logarithms = xp.log(filled + np.finfo(float).tiny)
        count = filled.shape[-1]
        place = constant(np.arange(count) - (count - 1) / 2, energy)
        slope = (logarithms @ place) / float(np.sum((np.arange(count) - (count - 1) / 2) ** 2))
        last = xp.exp(xp.mean(logarithms, axis=-1) + slope * (count - 1) / 2)
        ratio = xp.exp(xp.clip(slope, -_STEEPEST, -_FLATTEST))
        return last * ratio**2 / xp.sqrt(1 - ratio**2)  # `last` is of the shell before the last

    @cached_property
    def _shells(self) -> Float[np.ndarray, "modes shells"]:
        """Which modes are in each of the last shells, and in one more."""
        top = min(self.torus.highest)
        pairs = zip(self.torus.numbers, self.torus.highest, strict=True)
        shell = np.zeros(self.torus.shape)
        for k, highest in pairs:
            shell = np.maximum(shell, np.ceil(np.abs(k) * (top / highest)))
        first = top - max(_LEAST_SHELLS, top // 5)
        return np.stack([(shell == m).ravel() * 1.0 for m in range(first, top + 1)], axis=1)


def _checked(times: Sequence[float]) -> list[float]:
    moments = [float(t) for t in times]
    if not moments or moments != sorted(moments) or not 0 <= moments[0] <= moments[-1] < math.inf:
        raise ValueError(f"times must be >= 0 and must not decrease, got {list(times)}")
    return moments
