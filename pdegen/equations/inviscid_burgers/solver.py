"""Entropy solutions of the inviscid Burgers equation uₜ + (u²/2)ₓ = 0 on (0, 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Complex, Float

from pdegen.equations.base import checked_times
from pdegen.numerics.compilation import compiled
from pdegen.numerics.errors import SolveError
from pdegen.sampling.gaussian import antiderivative, averages

# Compiled loops of the minimum principle.


_jit, _inner = compiled(), compiled(inner=True)

_STEPS = 30  # largest number of Newton steps; three suffice where F'' is not small
_CONVERGED = 1e-9  # last step over the spacing of candidates: its square is round-off in F


@_inner
def lower_hull(phi: np.ndarray, hull: np.ndarray) -> int:
    """Computes the lower convex hull of the points (i, phi[i]).

    Writes the indices i of its vertices to `hull` in increasing order, and returns their number.
    """
    size = 0
    for i in range(len(phi)):
        while size > 1:
            # q stays if the slope from p to q is below that from q to i
            p, q = hull[size - 2], hull[size - 1]
            if (phi[q] - phi[p]) * (i - q) < (phi[i] - phi[q]) * (q - p):
                break
            size -= 1
        hull[size] = i
        size += 1
    return size


@_inner
def fourier_sums(c: np.ndarray, y: float) -> tuple[float, float, float]:
    """Values of U, U' and U'' at y.

    U(y) = c_0 y + Re Σ_{k>0} c_k e^(2πiky) with a real c_0.
    """
    angle = 2 * math.pi * y
    z = complex(math.cos(angle), math.sin(angle))
    power = z
    potential, u, slope = c[0].real * y, c[0].real, 0.0
    for k in range(1, len(c)):
        term = c[k] * power
        potential += term.real
        u -= 2 * math.pi * k * term.imag
        slope -= (2 * math.pi * k) ** 2 * term.real
        power *= z
    return potential, u, slope


@_inner
def refined(
    c: np.ndarray, x: float, t: float, y: float, low: float, high: float, spacing: float
) -> float:
    """The smallest value of F among the iterates of Newton's method, including the start y.

    F(y) = U(y) + (x - y)²/2t. Each step is at most two spacings long and ends in [low, high]. The
    method stops if F is not convex at an iterate.
    """
    least = np.inf
    for _ in range(_STEPS):
        potential, u, slope = fourier_sums(c, y)
        least = min(least, potential + (x - y) ** 2 / (2 * t))
        curvature = slope + 1 / t
        if curvature <= 0:
            break
        step = (u - (x - y) / t) / curvature
        step = max(-2 * spacing, min(2 * spacing, step))
        previous, y = y, max(low, min(high, y - step))
        if abs(y - previous) < _CONVERGED * spacing:
            break
    return least


@_jit
def minima(
    c: np.ndarray, table: np.ndarray, first: int, per_circle: int, candidates: int,
    t: float, x: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Writes the minimum of U(y) + (x[j] - y)²/2t over y to out[j].

    The minimum is taken over the best candidates and their Newton iterates.

    Args:
        c: Coefficients of U, as in `fourier_sums`.
        table: Values U(i/per_circle) for i = 0, ..., per_circle.
        first, per_circle, candidates: Candidate i is y = (first + i)/per_circle, i < candidates.
        t, x: Time, and increasing points.
    """
    phi, hull = np.empty(candidates), np.empty(candidates, np.int64)
    # the candidates on the lower hull of F at x[0]; F at x[j] differs by a linear function of y, so
    # its minimum is on the same hull
    for i in range(candidates):
        circle = (first + i) // per_circle
        y = (first + i) / per_circle
        value = table[first + i - circle * per_circle] + c[0].real * circle
        phi[i] = value + (y - x[0]) ** 2 / (2 * t)
    low, high = first / per_circle, (first + candidates - 1) / per_circle
    size = lower_hull(phi, hull)
    spacing, best = 1 / per_circle, 0
    # as x grows, the minimising vertex moves to the right; its neighbours are refined too
    for j in range(len(x)):
        shift = (x[j] - x[0]) / t  # F = phi - shift (y - x[0]) + shift² t/2
        while best + 1 < size:
            p, q = hull[best], hull[best + 1]
            if phi[q] - phi[p] > shift * (q - p) * spacing:
                break
            best += 1
        least = np.inf
        for vertex in range(max(0, best - 1), min(size, best + 2)):
            if vertex != best and abs(hull[vertex] - hull[best]) < 3:
                continue  # no shock between them: Newton's method leads to the same point
            y = (first + hull[vertex]) / per_circle
            least = min(least, refined(c, x[j], t, y, low, high, spacing))
        out[j] = least


Boundary = Literal["periodic", "outflow"]

_ROUND_OFF = (
    np.finfo(float).eps / 4
)  # root mean square rounding of the potential, over its largest value

Coefficients = Complex[np.ndarray, "batch modes"]
Ends = Float[np.ndarray, "batch n+1"]


class Solution(NamedTuple):
    """Cell averages of u, and an error estimate for each sample.

    The error is an estimate of the largest ‖u - u_exact‖/‖u_exact‖ in L² over the times.
    """

    u: Float[np.ndarray, "batch times n"]
    error: Float[np.ndarray, " batch"]


@dataclass(frozen=True)
class MinimumPrinciple:
    """The exact solution, without time steps, as averages over n equal cells of (0, 1).

    Let U₀ be an antiderivative of u₀. Then V(x, t) = min_y U₀(y) + (x - y)²/2t is an antiderivative
    of u(·, t) (Hopf, Lax). The average of u over a cell [a, b] is (V(b) - V(a))/(b - a). Mass is
    therefore conserved up to round-off, and shocks are sharp. The average over a coarser cell is
    the mean of the averages over its parts.

    - u₀ is a Fourier sum, so U₀ is known exactly. First, the minimum over equally spaced candidates
      y is computed. The minimisers are vertices of the lower convex hull of U₀(y) + y²/2t, which
      is computed once for all x. Newton's method then refines them. Near a shock, neighbouring
      vertices are refined too.
    - Boundary "periodic": u = m + w, where m is the mean. The solver computes w and shifts it by
      m t. The minimiser for w is at most the length of the circle away from x.
    - Boundary "outflow": u₀ is continued by its end values. This equals the condition uₓ = 0 as
      long as no wave re-enters. V is the smaller of two values: the minimum over y in [0, 1], and
      the V of the constant state outside.

    The error is estimated from a second solution with half as many candidates. The estimate is at
    least the round-off error of V divided by the width of a cell. It is larger only if there are
    too few candidates to find a minimum.

    Raises:
        ValueError: If a value is outside its range, or u₀ has too many modes.
        SolveError: If the error estimate of a sample exceeds the tolerance.

    References: E. Hopf, CPAM 3 (1950); P. D. Lax, CPAM 10 (1957), theorem 2.1.

    >>> sine = np.array([[0, -1j]])
    >>> u = MinimumPrinciple(4, "periodic")(sine, t=1.0)
    >>> u.round(4)
    array([[ 0.1078,  0.3226, -0.3226, -0.1078]])
    """

    n: int  # number of cells
    boundary: Boundary  # "periodic" or "outflow"
    candidates: int = 4096  # points y on the circle; even, and at least 8 times the modes of u₀
    tolerance: float = 1e-8  # largest error estimate that `solve` accepts

    def __post_init__(self) -> None:
        if self.n < 1 or self.candidates < 8 or self.candidates % 2 or not self.tolerance > 0:
            raise ValueError(
                "need n >= 1, an even number of candidates >= 8 and tolerance > 0, got "
                f"n={self.n}, candidates={self.candidates}, tolerance={self.tolerance}"
            )
        if self.boundary not in ("periodic", "outflow"):
            raise ValueError(f"boundary must be periodic or outflow, got {self.boundary!r}")

    def __call__(self, c: Coefficients, t: float | Sequence[float]) -> Float[np.ndarray, "*shape"]:
        """Cell averages of u.

        The shape is (batch, n) if t is a number, and (batch, times, n) if t is a list.

        Args:
            c: Coefficients of u₀(x) = Re Σ_k c_k e^(2πikx).
            t: One time or a list of times, >= 0.
        """
        u = self._averages(c, checked_times(t), self.candidates)
        return u[:, 0] if np.ndim(t) == 0 else u

    def solve(self, c: Coefficients, t: float | Sequence[float]) -> Solution:
        """Cell averages at the times t, and an error estimate for each sample.

        Raises SolveError if an estimate exceeds the tolerance.
        """
        times = checked_times(t)
        u = self._averages(c, times, self.candidates)
        coarse = self._averages(c, times, self.candidates // 2)
        size = np.linalg.norm(u, axis=2) + np.finfo(float).tiny
        largest = abs(antiderivative(c, self.candidates)).max(axis=1, keepdims=True)
        round_off = _ROUND_OFF * (largest + 1) * self.n**1.5 / size
        error = np.maximum(np.linalg.norm(u - coarse, axis=2) / size, round_off).max(axis=1)
        missed = np.flatnonzero(~(error <= self.tolerance))
        if len(missed):
            row = int(missed[0])
            resolved = round_off[row].max() <= self.tolerance
            few = f"with {self.candidates} candidates: use more of them"
            small = "by rounding, as u is too small: use shorter times or a larger field"
            raise SolveError(
                row,
                f"the minimum principle misses the tolerance {self.tolerance:g}: error "
                f"{error[row]:.2g} {few if resolved else small}",
            )
        return Solution(u, error)

    def _averages(
        self, c: Coefficients, times: list[float], candidates: int
    ) -> Float[np.ndarray, "batch times n"]:
        """Cell averages at the times, computed with this number of candidates."""
        if self.candidates < 8 * c.shape[1]:
            raise ValueError(
                f"{c.shape[1] - 1} modes need at least {8 * c.shape[1]} candidates, "
                f"got {self.candidates}"
            )
        u = np.empty((len(c), len(times), self.n))
        for i, t in enumerate(times):
            if t == 0:
                u[:, i] = averages(c, self.n)
            else:
                potential = self._periodic if self.boundary == "periodic" else self._outflow
                u[:, i] = np.diff(potential(c, t, candidates)) * self.n
        return u

    def _periodic(self, c: Coefficients, t: float, candidates: int) -> Ends:
        """V at the ends of the cells, up to a constant, for the boundary "periodic"."""
        edges, mean = np.arange(self.n + 1) / self.n, np.real(c[:, 0])
        potential, table = _antiderivatives(c, candidates)
        potential[:, 0], table = 0, table - mean[:, None] * (np.arange(candidates + 1) / candidates)
        v = np.empty((len(c), self.n + 1))
        for row in range(len(c)):
            x = edges - mean[row] * t
            x -= math.floor(x[0])
            # |w| <= 1/t on a circle of length 1, so the minimum is at most one circle from x
            bound = float(abs(c[row, 1:]).sum())  # of |Re Σ c_k e^(2πikx)|
            reach = math.ceil(candidates * min(1.0, t * bound)) + 2
            first = math.floor(x[0] * candidates) - reach
            count = math.ceil(x[-1] * candidates) + reach + 1 - first
            minima(potential[row], table[row], first, candidates, count, t, x, v[row])
        v[:, -1] = v[:, 0]  # w has no mean
        return v + mean[:, None] * edges

    def _outflow(self, c: Coefficients, t: float, candidates: int) -> Ends:
        """V at the ends of the cells for the boundary "outflow"."""
        x = np.arange(self.n + 1) / self.n
        potential, table = _antiderivatives(c, candidates)
        end = np.real(c).sum(axis=1)[:, None]  # u₀(0), which is u₀(1)
        v = np.empty((len(c), self.n + 1))
        for row in range(len(c)):
            minima(potential[row], table[row], 0, candidates, candidates + 1, t, x, v[row])
        # the constant state on the left, whose minimiser is y = x - t u₀(0), and that on the right
        before, y = table[:, :1] + end * x - t * end**2 / 2, x - t * end
        v = np.where(y < 0, np.minimum(v, before), v)
        beyond = table[:, -1:] - table[:, :1] - end + before
        return np.where(y > 1, np.minimum(v, beyond), v)


def _antiderivatives(c: Coefficients, n: int) -> tuple[Coefficients, Ends]:
    """Coefficients of U₀, as in `fourier_sums`, and the values U₀(i/n) for i = 0, ..., n."""
    periodic = c.astype(complex)
    periodic[:, 1:] /= 2j * np.pi * np.arange(1, c.shape[1])
    start = np.real(periodic[:, 1:]).sum(axis=1, keepdims=True)
    return periodic, antiderivative(c, n) + start
